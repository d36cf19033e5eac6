"""Print the tables of the READMEs from the result files: `python experiments/table.py [--peers | --trials | --write]`.

`--write` puts all three where they belong.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5")
PEER_COLUMNS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
RARE = "F<=5"
CRITERION = "nDCG@5"
OWN = ("workers",)  # settings of the machine, not of the model


def table(results: Path = RESULTS) -> str:
    """Return one Markdown row a corpus and model, with the 95 % interval of P@1."""
    lines = head("corpus", "model", *COLUMNS)
    for path in sorted(results.glob("*/*.json")):
        result = read(path)
        metrics = result["metrics"]
        cells = [f"{metrics[name]:.1f}" for name in COLUMNS]
        if "intervals" in metrics:
            low, high = metrics["intervals"]["P@1"]
            cells[0] += f" ({low:.1f}–{high:.1f})"
        lines.append(row(result["corpus"], result["model"], *cells))
    return "\n".join(lines)


def peers(results: Path = RESULTS) -> str:
    """Return one row a corpus and peer on test; bold the one that was best on the valid part."""
    lines = head("corpus", "peer", "settings", *PEER_COLUMNS, f"P@5 of {RARE}", f"valid {CRITERION}")
    for folder in sorted(results.iterdir()):
        found = [read(path) for path in sorted(folder.glob("peer-*.json"))]
        scores = [validation(folder, result) for result in found]
        for result, score in zip(found, scores, strict=True):
            metrics = result["metrics"]
            cells = [f"{metrics[name]:.1f}" for name in PEER_COLUMNS]
            cells += [f"{metrics['groups'][RARE]['P@5']:.1f}", f"{score:.2f}"]
            name = f"**{result['model']}**" if score == max(scores) else result["model"]
            lines.append(row(result["corpus"], name, settings(result), *cells))
    return "\n".join(lines)


def trials(results: Path = RESULTS) -> str:
    """Return one row a corpus and peer: what each trial reached on the valid part."""
    lines = head("corpus", "peer", f"valid {CRITERION} by settings")
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(results.glob("*/trials/peer-*.json")):
        result = read(path)
        grouped[result["corpus"], result["model"]].append(result)
    for (corpus, model), found in grouped.items():
        best = max(result["metrics"][CRITERION] for result in found)
        cells = []
        for result in sorted(found, key=lambda result: -result["metrics"][CRITERION]):
            score = f"{result['metrics'][CRITERION]:.2f}"
            cells.append(f"{settings(result)} {f'**{score}**' if result['metrics'][CRITERION] == best else score}")
        lines.append(row(corpus, model, " · ".join(cells)))
    return "\n".join(lines)


def validation(folder: Path, result: dict[str, Any]) -> float:
    """Return what the trial behind a peer's result reached on the valid part."""
    found = [read(path) for path in folder.glob("trials/peer-*.json")]
    same = [other for other in found if (other["model"], other["config"]) == (result["model"], result["config"])]
    return float(same[0]["metrics"][CRITERION])


def settings(result: dict[str, Any]) -> str:
    """Return the settings that a training was given, as it was given them."""
    words = result["command"].split(" && ")[0].split()
    given = [value for flag, value in pairwise(words) if flag == "--set"]
    return " ".join(value for value in given if value.partition("=")[0] not in OWN) or "defaults"


def head(*names: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [row(*names), "|---" * len(names) + "|"]


def row(*cells: str) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def read(path: Path) -> dict[str, Any]:
    """Read a result file."""
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def put(made: str, place: Path) -> None:
    """Replace the table of the same header in a file."""
    lines = place.read_text(encoding="utf-8").split("\n")
    start = lines.index(made.split("\n")[0])
    stop = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    place.write_text("\n".join([*lines[:start], made, *lines[stop:]]), encoding="utf-8")


def write() -> str:
    """Put every table into its README."""
    here = Path(__file__).parent
    put(table(), here.parent / "README.md")
    for made in (peers(), trials()):
        put(made, here / "README.md")
    return "README.md and experiments/README.md hold the tables of the result files"


if __name__ == "__main__":
    print({"--peers": peers, "--trials": trials, "--write": write}.get(sys.argv[-1], table)())
