"""The label graph against counting by hand, and the bound on documents with very many labels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

from laha.errors import ConfigurationError
from laha.label_graph import co_occurrence


def random_labels(documents: int = 60, labels: int = 25) -> csr_matrix:
    return csr_matrix(random_array((documents, labels), density=0.2, rng=np.random.default_rng(0)))


def test_weights_count_shared_documents() -> None:
    labels = random_labels()
    held = [set(labels.indices[a:b]) for a, b in zip(labels.indptr[:-1], labels.indptr[1:], strict=True)]
    expected = [[sum(i in d and j in d for d in held) * (i != j) for j in range(25)] for i in range(25)]
    graph = co_occurrence(labels)
    assert graph.toarray().tolist() == expected
    assert (graph.indices.dtype, graph.data.dtype) == (np.int32, np.int32)
    assert (graph.data > 0).all()
    assert graph.has_sorted_indices


def test_explicit_zeros_and_labels_without_documents_make_no_edges() -> None:
    labels = csr_matrix(([1, 0, 1], [0, 1, 2], [0, 3]), shape=(1, 4))
    assert co_occurrence(labels).toarray().tolist() == [[0, 0, 1, 0], [0] * 4, [1, 0, 0, 0], [0] * 4]


@pytest.mark.parametrize(("labels", "limit", "neighbours"), [(50, 8, 8), (50, 9, 8), (9, 8, 8), (8, 8, 7), (4, 8, 3)])
def test_long_document_joins_each_label_to_the_limit(labels: int, limit: int, neighbours: int) -> None:
    graph = co_occurrence(csr_matrix(np.ones((1, labels))), clique_limit=limit)
    assert np.diff(graph.indptr).tolist() == [neighbours] * labels
    assert set(graph.data) == {1}
    assert (graph != graph.T).nnz == 0
    assert graph.diagonal().sum() == 0


def test_long_and_short_documents_add_up() -> None:
    short = np.zeros((3, 40))
    short[:, :2] = 1
    alone = co_occurrence(csr_matrix(np.ones((1, 40))), clique_limit=10, seed=5)
    together = co_occurrence(csr_matrix(np.vstack([short, np.ones((1, 40))])), clique_limit=10, seed=5)
    assert (together - alone).toarray()[0, 1] == 3
    assert (together - alone).sum() == 6


def test_edges_are_added_in_bounded_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = csr_matrix(np.ones((3, 40)))
    whole = co_occurrence(labels, clique_limit=10)
    monkeypatch.setattr("laha.label_graph.EDGES", 70)
    assert (co_occurrence(labels, clique_limit=10) != whole).nnz == 0


def test_the_seed_decides_the_circle() -> None:
    labels = csr_matrix(np.ones((1, 60)))
    first, same, other = (co_occurrence(labels, clique_limit=6, seed=seed) for seed in (1, 1, 2))
    assert (first != same).nnz == 0
    assert (first != other).nnz > 0


def test_no_documents_make_an_empty_graph() -> None:
    assert co_occurrence(csr_matrix((0, 5))).shape == (5, 5)


def test_limit_below_two_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="2 or more"):
        co_occurrence(random_labels(), clique_limit=1)
