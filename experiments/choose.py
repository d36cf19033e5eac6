"""Take trainings up into the results: of each model and corpus the one with the best validation nDCG@5 wins.

    python experiments/choose.py FOLDER [--results experiments/results]

FOLDER holds NAME.results/CORPUS/MODEL-SEED.json, as `laha evaluate --record FOLDER/NAME.results` leaves them, or is a
.tgz of such. The winner becomes RESULTS/CORPUS/MODEL-SEED.json; the others go to RESULTS/CORPUS/trials/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path

CRITERION = "nDCG@5"


def choose(folder: Path, results: Path) -> list[str]:
    """Copy every result to where it belongs; return a line for each."""
    found: dict[tuple[str, str], list[tuple[float, str, Path]]] = defaultdict(list)
    for path in sorted(folder.glob("*.results/*/*.json")):
        score = json.loads(path.read_text(encoding="utf-8"))["validation"][CRITERION]
        name = path.parents[1].name.removesuffix(".results")
        found[path.parent.name, path.name].append((score, name, path))
    lines = []
    for (corpus, file), trials in found.items():
        best = max(trials)
        for trial in sorted(trials, reverse=True):
            score, name, path = trial
            place = results / corpus / (file if trial is best else f"trials/{name}.json")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            lines.append(f"{corpus} {name}: validation {CRITERION} {score:.2f} -> {place.relative_to(results)}")
    return lines


def main() -> None:
    """Read the command line, unpack where needed, and print what went where."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    if given.folder.is_dir():
        print("\n".join(choose(given.folder, given.results)))
        return
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(given.folder) as archive:
            archive.extractall(place, filter="data")
        print("\n".join(choose(Path(place), given.results)))


if __name__ == "__main__":
    main()
