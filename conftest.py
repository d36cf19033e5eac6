"""What pytest must know before it collects: the kernels' modules cannot be imported where Triton is not installed."""

from importlib.util import find_spec

kernels = ("forward", "backward", "hopper")
collect_ignore = [] if find_spec("triton") else [f"src/laha/scoring/fused_{way}.py" for way in kernels]
