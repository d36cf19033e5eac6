"""What the fused kernels cost a Hopper chip before any runs: registers, spills, shared memory; needs no GPU.

Run with `python benchmarks/fused_compile.py [--first]` (`--first`: only each kernel's first choice of blocks); prints a
table, or JSON with `--json`. Compiled for sm_90 at r = d_a = 256 in bf16, the shapes of the claims.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from laha.scoring import fused_hopper
from laha.scoring.fused_backward import key_gradient_kernel, query_gradient_kernel, value_gradient_kernel
from laha.scoring.fused_forward import DESCRIBED_WORDS, SUMS, forward_kernel

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
R = 256
HALF = {"Q", "Q_S", "Q_I", "K", "K_S", "K_I", "V", "G", "V_w", "W_o", "hidden", "aside"}
FLOAT = {"g", "c", "b_f", "w_o", "b_o", "logits", "statistics", "lse", "weights", "slopes", "offsets"}
FLOAT |= {"dQ", "dK", "dV", "dg"}
INTEGER = {"lengths", "signs", "unsure"}
SCORING = {"TRAINING": False, "OWN": False, "HIDDEN": False, "DESCRIBED": True, "SECOND": False}
TRAINING = {**SCORING, "TRAINING": True}
KERNELS = {
    "forward": (forward_kernel, SCORING),
    "forward, training": (forward_kernel, TRAINING),
    "query gradient": (query_gradient_kernel, {"OWN": False}),
    "key gradient": (key_gradient_kernel, {"OWN": False}),
    "value gradient": (value_gradient_kernel, {"OWN": False}),
    "forward, own outputs": (forward_kernel, {**SCORING, "OWN": True}),
    "forward, training, own outputs": (forward_kernel, {**TRAINING, "OWN": True, "HIDDEN": True}),
    "query gradient, own outputs": (query_gradient_kernel, {"OWN": True}),
    "key gradient, own outputs": (key_gradient_kernel, {"OWN": True}),
    "value gradient, own outputs": (value_gradient_kernel, {"OWN": True}),
    "forward, second": (forward_kernel, {**SCORING, "SECOND": True}),
    "forward for Hopper": (fused_hopper.hopper_kernel, {"OWN": False}),
    "forward for Hopper, own outputs": (fused_hopper.hopper_kernel, {"OWN": True}),
    "forward, without descriptors": (forward_kernel, {**SCORING, "DESCRIBED": False}),
}


def argument_type(name: str, described: dict[str, tuple[int, int]], gluon: bool) -> str:
    """Say what a kernel is given under a name; `described` as tiles of so many rows and columns."""
    if name in described:
        rows, columns = described[name]
        layout = gl.NVMMASharedLayout.get_default_for([rows, columns], gl.bfloat16)
        return f"tensordesc<bf16[{rows}, {columns}]{f',{layout!r}' if gluon else ''}>"
    return "*bf16" if name in HALF else "*fp32" if name in FLOAT else "*i32" if name in INTEGER else "i32"


def compile_kernel(kernel: Any, settings: dict[str, Any], choice: Any) -> dict[str, Any]:
    """Compile one choice of blocks and read from the machine code what it takes."""
    gluon = kernel is fused_hopper.hopper_kernel
    function = kernel if gluon else kernel.fn  # below the autotuner
    described = {}
    if gluon or settings.get("DESCRIBED"):
        words = fused_hopper.WORDS if gluon else DESCRIBED_WORDS
        described = {**dict.fromkeys(("K_S", "K_I", "V"), (words, R)), "G": (words, SUMS.value)}
    if gluon:
        described |= {"Q_S": (64, R), "Q_I": (64, R)}
        constants = {name: getattr(fused_hopper, name) for name in ("WORDS", "STAGES", "REGISTERS")}
    else:
        constants = {"PRECISION": "tf32", **choice.kwargs}
    constants |= {**settings, "R": R}
    types = {
        name: "constexpr" if name in constants else argument_type(name, described, gluon) for name in function.arg_names
    }
    # as at launch: pointers and strides are multiples of 16
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(function.arg_names)
        if types[name].startswith("*") or (name.endswith(("_document", "_stride")) and name != "g_stride")
    }
    compiled = triton.compile(
        (GluonASTSource if gluon else ASTSource)(function, types, constants, aligned),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": choice.num_warps, "num_stages": choice.num_stages},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = subprocess.check_output([TOOLS / "cuobjdump", "-res-usage", file.name], text=True)
        code = subprocess.check_output([TOOLS / "nvdisasm", file.name], text=True)
    instructions, spills = loop_spills(code)
    return {
        **choice.kwargs,
        "warps": choice.num_warps,
        "stages": choice.num_stages,
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "stack_bytes": int(re.search(r"STACK:(\d+)", usage)[1]),
        "loop_instructions": instructions,
        "loop_spills": spills,
        "shared_bytes": compiled.metadata.shared,
        "tensor_cores": code.count("HGMMA"),
    }


def loop_spills(code: str) -> tuple[int, int]:
    """Count the instructions, and those that spill, of the innermost loops that multiply on tensor cores."""
    lines = code.splitlines()
    labels = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"\s*(\.L_\w+):", line))}
    loops = []
    for i, line in enumerate(lines):
        m = re.search(r"\bBRA\b.*`\((\.L_\w+)\)", line)
        first = labels.get(m[1], i) if m else i
        if first < i and any("HGMMA" in inside for inside in lines[first:i]):
            loops.append((first, i))
    # what begins within a loop and ends behind it is no loop, but a branch that lies out of line and jumps back
    loops = [a for a in loops if not any(b[0] < a[0] < b[1] < a[1] for b in loops)]
    inner = [a for a in loops if not any(a != b and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    bodies = [line for first, last in inner for line in lines[first:last] if re.search(r"/\*[0-9a-f]{4,}\*/", line)]
    return len(bodies), sum(" STL" in line or " LDL" in line for line in bodies)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for name, (kernel, settings) in KERNELS.items():
        if kernel is fused_hopper.hopper_kernel:
            choices = [triton.Config({}, num_warps=4)]
        else:
            choices = kernel.configs[: 1 if settings.get("DESCRIBED") else -1]  # the last is float32's
        for choice in choices[:1] if arguments.first else choices:
            rows.append({"kernel": name, **compile_kernel(kernel, settings, choice)})
            if not arguments.json:
                print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
