"""Scoring on a CPU: the folded path against the formulas as written, the shortlist against both, one document's wait.

    python benchmarks/cpu_scoring.py

Random weights of the paper's sizes, 22,625 labels (tibkat-en's), documents of 180 words; the times are taken in turn in
one run, medians; peak memory is of a process of its own for each way. The formulas as written score 8 documents at once
(2 GiB), all other ways 64.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from laha.results import resident_peak
from laha.scoring.folded import FoldedScoring
from laha.scoring.shortlist import Shortlist
from laha.scoring.streaming import score_all
from random_model import random_documents, random_model, random_network
from record import record, row

LABELS, LENGTH, SHORTLIST = 22_625, 180, 512
FEW, MANY = 8, 64  # documents


def in_turn(ways: dict[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """Return the median seconds of each way, run one after the other so that they meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(runs + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if number:  # the first round warms up
                times[name].append(time.perf_counter() - began)
    return {name: median(values) for name, values in times.items()}


def batch(documents: int) -> tuple[torch.Tensor, torch.Tensor]:
    words = torch.from_numpy(random_documents(documents, LENGTH).ids.reshape(documents, LENGTH))
    return words, torch.full((documents,), LENGTH)


def memory_of(way: str) -> float:
    """Return by how many GiB scoring raises the peak memory of a process of its own."""
    command = [sys.executable, __file__, "--memory", way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(way: str) -> None:
    network = random_network(LABELS)
    folded = FoldedScoring(network, frozen=True)
    with torch.inference_mode():
        encoded = (network if way == "literal" else folded).encode(*batch(FEW))
        before = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        if way == "literal":
            network.score(encoded)
        else:
            folded.score(encoded)
    print(max(0, resident_peak() - before) / 2**30)


def label_side() -> list[dict[str, Any]]:
    network = random_network(LABELS)
    folded = FoldedScoring(network, frozen=True)
    half = FoldedScoring(random_network(LABELS).bfloat16(), frozen=True)
    shortlist = Shortlist(folded, SHORTLIST)
    with torch.inference_mode():
        literal = network.encode(*batch(FEW))
        projected, halved = (way.encode(*batch(MANY)) for way in (folded, half))
        ways = {
            "literal": lambda: network.score(literal),
            "chunks": lambda: score_all(network, *batch(FEW)),
            "folded": lambda: folded.score(projected),
            "bfloat16": lambda: half.score(halved),
            "shortlist": lambda: folded.score(projected, shortlist.propose(projected.pooled)),
        }
        seconds = in_turn(ways, runs=3)
    documents = {name: FEW if name in ("literal", "chunks") else MANY for name in seconds}
    each = {name: 1000 * value / documents[name] for name, value in seconds.items()}
    peak, floor = memory_of("literal"), memory_of("folded")
    of = f"{LABELS:,} labels, {LENGTH} words, after the encoder, {torch.get_num_threads()} threads"
    times = each["literal"] / each["folded"]
    rows = [
        row(
            "cpu-folded",
            f"exact, folded, against the formulas as written (goal 3): {of}",
            times,
            "times faster",
            2,
            times >= 2,
            None,
            "higher",
        ),
        row(
            "cpu-folded-milliseconds",
            f"exact, folded, a document: {of}",
            each["folded"],
            "ms",
            each["literal"] / 2,
            each["folded"] <= each["literal"] / 2,
            each["literal"],
            "lower",
        ),
        row(
            "cpu-folded-memory",
            f"peak memory of scoring {FEW} documents, folded, against the formulas as written: {of}",
            floor,
            "GiB",
            peak / 10,
            floor <= peak / 10,
            peak,
            "lower",
        ),
        row(
            "cpu-folded-chunks",
            f"exact, folded, against the formulas in chunks of labels, encoder included: {of}",
            each["folded"],
            "ms",
            each["chunks"] / 2,
            each["folded"] <= each["chunks"] / 2,
            each["chunks"],
            "lower",
        ),
        row(
            "cpu-bfloat16",
            f"exact, folded, bfloat16 against float32: {of}",
            each["bfloat16"],
            "ms",
            each["folded"] / 1.5,
            each["bfloat16"] <= each["folded"] / 1.5,
            each["folded"],
            "lower",
        ),
        row(
            "cpu-shortlist",
            f"a shortlist of {SHORTLIST}, proposing included, against exact as written: {of}",
            each["literal"] / each["shortlist"],
            "times faster",
            20,
            each["literal"] / each["shortlist"] >= 20,
            None,
            "higher",
        ),
        row(
            "cpu-shortlist-folded",
            f"a shortlist of {SHORTLIST}, proposing included, against exact folded: {of}",
            each["folded"] / each["shortlist"],
            "times faster",
            20,
            each["folded"] / each["shortlist"] >= 20,
            None,
            "higher",
        ),
    ]
    return rows


def latency() -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    model = random_model(LABELS, SHORTLIST)
    text = " ".join(f"word{number}" for number in range(LENGTH))
    half = random_model(LABELS, SHORTLIST)
    half.scoring_precision = "bfloat16"
    exact = random_model(LABELS, SHORTLIST)
    exact.exact = True
    ways = {
        "shortlist": lambda: model.predict([text]),
        "bfloat16": lambda: half.predict([text]),
        "exact": lambda: exact.predict([text]),
    }
    seconds = in_turn(ways, runs=21)
    milliseconds = {name: 1000 * value for name, value in seconds.items()}
    of = f"a text of {LENGTH} words to its five best of {LABELS:,} labels on one core, median after loading"
    return [
        row(
            id,
            f"{of}, {name}; baseline: every label, folded",
            milliseconds[name],
            "ms",
            25,
            milliseconds[name] <= 25,
            milliseconds["exact"],
            "lower",
        )
        for id, name in (("cpu-latency", "shortlist"), ("cpu-latency-bfloat16", "bfloat16"))
    ]


def main() -> None:
    if sys.argv[1:2] == ["--memory"]:
        print_memory(sys.argv[2])
        return
    rows = label_side()
    record("cpu_scoring", rows + latency())


if __name__ == "__main__":
    main()
