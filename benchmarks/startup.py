"""How long `laha --help` and `import laha` take, the interpreter's start included, beside `import torch`.

Run with `python benchmarks/startup.py`; each time is the median of seven.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from record import record, row

BAR = 0.4  # seconds: beyond it a command line feels slow
RUNS = 7


def seconds(*arguments: str) -> float:
    """Return the median time of a Python process, after one run that fills the disk cache."""
    times = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return median(times[1:])


def main() -> None:
    baseline = seconds("-c", "import torch")
    rows = []
    for id, name, arguments in (
        ("help", "laha --help", ("-m", "laha", "--help")),
        ("import", "import laha", ("-c", "import laha")),
    ):
        value = seconds(*arguments)
        claim = f"{name}, the interpreter's start included; baseline: import torch"
        rows.append(row(id, claim, value, "s", BAR, value < BAR, baseline, "lower"))
    record("startup", rows)


if __name__ == "__main__":
    main()
