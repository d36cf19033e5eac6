"""Train the peers on a corpus with a few settings each, measured on its valid part; test the best of each.

    python experiments/peers.py CORPUS [--model peer:omikuji …] [--trials default …]

writes experiments/results/CORPUS/peer-*-0.json (test) and CORPUS/trials/peer-*.json (valid). A trial whose file is
there is not run again.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
RUNS = Path("runs/peers")
CRITERION = "nDCG@5"
SMALL = 5_000  # labels up to which a classifier a label is tried
BONSAI = ["children=100", "balanced=false", "depth=3"]
TRIALS = {
    "peer:omikuji": {
        "default": [],
        "cost-0.3": ["cost=0.3"],
        "cost-3": ["cost=3"],
        "bonsai": BONSAI,
        "bonsai-cost-0.3": [*BONSAI, "cost=0.3"],
        "attentionxml-like": ["collapse=5"],
    },
    "peer:libpecos": {
        "default": [],
        "cost-0.3": ["cost=0.3"],
        "cost-3": ["cost=3"],
        "induce": ["relevance=induce"],
        "man": ["negatives=tfn+man"],
        "fine": ["prune=0.01", "beam=50"],
        "leaf-20": ["leaf=20"],
    },
    "peer:napkinxc": {
        "default": [],
        "cost-3": ["cost=3"],
        "cost-30": ["cost=30"],
        "hinge-3-trees": ["loss=l2", "cost=1", "trees=3"],
        "log-3-trees": ["trees=3"],
    },
}
ONE_VS_REST = {"ovr": ["kind=ovr"], "ovr-hinge": ["kind=ovr", "loss=l2", "cost=1"]}


def main() -> None:
    """Run the trials of each model, then test the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--model", nargs="+", choices=list(TRIALS), default=list(TRIALS))
    parser.add_argument("--trials", nargs="+", help="only these trials of each model")
    parser.add_argument("--before", default="", help="a command put before each training and evaluation")
    parser.add_argument("--labels", type=int, default=0, help="of the corpus: few enough, and one-vs-rest is tried")
    given = parser.parse_args()
    before = shlex.split(given.before)
    for model in given.model:
        trials = dict(TRIALS[model])
        if model == "peer:napkinxc" and 0 < given.labels <= SMALL:
            trials |= ONE_VS_REST
        trials = {name: trials[name] for name in given.trials or trials if name in trials}
        scores = {name: trial(before, given.corpus, model, name, settings) for name, settings in trials.items()}
        best = max(scores, key=lambda name: scores[name])
        finish(before, given.corpus, model, best, trials[best])


def trial(before: list[str], corpus: str, model: str, name: str, settings: list[str]) -> float:
    """Train once and measure on the valid part; return the criterion."""
    kept = RESULTS / corpus / "trials" / f"{file_name(model)}-{name}.json"
    if not kept.is_file():
        out = train(before, corpus, model, name, settings)
        laha(before, "evaluate", str(out), corpus, "--part", "valid", "--record", str(out) + ".valid")
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(next(Path(str(out) + ".valid").glob("*/*.json")), kept)
    return float(json.loads(kept.read_text(encoding="utf-8"))["metrics"][CRITERION])


def train(before: list[str], corpus: str, model: str, name: str, settings: list[str]) -> Path:
    """Train into the folder of this trial."""
    out = RUNS / corpus / f"{file_name(model)}-{name}"
    pairs = [part for pair in ["workers=1", *settings] for part in ("--set", pair)]
    laha(before, "train", corpus, "--out", str(out), "--model", model, "--shared-machine", *pairs)
    return out


def finish(before: list[str], corpus: str, model: str, name: str, settings: list[str]) -> None:
    """Test the trial that was best on the valid part."""
    out = RUNS / corpus / f"{file_name(model)}-{name}"
    result = RESULTS / corpus / f"{file_name(model)}-0.json"
    if result.is_file() and str(out) in json.loads(result.read_text(encoding="utf-8"))["command"].split():
        return
    if not out.is_dir():
        train(before, corpus, model, name, settings)
    laha(before, "evaluate", str(out), corpus, "--intervals", "--record", str(RESULTS))


def file_name(model: str) -> str:
    """Name files after a model."""
    return model.replace(":", "-")


def laha(before: list[str], *arguments: str) -> None:
    """Run the program."""
    subprocess.run([*before, sys.executable, "-m", "laha", *arguments], check=True)


if __name__ == "__main__":
    main()
