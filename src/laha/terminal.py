"""What a person sees in the terminal: tables, heat maps and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from laha.progress import Progress, silent

if TYPE_CHECKING:
    from laha.explain import Explanation

SHOWN = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5", "PSP@1", "PSP@5", "R@5")


def row(metrics: dict[str, float]) -> list[str]:
    """Return the metrics shown in tables."""
    return [f"{metrics[name]:.2f}" if name in metrics else "–" for name in SHOWN]


def number(value: Any) -> str:
    """Write a count or an average for people."""
    return f"{value:,.2f}" if isinstance(value, float) else "–" if value is None else f"{value:,}"


def table(header: list[str], rows: list[list[str]], width: int | None = None) -> str:
    """Lay out a table, the first column to the left and the others to the right.

    One wider than `width` is folded: the columns that do not fit follow below, beside the first column again.

    >>> print(table(["", "P@1"], [["laha", "68.0"], ["by frequency", "5.0"]]))
                   P@1
    laha          68.0
    by frequency   5.0
    >>> print(table(["", "P@1", "P@5"], [["laha", "68.0", "33.3"]], width=12))
           P@1
    laha  68.0
    <BLANKLINE>
           P@5
    laha  33.3
    """
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    blocks = []
    for columns in folds(widths, width):
        lines = []
        for line in [header, *rows]:
            cells = [line[0].ljust(widths[0]), *(line[column].rjust(widths[column]) for column in columns)]
            lines.append("  ".join(cells).rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def folds(widths: list[int], width: int | None) -> list[list[int]]:
    """Return which columns stand together, the first beside each of them: as many as fit, and one at least.

    >>> folds([4, 5, 5, 5], 20), folds([4, 5, 5, 5], None)
    ([[1, 2], [3]], [[1, 2, 3]])
    """
    blocks: list[list[int]] = [[]]
    taken = widths[0]
    for column in range(1, len(widths)):
        if width is not None and blocks[-1] and taken + 2 + widths[column] > width:
            blocks.append([])
            taken = widths[0]
        blocks[-1].append(column)
        taken += 2 + widths[column]
    return blocks


def shares(experts: Mapping[str, float]) -> str:
    """Name the experts that speak for a label, the loudest first.

    >>> shares({"names": 0.25, "tree": 0.75, "lexical": 0.0})
    'tree 75%, names 25%'
    """
    loud = sorted(((share, name) for name, share in experts.items() if share >= 0.005), reverse=True)
    return ", ".join(f"{name} {share:.0%}" for share, name in loud) or "none"


def show_explanation(explanation: Explanation) -> None:
    """Write the text once for each label, its words the warmer the more they weigh."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    for label in explanation.labels:
        attentions = f"  (self {label.alpha:.0%}, interaction {label.beta:.0%})" if label.alpha + label.beta else ""
        line = f"{label.label}  {label.score:.3f}{attentions}"
        console.print(Text(line, style="bold"))
        if label.experts:
            console.print(Text(f"  evidence: {shares(label.experts)}", style="dim"))
        largest = max((word.fused for word in label.words), default=0.0) or 1.0
        shown = Text("  " + explanation.text)
        for word in label.words:
            heat = word.fused / largest
            if heat >= 0.05:
                shown.stylize(f"on rgb({int(70 + 150 * heat)},{int(50 + 40 * heat)},20)", word.start + 2, word.end + 2)
        console.print(shown)
        best = sorted(label.words, key=lambda word: -word.fused)[:6]
        console.print(Text("  words: " + ", ".join(f"{word.word} {word.fused:.2f}" for word in best), style="dim"))


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Draw progress on a terminal's stderr; stay silent in a pipe."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    text, bar = TextColumn("{task.description}"), BarColumn(bar_width=24)
    columns = (text, bar, TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    with Bars(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def show(task: str, done: float, note: str = "") -> None:
            if task not in tasks:
                tasks[task] = bars.add_task(task, total=1.0, note=note)
            if note:
                bars.update(tasks[task], note=note)
            bars.update(tasks[task], completed=done)

        yield show


def shortlist_line(facts: dict[str, Any] | None) -> str | None:
    """Say how long a model's shortlist is and what it holds; None for a model without one."""
    if not facts:
        return None
    line = f"{facts['labels']} labels, holding {100 * facts['recall@5']:.1f} % of the exact five best"
    if "exact P@5" in facts:
        line += f"; validation P@5 {facts['P@5']:.2f}, of every label {facts['exact P@5']:.2f}"
    return line
