"""Proposals: what an expert says of documents, and the one shape in which every expert says it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.vocabulary import WordIds

DEPTH = 100  # labels that an expert proposes of a document, at most


class Proposals(NamedTuple):
    """Each document's best labels by one expert, best first; id -1 where it proposes fewer."""

    ids: NDArray[np.int64]  # (documents, depth)
    scores: NDArray[np.float32]  # (documents, depth), any real numbers: the fusion learns what they mean


class Expert(Protocol):
    """Evidence of one kind."""

    def top(self, words: WordIds, depth: int = DEPTH) -> Proposals:
        """Return the best labels of documents."""

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, to be saved."""


def entries(matrix: csr_matrix, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float32]:
    """Return the entries of a sparse matrix at the given places, no place included.

    >>> entries(csr_matrix([[0.0, 0.5]]), np.array([0, 0]), np.array([1, 0])).tolist()
    [0.5, 0.0]
    """
    if not len(rows):  # scipy returns a matrix then
        return np.zeros(0, np.float32)
    return np.asarray(matrix[rows, columns], dtype=np.float32).ravel()


def best_of(scores: csr_matrix, depth: int) -> Proposals:
    """Return the best stored entries of each row, ties by label.

    >>> best_of(csr_matrix([[0.0, 0.3, 0.9], [0.0, 0.0, 0.1]]), 2)
    Proposals(ids=array([[ 2,  1],
           [ 2, -1]]), scores=array([[0.9, 0.3],
           [0.1, 0. ]], dtype=float32))
    """
    rows = np.repeat(np.arange(scores.shape[0]), np.diff(scores.indptr))
    return best_pairs(rows, scores.indices, scores.data, scores.shape[0], depth)


def best_pairs(
    documents: NDArray[Any], labels: NDArray[Any], scores: NDArray[Any], count: int, depth: int
) -> Proposals:
    """Return the best labels of each of `count` documents from (document, label, score) in any order."""
    order = np.lexsort((labels, -scores, documents))
    documents, labels, scores = documents[order], labels[order], scores[order]
    rank = np.arange(len(documents)) - np.searchsorted(documents, documents)
    kept = rank < depth
    ids = np.full((count, depth), -1, np.int64)
    best = np.zeros((count, depth), np.float32)
    ids[documents[kept], rank[kept]] = labels[kept]
    best[documents[kept], rank[kept]] = scores[kept]
    return Proposals(ids, best)
