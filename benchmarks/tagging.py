"""Documents tagged a second from word ids, end to end: 22,625 labels, 180 words, exact, top 5.

    python benchmarks/tagging.py                  # CPU: exact and by shortlist
    python benchmarks/tagging.py --device cuda    # the bar of 15,000 documents/s on an H200

Random weights of the paper's sizes; the median of three runs.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch

from laha.scoring.streaming import Best, label_chunks
from random_model import random_documents, random_model
from record import record, row

LABELS, LENGTH, BAR = 22_625, 180, 15_000


def rate(device: str, documents: int, exact: bool, precision: str, stages: bool = False) -> float:
    """Return documents a second; with `stages`, print where the time goes."""
    model = random_model(LABELS, device=device)
    model.exact, model.scoring_precision = exact, precision
    words = random_documents(documents, LENGTH)
    model.predict(random_documents(min(documents, 3_000), LENGTH))  # compiles, and fills the caches
    if stages:
        print_stages(model, words)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        model.predict(words)  # ends with the labels on the CPU: nothing is left running on a GPU
        times.append(time.perf_counter() - began)
    return documents / median(times)


@torch.inference_mode()
def print_stages(model: Any, words: Any) -> None:
    """Print what each stage takes when nothing overlaps: padding and copying, encoder, attention, the best labels."""
    scorer = model.scorer_
    times = dict.fromkeys(("host", "encode", "score", "best labels", "copy back"), 0.0)
    batches = iter(scorer.batches(words))

    def add(stage: str, began: float) -> float:
        if scorer.device.type == "cuda":
            torch.cuda.synchronize()
        times[stage] += time.perf_counter() - began
        return time.perf_counter()

    while True:
        began = time.perf_counter()
        batch = next(batches, None)
        if batch is None:
            break
        began = add("host", began)
        encoded = scorer.scoring.encode(*batch[1:])
        began = add("encode", began)
        (chunk,) = label_chunks(scorer.scoring, batch[1])
        logits = scorer.scoring.score(encoded, chunk)
        began = add("score", began)
        best = Best(batch[1], 5)
        best.add(chunk, logits)
        began = add("best labels", began)
        best.ids.cpu()
        best.scores.cpu()
        add("copy back", began)
    total = sum(times.values())
    for stage, took in times.items():
        print(f"{stage}: {1e6 * took / len(words):.1f} us a document, {100 * took / total:.0f} %")
    print(f"one after the other: {len(words) / total:.0f} documents/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tiny", action="store_true", help="a few documents on a CPU, recording nothing: a test")
    arguments = parser.parse_args()
    device = arguments.device
    if arguments.tiny:
        print(f"{rate('cpu', 4, True, 'float32', stages=True):.1f} documents/s")
        return
    of = f"documents of {LENGTH} words a second from word ids to the five best of {LABELS:,} labels"
    if device == "cuda":
        value = rate(device, 60_000, True, "auto", stages=True)
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
