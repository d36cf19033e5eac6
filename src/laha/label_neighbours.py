"""The neighbours of each label in the label graph: the few it shares most documents with, kept with the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.errors import ModelError
from laha.label_graph import co_occurrence
from laha.storage import read_tensors, write_tensors

FILE = "neighbours.safetensors"
KEPT = 10  # neighbours a label: what a person looks at
ROWS = 10_000  # labels sorted at once: bounds memory where the graph is dense


@dataclass(frozen=True)
class LabelNeighbours:
    """For each label the labels it shares most documents with, most first; id -1 where it has fewer.

    >>> documents = csr_matrix([[1, 1, 0], [1, 1, 1]])
    >>> LabelNeighbours.of_documents(documents, kept=2).of(0)
    [(1, 2), (2, 1)]
    """

    ids: NDArray[np.int32]  # (labels, kept)
    documents: NDArray[np.int32]  # (labels, kept): how many the two share

    @classmethod
    def of_documents(
        cls, labels: csr_matrix, clique_limit: int = 128, seed: int = 0, kept: int = KEPT
    ) -> LabelNeighbours:
        """Find the neighbours in the label graph of documents × labels."""
        graph = co_occurrence(labels, clique_limit, seed)
        ids = np.full((graph.shape[0], kept), -1, np.int32)
        documents = np.zeros((graph.shape[0], kept), np.int32)
        for start in range(0, graph.shape[0], ROWS):
            rows = graph[start : start + ROWS]
            row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
            order = np.lexsort((rows.indices, -rows.data, row))  # equal weights by id, so that bytes repeat
            place = np.arange(len(row)) - rows.indptr[row]  # of an edge among its label's, most shared first
            best = place < kept
            ids[start + row[best], place[best]] = rows.indices[order][best]
            documents[start + row[best], place[best]] = rows.data[order][best]
        return cls(ids, documents)

    def of(self, label: int) -> list[tuple[int, int]]:
        """Return a label's neighbours, each with the number of documents shared."""
        pairs = zip(self.ids[label].tolist(), self.documents[label].tolist(), strict=True)
        return [(neighbour, shared) for neighbour, shared in pairs if neighbour >= 0]

    def save(self, folder: Path) -> None:
        """Write them into a model folder."""
        write_tensors(folder / FILE, {"ids": self.ids, "documents": self.documents})

    @classmethod
    def load(cls, folder: Path, labels: int) -> LabelNeighbours | None:
        """Read them from a model folder; None where it was written without."""
        if not (folder / FILE).is_file():
            return None
        tensors = read_tensors(folder / FILE)[0]
        ids, documents = tensors.get("ids"), tensors.get("documents")
        if ids is None or documents is None or len(ids) != labels or ids.shape != documents.shape:
            raise ModelError(f"{folder / FILE} is damaged: restore it from a copy")
        if ids.size and not (ids.min() >= -1 and ids.max() < labels):
            raise ModelError(f"{folder / FILE} names labels that the model lacks: restore it from a copy")
        return cls(ids, documents)
