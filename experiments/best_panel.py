"""Join the experts of laha-best that were run apart, on a CPU and on a GPU, and measure what they say together.

    python experiments/best_panel.py PREPARED DIR … --experts neighbours,names,tree,attention [--record RESULTS]

Reads DIR/NAME.npz as experiments/best_experts.py and experiments/best_network.py write them. Without --record it says
only how good the joint ranking is on validation documents that its fusion did not learn from (two halves, crosswise):
what choices are made by. With --record the fusion learns from all of them, and the test part is measured and written to
RESULTS/CORPUS/[--below/]NAME-0.json.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, vstack

from laha.calibration import calibration_error
from laha.evaluation import evaluate
from laha.experts.panel import GIVEN, Panel
from laha.experts.proposals import Proposals, best_of
from laha.metrics import RankingMetrics, is_true, top_labels
from laha.prepared import Prepared
from laha.results import versions
from laha.storage import atomic_file

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")


class Kept:
    """The scores of one part, handed out in order, as evaluation asks for them."""

    def __init__(self, prepared: Prepared, scores: csr_matrix):
        self.labels_ = prepared.labels[: scores.shape[1]]
        self.train_documents_ = len(prepared.part("train"))
        self.scores, self.at = scores, 0

    def predict_scores(self, words: Any) -> csr_matrix:
        self.at += len(words)
        return self.scores[self.at - len(words) : self.at]


def read(folders: list[Path], names: list[str], part: str) -> dict[str, Proposals]:
    """Return what each expert proposed of a part, from the first of the folders that has it."""
    found = {}
    for name in names:
        path = next(folder / f"{name}.npz" for folder in folders if (folder / f"{name}.npz").is_file())
        with np.load(path) as arrays:
            ids = arrays[f"{part}_ids"].astype(np.int64)
            ids[ids == 65535] = -1
            found[name] = Proposals(ids, arrays[f"{part}_scores"].astype(np.float32))
    return found


def rows(proposals: dict[str, Proposals], chosen: np.ndarray) -> dict[str, Proposals]:
    return {name: Proposals(each.ids[chosen], each.scores[chosen]) for name, each in proposals.items()}


def weigh(panel: Panel, proposals: dict[str, Proposals]) -> csr_matrix:
    count = len(next(iter(proposals.values())).ids)
    parts = [panel.weigh(rows(proposals, np.arange(a, min(a + 256, count)))) for a in range(0, count, 256)]
    return csr_matrix(vstack(parts, format="csr"))


def given_error(scores: csr_matrix, truth: csr_matrix) -> float:
    """Return the expected calibration error of the five best labels of each document."""
    best = best_of(scores, GIVEN)
    kept = (best.ids >= 0) & (np.diff(truth.indptr) > 0)[:, None]
    return calibration_error(best.scores[kept], is_true(best.ids, truth)[kept])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prepared", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--experts", required=True)
    parser.add_argument("--seen-only", action="store_true", help="propose only labels that some training document has")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--below", default="", help="a subfolder of the corpus's results")
    parser.add_argument("--name", default="laha-best")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    names = given.experts.split(",")
    prepared = Prepared.load(given.prepared, check=False)
    labels = prepared.train_labels if given.seen_only else prepared.known_labels
    frequency = np.array([label.frequency for label in prepared.labels[:labels]])
    documents = len(prepared.part("train"))
    valid = read(given.folders, names, "valid")
    if given.seen_only:
        valid = {name: Proposals(np.where(e.ids < labels, e.ids, -1), e.scores) for name, e in valid.items()}
    truth = prepared.part("valid").labels
    if given.record is None:
        half = np.random.default_rng(given.seed).permutation(truth.shape[0]) % 2
        metrics, gaps = RankingMetrics(frequency, documents), []
        for side in (0, 1):
            inside, outside = np.flatnonzero(half == side), np.flatnonzero(half != side)
            panel, facts = Panel.fit(rows(valid, outside), truth[outside], frequency, documents, given.seed)
            scores = weigh(panel, rows(valid, inside))
            metrics.add(top_labels(scores, 5), truth[inside])
            gaps.append(given_error(scores, csr_matrix(truth[inside])))
        found = metrics.metrics()
        for name, alone in facts["alone"].items():
            print(f"  {name}: " + ", ".join(f"{key} {value:.2f}" for key, value in alone.items()))
        print(f"{prepared.name} valid, crosswise: " + ", ".join(f"{key} {found[key]:.2f}" for key in SHOWN), end="; ")
        print(f"calibration error {np.mean(gaps):.4f}; adaptive {facts['adaptive']}; {','.join(names)}", flush=True)
        return
    began = time.perf_counter()
    panel, facts = Panel.fit(valid, truth, frequency, documents, given.seed)
    seconds = time.perf_counter() - began
    test = read(given.folders, names, "test")
    if given.seen_only:
        test = {name: Proposals(np.where(e.ids < labels, e.ids, -1), e.scores) for name, e in test.items()}
    scores = weigh(panel, test)
    report = evaluate(Kept(prepared, scores), prepared, intervals=True)
    sources = [json.loads(path.read_text()) for folder in given.folders for path in sorted(folder.glob("*.json"))]
    result = {
        "corpus": prepared.name,
        "corpus_sha256": prepared.part("test").sha256,
        "split": "test",
        "model": given.name,
        "config": {"preset": "best", "experts": names},
        "seed": given.seed,
        "device": next((s["device"] for s in sources if "device" in s), "cpu"),
        "versions": versions(),
        "command": shlex.join(["python", *sys.argv]),
        "sources": sources,
        "train_seconds": None,
        "fusion_seconds": seconds,
        "validation": facts["together"],
        "experts": facts["alone"],
        "calibration_error": given_error(scores, csr_matrix(prepared.part("test").labels)),
        "peak_memory_bytes": None,
        "milliseconds_per_document": None,
        "model_bytes": None,
        "metrics": report.as_json(),
    }
    path = given.record / prepared.name / given.below / f"{given.name}-{given.seed}.json"
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shown = report.as_json()
    print(f"{prepared.name} test: " + ", ".join(f"{key} {shown[key]:.2f}" for key in SHOWN), end="; ")
    print(
        f"F<=5 P@5 {shown['groups']['F<=5']['P@5']:.2f}; calibration error {result['calibration_error']:.4f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
