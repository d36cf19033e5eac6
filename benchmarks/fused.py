"""Scoring and training after the encoder: the fused kernels beside the formulas as the network writes them.

Run with `python benchmarks/fused.py --device cuda`, on the machine of the claims (an H200): r = d_a = 256, 64 documents
of 500 words, 29,947 labels. Times are medians between CUDA events after warm-up. `--tiny` runs a small shape in
Triton's interpreter on a CPU and records nothing: a test of this script.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from record import record, row

GIB = 2**30
RUNS, FORMULA_RUNS = 20, 5


@dataclass(frozen=True)
class Shape:
    batch: int = 64
    n: int = 500
    k: int = 29_947
    r: int = 256
    checked: int = 2_000  # labels compared with float64

    def operations(self, products: int) -> int:
        """Count the operations of so many products of r features for every document, word and label."""
        return 2 * self.batch * self.n * self.k * self.r * products


def make_network(shape: Shape, device: str) -> tuple[Any, Any]:
    """Return the network of the paper and encoded documents, as far from uniform as a trained one's."""
    from laha.network.laha import Encoded, LAHANetwork

    torch.manual_seed(0)
    network = LAHANetwork(3, 2, shape.k, shape.r, shape.r, shape.r).to(device)
    torch.nn.init.normal_(network.self_attention.W_s2.weight, std=shape.r**-0.5)
    states = torch.tanh(torch.randn(shape.batch, shape.n, 2 * shape.r, device=device))
    mask = torch.ones(shape.batch, shape.n, dtype=torch.bool, device=device)
    return network, Encoded(states, mask)


