"""Documents tagged a second from word ids, end to end: 22,625 labels, 180 words, exact, top 5.

    python benchmarks/tagging.py                  # CPU: exact and by shortlist
    python benchmarks/tagging.py --device cuda    # the bar of 15,000 documents/s on an H200

Random weights of the paper's sizes; the median of three runs.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from random_model import random_documents, random_model
from record import record, row

LABELS, LENGTH, BAR = 22_625, 180, 15_000


def rate(device: str, documents: int, exact: bool, precision: str) -> float:
    """Return documents a second."""
    model = random_model(LABELS, device=device)
    model.exact, model.scoring_precision = exact, precision
    words = random_documents(documents, LENGTH)
    model.predict(words)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        model.predict(words)  # ends with the labels on the CPU: nothing is left running on a GPU
        times.append(time.perf_counter() - began)
    return documents / median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    of = f"documents of {LENGTH} words a second from word ids to the five best of {LABELS:,} labels"
    if device == "cuda":
        value = rate(device, 60_000, True, "auto")
        rows = [row("gpu-tagging", f"{of}, exact", value, "documents/s", BAR, value >= BAR, None, "higher")]
        record("gpu_tagging", rows, torch.cuda.get_device_name())
        return
    exact = rate(device, 64, True, "float32")
    rows = []
    for id, claim, documents, way, precision in (
        ("cpu-tagging-bfloat16", "exact, bfloat16", 64, True, "bfloat16"),
        ("cpu-tagging-shortlist", "a shortlist of 512", 512, False, "float32"),
        ("cpu-tagging-shortlist-bfloat16", "a shortlist of 512, bfloat16", 512, False, "bfloat16"),
    ):
        value = rate(device, documents, way, precision)
        claim = f"{of}: {claim}; baseline: exact, float32; {torch.get_num_threads()} threads"
        rows.append(row(id, claim, value, "documents/s", exact, value >= exact, exact, "higher"))
    record("cpu_tagging", rows)


if __name__ == "__main__":
    main()
