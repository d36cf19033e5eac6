"""What a comparison shows: a Markdown table, the same as JSON, and bar plots."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from laha.storage import atomic_file

METRICS = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
# heading, key in a row, unit in terms of the key's, digits
COSTS = (
    ("training s", "train_seconds", 1.0, 1),
    ("peak GiB", "peak_memory_bytes", 2.0**30, 2),
    ("ms/document, batch", "milliseconds_per_document", 1.0, 2),
    ("ms/document, single", "milliseconds_single", 1.0, 2),
    ("model MB", "model_bytes", 1e6, 1),
)
HEADER = ["model", *METRICS, *(heading for heading, *_ in COSTS)]


def cells(row: dict[str, Any]) -> list[str]:
    """Return a model's line of the table; a dash where nothing was measured.

    >>> cells({"model": "popular", "metrics": {"P@1": 5.04}, "train_seconds": 0.5})[:3]
    ['popular', '5.0', '–']
    """
    if "failed" in row:
        return [row["model"], *["–"] * (len(HEADER) - 1)]
    quality = [row["metrics"].get(name) for name in METRICS]
    shown = ["–" if value is None else f"{value:.1f}" for value in quality]
    for _, key, unit, digits in COSTS:
        value = row.get(key)
        shown.append("–" if value is None else f"{value / unit:.{digits}f}")
    return [row["model"], *shown]


def markdown(rows: Sequence[dict[str, Any]], corpus: str) -> str:
    """Lay out the table as Markdown, the reasons of failed models below it."""
    lines = [f"# Models on {corpus}", "", "Metrics in percent, on the test part. A dash: not measured.", ""]
    lines += ["| " + " | ".join(HEADER) + " |", "|---" + "|---:" * (len(HEADER) - 1) + "|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    failed = [f"- {row['model']} failed: {row['failed']}" for row in rows if "failed" in row]
    return "\n".join([*lines, *([""] if failed else []), *failed]) + "\n"


def write_report(rows: Sequence[dict[str, Any]], corpus: str, out: Path) -> None:
    """Write comparison.md and comparison.json."""
    with atomic_file(out / "comparison.md") as temporary:
        temporary.write_text(markdown(rows, corpus), encoding="utf-8")
    with atomic_file(out / "comparison.json") as temporary:
        document = {"corpus": corpus, "models": list(rows)}
        temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def draw_plots(rows: Sequence[dict[str, Any]], corpus: str, out: Path) -> list[Path]:
    """Draw the quality and the costs of the models that finished; return nothing where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return []
    done = [row for row in rows if "failed" not in row]
    if not done:
        return []
    names = [row["model"] for row in done]

    def canvas(panels: int) -> tuple[Any, list[Any]]:
        figure = Figure(figsize=(3.2 * panels, 1.2 + 0.35 * len(names)), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, list(figure.subplots(1, panels, sharey=True, squeeze=False)[0])

    quality, axes = canvas(4)
    for axis, metric in zip(axes, ("P@1", "P@5", "nDCG@5", "PSP@5"), strict=True):
        draw_bars(axis, names, [row["metrics"].get(metric) for row in done], f"{metric} (%)", "{:.1f}")
    measured = [cost for cost in COSTS if any(row.get(cost[1]) is not None for row in done)]
    costs, axes = canvas(max(1, len(measured)))
    for axis, (heading, key, unit, digits) in zip(axes, measured, strict=False):
        found = [row.get(key) for row in done]
        values = [None if value is None else value / unit for value in found]
        draw_bars(axis, names, values, heading, f"{{:.{digits}f}}")
        axis.set_xscale("symlog", linthresh=10.0**-digits)  # costs differ by orders of magnitude, and some are 0
    written = []
    for figure, name in ((quality, "quality"), (costs, "costs")):
        figure.suptitle(corpus)
        with atomic_file(out / f"{name}.png") as temporary:
            figure.savefig(temporary, format="png", dpi=120)
        written.append(out / f"{name}.png")
    return written


def draw_bars(axis: Any, names: Sequence[str], values: Sequence[float | None], title: str, form: str) -> None:
    """Draw a bar a model, the first on top, its value beside it; none where nothing was measured."""
    measured = {place: value for place, value in enumerate(values) if value is not None}
    bars = axis.barh(list(measured), list(measured.values()), color="#4477aa")
    axis.bar_label(bars, labels=[form.format(value) for value in measured.values()], padding=2, fontsize=8)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.margins(x=0.25)
    axis.set_title(title, fontsize=9)
