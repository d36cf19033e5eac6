"""The label graph: labels are nodes, an edge joins two that share documents, its weight is the number of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, csr_matrix, diags

from laha.errors import ConfigurationError

EDGES = 1 << 22  # the most edges held beside the graph while long documents are added: 48 MiB


def co_occurrence(labels: csr_matrix, clique_limit: int = 128, seed: int = 0) -> csr_matrix:
    """Count the documents each two labels share: symmetric, zero diagonal, int32 weights.

    `labels` is documents × labels. A document of m labels would join m(m - 1)/2 pairs, millions for the few documents
    with thousands of labels. One with more than `clique_limit` labels joins m · clique_limit/2 pairs instead: its
    labels are put in a random circular order, and each is joined, with weight 1, to the `clique_limit` (an odd limit:
    one less) nearest around the circle. So every label of it keeps as many neighbours as in the longest full clique.

    >>> co_occurrence(csr_matrix([[1, 1, 0], [1, 1, 1]])).toarray()
    array([[0, 2, 1],
           [2, 0, 1],
           [1, 1, 0]], dtype=int32)
    """
    if clique_limit < 2:
        raise ConfigurationError(f"clique_limit is {clique_limit}: set it to 2 or more")
    labels = csr_matrix(labels, copy=True)
    labels.sum_duplicates()
    labels.eliminate_zeros()
    labels = csr_matrix((np.ones(labels.nnz, dtype=np.int32), labels.indices, labels.indptr), shape=labels.shape)
    counts = np.diff(labels.indptr)
    short = labels[counts <= clique_limit]
    graph = csr_matrix(short.T @ short)
    graph = csr_matrix(graph - diags(graph.diagonal(), dtype=np.int32))
    graph.eliminate_zeros()
    graph = add_circles(graph, labels[counts > clique_limit], clique_limit // 2, seed)
    graph.sort_indices()
    return graph


def add_circles(graph: csr_matrix, labels: csr_matrix, reach: int, seed: int) -> csr_matrix:
    """Join the labels of each long document to the `reach` next and the `reach` previous on a random circle."""
    random = np.random.default_rng(seed)
    pending: list[NDArray[Any]] = []
    waiting = 0
    for start, end in zip(labels.indptr[:-1], labels.indptr[1:], strict=True):
        circle = random.permutation(labels.indices[start:end])
        for part in np.array_split(np.arange(1, reach + 1), -(-reach * len(circle) // EDGES)):
            neighbours = (np.arange(len(circle))[:, None] + part) % len(circle)  # (labels, reach)
            pending.append(np.stack([np.repeat(circle, len(part)), circle[neighbours.ravel()]]))
            waiting += pending[-1].shape[1]
            if waiting >= EDGES:
                graph = graph + both_ways(pending, graph.shape)
                pending, waiting = [], 0
    return csr_matrix(graph + both_ways(pending, graph.shape)) if pending else graph


def both_ways(pairs: list[NDArray[Any]], shape: tuple[int, int]) -> csr_matrix:
    """Turn pairs of labels into a symmetric matrix of how often each occurs."""
    left, right = np.concatenate(pairs, axis=1)
    one_way = csr_matrix(coo_matrix((np.ones(len(left), dtype=np.int32), (left, right)), shape=shape))
    return csr_matrix(one_way + one_way.T)
