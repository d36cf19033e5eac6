"""The CPU experts of laha-best on a prepared corpus: what each proposes of the valid and test part, kept in DIR.

    python experiments/best_experts.py PREPARED --out DIR [--experts neighbours,names,tree]

Writes DIR/NAME.npz an expert (ids and scores of 100 labels a document). The network's own come from a GPU
(experiments/best_network.py), and experiments/best_panel.py joins them, as `laha train --model laha-best` does on one
machine.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from laha.experts.label_names import LabelNames
from laha.experts.neighbours import Neighbours
from laha.experts.tree import Tree
from laha.prepared import Prepared
from laha.stems import Stems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--experts", default="neighbours,names,tree")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    prepared = Prepared.load(given.prepared, check=False)
    train = prepared.part("train")
    labels = prepared.labels[: prepared.known_labels]
    truth = train.labels[:, : len(labels)]
    stems = Stems(prepared.vocabulary)
    for name in given.experts.split(","):
        began = time.perf_counter()
        if name == "neighbours":
            expert = Neighbours.fit(stems, train.words, truth)
        elif name == "names":
            expert = LabelNames.fit(stems, labels, train.words, truth)
        else:
            expert = Tree.fit(stems, train.words, truth, labels, quick=name == "quick-tree")
        seconds, found = time.perf_counter() - began, {}
        for part in ("valid", "test"):
            ids, scores = expert.top(prepared.part(part).words)
            found |= {f"{part}_ids": ids.astype(np.int32), f"{part}_scores": scores}
        np.savez(given.out / f"{name}.npz", seconds=seconds, **found)
        print(
            f"{prepared.name}: {name} learned in {seconds:.0f} s, {time.perf_counter() - began:.0f} s in all",
            flush=True,
        )


if __name__ == "__main__":
    main()
