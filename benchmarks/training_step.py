"""Where a training step's time goes: encoder, labels, optimizer; the formulas as written beside the fast path.

    python benchmarks/training_step.py                  # CPU: 2,150 sampled labels, a batch of 16
    python benchmarks/training_step.py --device cuda    # all 29,947 labels, a batch of 64, 500 words

Random weights of the paper's sizes; medians. The parts are timed one after the other: the encoder (its projections
included) forward and backward, the labels' side forward and backward, Adam. On a GPU both run in bfloat16 (autocast).
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from laha.network.laha import LAHANetwork
from laha.scoring.paths import choose_scoring
from laha.scoring.streaming import Scoring
from random_model import WORDS
from record import record, row

PARTS = ("encoder", "labels", "optimizer")


def step_times(
    network: LAHANetwork, scoring: Scoring, words: Tensor, labels: Tensor | None, runs: int
) -> dict[str, float]:
    """Return the median seconds of each part of a step."""
    device, count = words.device, network.labels if labels is None else len(labels)
    lengths = torch.full((len(words),), words.shape[1], device=device)
    targets = torch.zeros(len(words), count, device=device)
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, fused=device.type == "cuda")
    times: dict[str, list[float]] = {part: [] for part in PARTS}

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    for number in range(runs + 1):
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            began = now()
            encoded = scoring.encode(words, lengths)
            encoder = now() - began
            # The labels' side gets leaves in place of the encoder's results, so that its way back ends there.
            leaves = [leaf(part) for part in encoded]
            began = now()
            logits = scoring.score(type(encoded)(*leaves), labels)
        loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets, reduction="sum") / len(words)
        loss.backward()
        side = now() - began
        began = now()
        reached = [(part, end.grad) for part, end in zip(encoded, leaves, strict=True) if wants(end)]
        torch.autograd.backward([part for part, _ in reached], [gradient for _, gradient in reached])
        encoder += now() - began
        began = now()
        optimizer.step()
        if number:  # the first warms up
            for part, value in zip(PARTS, (encoder, side, now() - began), strict=True):
                times[part].append(value)
    return {part: median(values) for part, values in times.items()}


def leaf(part: Any) -> Any:
    if isinstance(part, Tensor) and part.requires_grad:
        return part.detach().requires_grad_()
    return part


def wants(end: Any) -> bool:
    return isinstance(end, Tensor) and end.grad is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tiny", action="store_true", help="a small step on a CPU, recording nothing: a test")
    arguments = parser.parse_args()
    device = arguments.device
    on_gpu = device == "cuda"
    batch, n, k, runs = (64, 500, 29_947, 10) if on_gpu else (16, 180, 22_625, 3)
    if arguments.tiny:
        batch, n, k, runs = 2, 20, 3_000, 1
    torch.manual_seed(0)
    network = LAHANetwork(WORDS + 2, 300, k, 256, word_dropout=0.3, state_dropout=0.4).to(device)
    words = torch.randint(2, WORDS + 2, (batch, n), device=device)
    labels = None if on_gpu else torch.randperm(k)[:2150].sort().values
    ways: dict[str, Scoring] = {"as written": network, "fast": choose_scoring(network)}
    found = {
        name: step_times(network, scoring, words, labels, min(runs, 3) if name == "as written" else runs)
        for name, scoring in ways.items()
    }
    for name, parts in found.items():
        total = sum(parts.values())
        print(f"{name}: " + ", ".join(f"{p} {1000 * t:.1f} ms ({100 * t / total:.0f} %)" for p, t in parts.items()))
    if arguments.tiny:
        return
    path = type(ways["fast"]).__name__
    of = f"a step of {batch} documents of {n} words, {k if labels is None else len(labels):,} of {k:,} labels"
    before, after = (1000 * sum(found[name].values()) for name in ways)
    rows = [
        row(
            f"{device}-step",
            f"{of}, {path}; baseline: the formulas as written",
            after,
            "ms",
            before / 2,
            after <= before / 2,
            before,
            "lower",
        )
    ]
    for name, total in (("as written", before), ("fast", after)):
        for part in PARTS:
            value = 1000 * found[name][part]
            claim = f"{of}, {name}: {part}, {100 * value / total:.0f} % of the step"
            rows.append(row(f"{device}-step-{name.split()[-1]}-{part}", claim, value, "ms", None, None, None, "lower"))
    record(f"training_step_{device}", rows, torch.cuda.get_device_name() if on_gpu else "cpu")


if __name__ == "__main__":
    main()
