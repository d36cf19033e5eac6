"""How fast, and in how much memory, second-order walks over a label graph are made, against a plain loop.

`python benchmarks/label_walks.py`; the part on real labels wants LAHA_DATA, a folder with the corpus yso-titles-min3.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from laha.label_graph import co_occurrence
from laha.label_vectors import train_label_vectors, walks
from record import record, row

P, Q, LENGTH, WALKS_PER_LABEL = 0.5, 2.0, 40, 10
SAMPLE = 200  # walks of the plain loop, from which the cost of a step is taken
CORPUS = "yso-titles-min3"


def synthetic_graph(labels: int = 30_000, edges: int = 900_000) -> csr_matrix:
    """A graph of heavy-tailed degrees and weights; a ring through all labels leaves none without an edge."""
    random = np.random.default_rng(0)
    chance = (np.arange(labels) + 20.0) ** -0.6
    ends = random.choice(labels, size=(2, int(1.02 * edges)), p=chance / chance.sum())
    ring = np.stack([np.arange(labels), (np.arange(labels) + 1) % labels])
    pairs = np.unique(np.sort(np.hstack([ring, ends[:, ends[0] != ends[1]]]), axis=0), axis=1)
    weight = np.minimum(random.zipf(2.0, pairs.shape[1]), 1000)
    half = csr_matrix((weight, pairs), shape=(labels, labels))
    return csr_matrix(half + half.T)


def read_labels() -> csr_matrix:
    """The label sets of the train part: documents × labels."""
    ids: dict[str, int] = {}
    indices: list[int] = []
    ends = [0]
    with gzip.open(Path(os.environ["LAHA_DATA"]) / CORPUS / "train.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            indices += [ids.setdefault(name, len(ids)) for name in json.loads(line)["labels"]]
            ends.append(len(indices))
    return csr_matrix((np.ones(len(indices), dtype=np.int8), indices, ends), shape=(len(ends) - 1, len(ids)))


def plain_walk(graph: csr_matrix, start: int, random: np.random.Generator) -> list[int]:
    """One walk by the definition: at every step the probabilities of all neighbours."""
    path = [start]
    while len(path) < LENGTH:
        row_ = slice(graph.indptr[path[-1]], graph.indptr[path[-1] + 1])
        neighbours, weight = graph.indices[row_], graph.data[row_].astype(np.float64)
        if len(path) > 1:
            before = path[-2]
            joined = np.isin(neighbours, graph.indices[graph.indptr[before] : graph.indptr[before + 1]])
            weight *= np.where(neighbours == before, 1 / P, np.where(joined, 1, 1 / Q))
        total = np.cumsum(weight)
        path.append(int(neighbours[np.searchsorted(total, random.random() * total[-1], side="right")]))
    return path


def measure_walks(graph_of: str) -> dict[str, float]:
    """Build a graph, walk it, then walk a sample of it plainly; the seconds are the process's CPU time."""
    labels = None if graph_of == "synthetic" else read_labels()
    graph = synthetic_graph() if labels is None else None
    began = time.process_time()
    if labels is not None:
        graph = co_occurrence(labels, clique_limit=labels.shape[1]) if graph_of == "full" else co_occurrence(labels)
    built = time.process_time()
    made = sum(len(batch) for batch in walks(graph, WALKS_PER_LABEL, LENGTH, P, Q))
    walked = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    random = np.random.default_rng(0)
    for start in random.choice(np.flatnonzero(np.diff(graph.indptr)), SAMPLE):
        plain_walk(graph, int(start), random)
    plain = (time.process_time() - walked) / SAMPLE * made
    return {
        "labels": graph.shape[0],
        "edges": graph.nnz // 2,
        "seconds": walked - began,
        "plain": built - began + plain,
        "gibibytes": peak,
    }


def measure_skip_gram() -> dict[str, float]:
    """Train the vectors, and take the time after the last walk."""
    walked = [0.0]

    def watch(stage: str, done: float) -> None:
        if stage == "walks":
            walked[0] = time.process_time()

    train_label_vectors(
        co_occurrence(read_labels()), walks_per_label=WALKS_PER_LABEL, length=LENGTH, p=P, q=Q, progress=watch
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": time.process_time() - walked[0], "gibibytes": peak}


def alone(function: Any, *arguments: str) -> Any:
    """Run a measurement in a process of its own, so that its peak memory is its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def rows_of(id: str, what: str, seconds_bar: float, measured: dict[str, float]) -> list[dict[str, Any]]:
    size = f"{measured['labels']:,} labels, {measured['edges']:,} edges, p = {P}, q = {Q}"
    claim = f"{what}, {WALKS_PER_LABEL} walks of {LENGTH} a label: {size}"
    seconds, memory = measured["seconds"], measured["gibibytes"]
    return [
        row(id, claim, seconds, "CPU-seconds", seconds_bar, seconds < seconds_bar, measured["plain"], "lower"),
        row(f"{id}-memory", f"peak memory: {claim}", memory, "GiB", 4, memory < 4, None, "lower"),
    ]


def main() -> None:
    rows = rows_of("walks-30k", "walks over a synthetic graph", 60, alone(measure_walks, "synthetic"))
    if "LAHA_DATA" in os.environ:
        full, bounded = (alone(measure_walks, kind) for kind in ("full", "bounded"))
        rows += rows_of("walks-yso", f"graph of full cliques of {CORPUS} and its walks", 240, full)
        rows += rows_of("walks-yso-bounded", f"graph of bounded cliques of {CORPUS} and its walks", 240, bounded)
        vectors = alone(measure_skip_gram)
        seconds, memory = vectors["seconds"], vectors["gibibytes"]
        claim = f"skip-gram of 256 dimensions over the walks of bounded cliques of {CORPUS}"
        rows.append(row("skip-gram-yso", claim, seconds, "CPU-seconds", 240, seconds < 240, None, "lower"))
        rows.append(row("skip-gram-yso-memory", f"peak memory: {claim}", memory, "GiB", 4, memory < 4, None, "lower"))
    else:
        print(f"walks-yso: skipped; set LAHA_DATA to a folder that holds {CORPUS}")
    record("label_walks", rows)


if __name__ == "__main__":
    main()
