"""Write a benchmark's rows where the report finds them: benchmarks/results/NAME.json."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def row(
    id: str,
    claim: str,
    value: float,
    unit: str,
    bar: float | None,
    met: bool | None,
    baseline: float | None,
    better: str,
) -> dict[str, Any]:
    """One claim, or with no bar one figure.

    `ratio` says how many times better it is than the baseline (`better` is "lower" or "higher").
    """
    ratio = None if baseline is None else (baseline / value if better == "lower" else value / baseline)
    return {
        "id": id,
        "claim": claim,
        "value": value,
        "unit": unit,
        "baseline": baseline,
        "ratio": ratio,
        "bar": bar,
        "met": met,
    }


def record(name: str, rows: list[dict[str, Any]], device: str = "cpu", results: Path = RESULTS) -> Path:
    """Write the rows of one benchmark and print them."""
    packages = ("numpy", "scipy", "torch", "gensim")
    document = {
        "benchmark": name,
        "device": f"{device} ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages if installed(p)}},
        "command": "python " + " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "rows": rows,
    }
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{name}.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for r in rows:
        ratio = "" if r["ratio"] is None else f", {r['ratio']:.1f} x the baseline"
        bar = "no bar" if r["bar"] is None else f"bar {r['bar']:g}: {'met' if r['met'] else 'MISSED'}"
        print(f"{r['id']}: {r['value']:.4g} {r['unit']} ({bar}{ratio})")
    return path


def installed(package: str) -> bool:
    try:
        version(package)
    except ImportError:
        return False
    return True