@torch.no_grad()
def project(network: Any, states: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return the arguments of `fused_logits`: every projection applied, the attention still to do."""
    forward_states, backward_states = states.chunk(2, dim=-1)
    W_f, W_o, F1, F2 = network.prediction.W_f, network.prediction.W_o, network.fusion.F1, network.fusion.F2
    lengths = torch.full((len(states),), states.shape[1], dtype=torch.int32, device=states.device)
    K_S = torch.tanh(network.self_attention.W_s1(states))
    V = states @ W_f.weight.T
    g = states @ torch.cat([F1.weight, F2.weight]).T  # (batch, n, 2)
    Q_I = network.interaction_attention.W_q(network.interaction_attention.L.weight)
    words = [x.to(dtype).contiguous() for x in (K_S, forward_states + backward_states, V)]
    queries = [x.detach().to(dtype).contiguous() for x in (network.self_attention.W_s2.weight, Q_I)]
    return [*words, g, lengths, *queries, torch.cat([F1.bias, F2.bias]), W_f.bias, W_o.weight[0], W_o.bias]


def measure(work: Callable[[], Any], runs: int = RUNS) -> tuple[float, float]:
    """Return the median time in milliseconds, and the memory in GiB that the work takes beside what it is given."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return median(times), (torch.cuda.max_memory_allocated() - before) / GIB


def training(score: Callable[[], Tensor], inputs: list[Tensor], delta: Tensor) -> Callable[[], Any]:
    """Return the work of one step: forward, and the gradient of every input that wants one."""
    wanted = [x for x in inputs if x.requires_grad]
    return lambda: torch.autograd.grad(score(), wanted, delta)


def errors(shape: Shape, network: Any, encoded: Any, half: torch.dtype) -> dict[str, tuple[float, float]]:
    """Return the greatest and mean difference from float64 of some labels' logits, by the formulas and fused."""
    from laha.scoring.fused import fused_logits

    network, encoded = network.double(), encoded._replace(states=encoded.states.double())
    some = torch.arange(min(shape.checked, shape.k), device=encoded.states.device)
    documents = [encoded._replace(states=encoded.states[b : b + 1], mask=encoded.mask[b : b + 1]) for b in range(2)]
    exact = torch.cat([network.score(document, some) for document in documents])
    arguments = project(network, encoded.states[:2], half)
    arguments[5:7] = [Q[: len(some)].contiguous() for Q in arguments[5:7]]
    found = {"fused": fused_logits(*arguments)}
    network.to(half)
    found["formulas"] = torch.cat([network.score(d._replace(states=d.states.to(half)), some) for d in documents])
    network.float()
    gaps = {name: (logits.double() - exact).abs() for name, logits in found.items()}
    return {name: (gap.max().item(), gap.mean().item()) for name, gap in gaps.items()}


def formulas(shape: Shape, network: Any, encoded: Any, work: str) -> dict[str, tuple[float, float]]:
    """Measure the network as it is written: float32, tf32, bf16."""
    measured = {}
    for name, dtype, tf32 in (
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bf16", torch.bfloat16, False),
    ):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        network.to(dtype)
        states = encoded.states.to(dtype).requires_grad_(work == "training")
        given = encoded._replace(states=states)
        wanted = [states, *(p for name, p in network.named_parameters() if "encoder" not in name)]
        delta = torch.ones(shape.batch, shape.k, dtype=dtype, device=states.device) / shape.batch
        score = lambda given=given: network.score(given)  # noqa: E731
        try:
            if work == "training":
                measured[name] = measure(training(score, wanted, delta), FORMULA_RUNS)
            else:
                with torch.no_grad():
                    measured[name] = measure(score, FORMULA_RUNS)
        except torch.cuda.OutOfMemoryError:
            print(f"{work}: the formulas in {name} do not fit this device's memory")
        torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = False
    network.float()
    return measured


def print_choices() -> None:
    """Say what the autotuner chose for each kernel, and how long every choice took."""
    from laha.scoring import fused_backward, fused_forward

    for kernel in (
        fused_forward.forward_kernel,
        fused_backward.query_gradient_kernel,
        fused_backward.key_gradient_kernel,
        fused_backward.value_gradient_kernel,
    ):
        print(f"{kernel.base_fn.__name__}: {getattr(kernel, 'best_config', None)}")
        for choice, times in getattr(kernel, "configs_timings", {}).items():
            print(f"    {choice}: {times[0]:.2f} ms")


def run(shape: Shape) -> None:
    """Measure everything and record it."""
    from laha.scoring.fused import describable, fused_logits, hopper

    network, encoded = make_network(shape, "cuda")
    arguments = project(network, encoded.states, torch.bfloat16)
    plain = {work: formulas(shape, network, encoded, work) for work in ("forward", "training")}
    with torch.no_grad():
        forward, forward_memory = measure(lambda: fused_logits(*arguments))
    print(f"scored by the kernel for Hopper: {hopper(arguments[2])}; by descriptors: {describable(arguments[0])}")
    print_choices()
    for x in arguments:
        x.requires_grad_(x.is_floating_point())
    delta = torch.ones(shape.batch, shape.k, device="cuda") / shape.batch
    step, step_memory = measure(training(lambda: fused_logits(*arguments), arguments, delta))
    print_choices()
    print(f"forward: {shape.operations(4) / forward / 1e9:.0f} TFLOP/s")
    # of forward and backward: what the kernels multiply, attention computed again in each of them
    print(f"training: {shape.operations(4 + 6 + 6 + 4) / step / 1e9:.0f} TFLOP/s")
    with torch.no_grad():
        gap = errors(shape, network, encoded, torch.bfloat16)
    print(f"error (greatest, mean): {gap}")
    what = f"k={shape.k}, n={shape.n}, batch {shape.batch}, after the encoder, bf16"
    rows = []
    for work, time, memory, bars in (
        ("forward", forward, forward_memory, (6.5, 0.6)),
        ("training", step, step_memory, (40.0, 2.5)),
    ):
        for name in ("float32", "tf32", "bf16"):
            time_0, memory_0 = plain[work].get(name, (None, None))
            suffix = "" if name == "float32" else f"-{name}"
            claim = f"{work}, {what}; baseline: the formulas as written in {name}"
            rows.append(row(f"fused-{work}{suffix}", claim, time, "ms", bars[0], time <= bars[0], time_0, "lower"))
            claim = f"peak memory of {claim}"
            met = memory <= bars[1]
            rows.append(row(f"fused-{work}-memory{suffix}", claim, memory, "GiB", bars[1], met, memory_0, "lower"))
    for place, name in enumerate(("greatest", "mean")):
        ours, bar = gap["fused"][place], gap["formulas"][place]
        claim = f"{name} error of logits against float64, {what}; baseline and bar: the formulas in bf16"
        id = "fused-error" if name == "greatest" else "fused-error-mean"
        rows.append(row(id, claim, ours, "logit", bar, ours <= bar, bar, "lower"))
    record("fused", rows, torch.cuda.get_device_name())


def run_tiny() -> None:
    """Run projection, kernels and comparison at a small shape, in float32 and fp16, recording nothing."""
    os.environ["TRITON_INTERPRET"] = "1"
    from laha.scoring.fused import fused_logits

    shape = Shape(batch=2, n=20, k=30, r=32, checked=30)
    network, encoded = make_network(shape, "cpu")
    arguments = [x.requires_grad_(x.is_floating_point()) for x in project(network, encoded.states, torch.float32)]
    logits = fused_logits(*arguments)
    training(lambda: logits, arguments, torch.ones_like(logits))()
    print(f"greatest difference in float32: {(logits - network.score(encoded)).abs().max().item():.1e}")
    with torch.no_grad():
        # the interpreter multiplies no bf16
        print(f"error (greatest, mean): {errors(shape, network, encoded, torch.float16)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    if arguments.tiny:
        run_tiny()
    elif arguments.device == "cuda" and torch.cuda.is_available():
        run(Shape())
    else:
        print("This benchmark needs a CUDA GPU (--device cuda); --tiny tests the script without one.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
