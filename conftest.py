"""What pytest must know before it collects: kernels' modules that cannot be imported everywhere."""

from importlib.util import find_spec

collect_ignore = ["src/laha/scoring/fused_hopper.py"]  # Gluon, which Triton's interpreter does not know
if not find_spec("triton"):
    collect_ignore += ["src/laha/scoring/fused_forward.py", "src/laha/scoring/fused_backward.py"]
