"""Tagging streams: order, ids, thresholds, and constant memory however long the input is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from laha.baselines.popular import Popular
from laha.corpus import Parts, Record
from laha.tagging import BATCH, tag_records


@pytest.fixture(scope="module")
def model(parts: Parts) -> Popular:
    return Popular().fit(parts)


def records(count: int) -> Iterator[Record]:
    return (Record(f"text {n}", None, f"id{n}" if n % 2 else None, n) for n in range(1, count + 1))


def test_every_document_comes_back_in_order_under_its_id(model: Popular) -> None:
    count = 2 * BATCH + 3
    ids = [tagged["id"] for tagged in tag_records(model, records(count))]
    assert ids == [f"id{n}" if n % 2 else n for n in range(1, count + 1)]


def test_labels_below_the_threshold_are_left_out(model: Popular) -> None:
    (tagged,) = tag_records(model, records(1), top=6)
    scores = [entry["score"] for entry in tagged["labels"]]
    assert len(scores) == 6
    (fewer,) = tag_records(model, records(1), top=6, min_score=scores[2])
    assert [entry["score"] for entry in fewer["labels"]] == [score for score in scores if score >= scores[2]]


def test_no_more_than_a_batch_is_read_ahead(model: Popular) -> None:
    read: list[int] = []

    def source() -> Iterator[Record]:
        for record in records(10 * BATCH):
            read.append(record.line)
            yield record

    stream = tag_records(model, source())
    next(stream)
    assert len(read) == BATCH


PEAK = """
import sys
from laha.cli import main
from laha.results import resident_peak
sys.argv = ["laha", "tag", *sys.argv[1:]]
try:
    main()
except SystemExit as stop:
    code = stop.code or 0
else:
    code = 0
print(resident_peak(), file=sys.stderr)
sys.exit(code)
"""


def test_memory_does_not_grow_with_the_input(model: Popular, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    peaks = []
    for lines in (2_000, 100_000):
        path = tmp_path / f"{lines}.jsonl"
        path.write_text("".join(f'{{"text": "document {n} with some words of its own"}}\n' for n in range(lines)))
        command = [sys.executable, "-c", PEAK, str(tmp_path / "model"), str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ran.stdout.count("\n") == lines
        peaks.append(int(ran.stderr.split()[-1]))
    # Held in memory, the larger input would need some 30 MB more.
    assert peaks[1] - peaks[0] < 10_000_000
