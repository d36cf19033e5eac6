"""Print the README's table of results from the result files: `python experiments/table.py`."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5")


def table(results: Path = RESULTS) -> str:
    """Return one Markdown row a corpus and model, with the 95 % interval of P@1."""
    lines = ["| corpus | model | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 2) + "|"]
    for path in sorted(results.glob("*/*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        metrics = result["metrics"]
        cells = [f"{metrics[name]:.1f}" for name in COLUMNS]
        if "intervals" in metrics:
            low, high = metrics["intervals"]["P@1"]
            cells[0] += f" ({low:.1f}–{high:.1f})"
        lines.append(f"| {result['corpus']} | {result['model']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
