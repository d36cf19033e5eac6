"""Tag a stream of documents of any length in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from laha.corpus import Record
from laha.estimator import Estimator

BATCH = 256  # documents held at once: enough to fill batches of like length


def tag_records(
    model: Estimator, records: Iterable[Record], top: int = 5, min_score: float = 0.0
) -> Iterator[dict[str, Any]]:
    """Yield `{"id", "labels": [{"label", "score"}]}` for each document, in order; without an id, the line's number."""
    stream = iter(records)
    while batch := list(islice(stream, BATCH)):
        best = model.predict([record.text for record in batch], top)
        for record, labels in zip(batch, best.named(), strict=True):
            yield {
                "id": record.line if record.id is None else record.id,
                "labels": [{"label": name, "score": round(score, 6)} for name, score in labels if score >= min_score],
            }
