"""TopK: label ids and scores, the one result type of every model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TopK:
    """The best labels of each document, best first; id -1 where a document has fewer.

    >>> best = TopK(np.array([[1, 0], [0, -1]]), np.array([[0.9, 0.2], [0.7, 0.0]]), ["cats", "dogs"])
    >>> best.named()
    [[('dogs', 0.9), ('cats', 0.2)], [('cats', 0.7)]]
    """

    ids: NDArray[np.int64]  # (documents, k)
    scores: NDArray[np.float32]  # (documents, k)
    label_names: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    def named(self) -> list[list[tuple[str, float]]]:
        """Return each document's labels by name with their scores."""
        return [
            [(self.label_names[label], float(score)) for label, score in zip(ids, scores, strict=True) if label >= 0]
            for ids, scores in zip(self.ids, self.scores, strict=True)
        ]

    @staticmethod
    def concatenate(parts: Sequence[TopK]) -> TopK:
        """Join the results of consecutive batches."""
        return TopK(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.scores for part in parts]),
            parts[0].label_names,
        )
