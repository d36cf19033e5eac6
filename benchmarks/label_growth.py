"""One document's wait and the memory, from a thousand labels to a million, on a CPU: shortlist, index where many.

    python benchmarks/label_growth.py

Random weights of the paper's sizes, a text of 180 words, one core, a shortlist of 512, a process of its own for each
size. Above 200,000 labels the shortlist comes from the index (the extra `ann`); building it counts as training, not
here. Random label vectors have no cells to speak of, so this says nothing of what an index finds. Also draws
`results/label_growth.png`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch

from laha.results import resident_peak
from random_model import random_model
from record import RESULTS, record, row

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
LENGTH = 180


def measure(labels: int) -> dict[str, float]:
    """Return the milliseconds of one document, exact and by shortlist, and the memory a tagger of it holds."""
    torch.set_num_threads(1)
    model = random_model(labels)
    text = " ".join(f"word{number}" for number in range(LENGTH))
    times: dict[str, list[float]] = {"shortlist": [], "exact": []}
    for number in range(8):
        for name in times:
            if name == "exact" and (labels > 100_000 or number > 3):
                continue  # seconds each: the curve is known by then
            model.exact = name == "exact"
            began = time.perf_counter()
            model.predict([text])
            times[name].append(1000 * (time.perf_counter() - began))
    found = {name: median(values[1:]) for name, values in times.items() if len(values) > 1}
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return {**found, "gib": resident / 2**30, "peak_gib": resident_peak() / 2**30}


def plot(found: dict[int, dict[str, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), constrained_layout=True)
    for name, style in (("exact", "o--"), ("shortlist", "o-")):
        points = [(labels, each[name]) for labels, each in found.items() if name in each]
        left.plot(*zip(*points, strict=True), style, label="every label" if name == "exact" else "shortlist of 512")
    left.set(xscale="log", yscale="log", xlabel="labels", ylabel="ms a document, one core")
    left.legend(frameon=False)
    right.plot(list(found), [each["gib"] for each in found.values()], "o-")
    right.set(xscale="log", yscale="log", xlabel="labels", ylabel="GiB held while tagging")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(RESULTS / "label_growth.png", dpi=110)


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
        return
    found = {}
    for labels in SIZES:
        command = [sys.executable, __file__, str(labels)]
        found[labels] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"{labels:>9,} labels: {found[labels]}", flush=True)
    base, most = found[10_000], found[1_000_000]
    ratio = most["shortlist"] / base["shortlist"]
    per_label = (most["gib"] - base["gib"]) / 990_000 * 2**30
    slope = (found[300_000]["gib"] - base["gib"]) / 290_000 * 2**30
    rows = [
        row(
            "label-growth",
            "one document at 1,000,000 labels against 10,000, by shortlist, one core",
            ratio,
            "times the time",
            4,
            ratio <= 4,
            None,
            "lower",
        ),
        row(
            "label-growth-memory",
            "bytes a label from 10,000 to 1,000,000 labels; linear if near those from 10,000 to 300,000 (baseline)",
            per_label,
            "bytes",
            1.25 * slope,
            per_label <= 1.25 * slope,
            slope,
            "lower",
        ),
    ]
    rows += [
        row(
            f"label-growth-{labels}",
            f"one document of {LENGTH} words, {labels:,} labels, by shortlist; baseline: every label, folded",
            each["shortlist"],
            "ms",
            4 * base["shortlist"],
            each["shortlist"] <= 4 * base["shortlist"],
            each.get("exact"),
            "lower",
        )
        for labels, each in found.items()
    ]
    record("label_growth", rows)
    plot(found)


if __name__ == "__main__":
    main()
