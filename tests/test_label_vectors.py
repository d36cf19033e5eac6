"""The walks against node2vec's definition, and the vectors made of them."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import chi2

from laha.errors import ConfigurationError
from laha.label_vectors import read_label_vectors, train_label_vectors, walks


def symmetric(edges: dict[tuple[int, int], float], labels: int) -> csr_matrix:
    dense = np.zeros((labels, labels))
    for (a, b), weight in edges.items():
        dense[a, b] = dense[b, a] = weight
    return csr_matrix(dense)


# A triangle with a tail that ends in a leaf; a label between without an edge.
TAIL = symmetric({(0, 1): 1, (0, 2): 3, (1, 2): 2, (2, 3): 5, (3, 5): 0.5}, 6)
# Two triangles that share an edge, a square beside them: returns, shared and far neighbours at most labels.
MESH = symmetric({(0, 1): 4, (1, 2): 1, (0, 2): 2, (1, 3): 7, (2, 3): 1, (3, 4): 3, (4, 5): 1, (5, 6): 2, (6, 3): 1}, 7)
BIASES = [(1.0, 1.0), (0.5, 2.0), (0.1, 4.0), (4.0, 0.25), (3.0, 1.0), (1.0, 3.0), (0.25, 0.25), (8.0, 8.0)]


def misfit(graph: csr_matrix, made: np.ndarray, p: float, q: float) -> float:
    """The probability of steps this far from node2vec's definition, were they made by it (chi-square)."""
    weight = graph.toarray()
    statistic = freedom = 0.0
    counts = np.zeros((graph.shape[0],) * 3)
    np.add.at(counts, (made[:, :-2].ravel(), made[:, 1:-1].ravel(), made[:, 2:].ravel()), 1)
    for t, v in zip(*np.nonzero(counts.sum(axis=2)), strict=True):
        bias = np.array([1 / p if x == t else 1.0 if weight[t, x] else 1 / q for x in range(len(weight))])
        chance = weight[v] * bias / (weight[v] * bias).sum()
        possible = chance > 0
        assert not counts[t, v, ~possible].any()
        expected = chance[possible] * counts[t, v].sum()
        statistic += ((counts[t, v, possible] - expected) ** 2 / expected).sum()
        freedom += possible.sum() - 1
    return float(chi2.sf(statistic, freedom))


def walk(graph: csr_matrix, p: float, q: float, count: int = 1500, length: int = 12, seed: int = 0) -> np.ndarray:
    return np.concatenate(list(walks(graph, count, length, p, q, seed)))


@pytest.mark.parametrize("graph", [TAIL, MESH], ids=["tail", "mesh"])
@pytest.mark.parametrize(("p", "q"), BIASES)
def test_steps_follow_the_definition(graph: csr_matrix, p: float, q: float) -> None:
    assert misfit(graph, walk(graph, p, q), p, q) > 1e-4


@pytest.mark.parametrize("graph", [TAIL, MESH], ids=["tail", "mesh"])
@pytest.mark.parametrize(("p", "q"), BIASES[1:])
def test_first_order_walks_would_fail_that_test(graph: csr_matrix, p: float, q: float) -> None:
    assert misfit(graph, walk(graph, 1, 1), p, q) < 1e-12


def test_first_step_goes_by_weight() -> None:
    made = walk(TAIL, 0.1, 10, count=20_000, length=2)
    from_two = made[made[:, 0] == 2, 1]
    assert np.bincount(from_two, minlength=4) / len(from_two) == pytest.approx([0.3, 0.2, 0, 0.5], abs=0.015)


def test_each_label_with_an_edge_starts_as_often() -> None:
    made = walk(TAIL, 1, 1, count=7)
    assert np.bincount(made[:, 0]).tolist() == [7, 7, 7, 7, 0, 7]
    assert (made.shape, made.dtype) == ((35, 12), np.int32)


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laha.label_vectors.WALKERS", 4)
    made = list(walks(TAIL, walks_per_label=3, length=2))
    assert [len(batch) for batch in made] == [4, 1] * 3
    assert [sorted(batch[:, 0]) for batch in map(np.concatenate, zip(made[::2], made[1::2], strict=True))] == [
        [0, 1, 2, 3, 5]
    ] * 3


def test_the_seed_decides_the_walks() -> None:
    first, same, other = (walk(MESH, 0.5, 2, count=20, seed=seed) for seed in (1, 1, 2))
    assert (first == same).all()
    assert (first != other).any()


def test_a_leaf_turns_back_however_large_p() -> None:
    made = walk(symmetric({(0, 1): 1}, 2), 1e12, 1, count=1, length=5)
    assert sorted(made.tolist()) == [[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_walks(length: int) -> None:
    made = walk(MESH, 0.5, 2, count=2, length=length)
    assert made.shape == (14, length)
    assert all(MESH[a, b] > 0 for row in made for a, b in pairwise(row))


def test_settings_that_are_not_positive_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"p is 0: set it to a number above 0"):
        next(walks(MESH, p=0))


def two_cliques(size: int = 12, isolated: int = 3) -> csr_matrix:
    dense = np.zeros((2 * size + isolated,) * 2)
    dense[:size, :size] = dense[size : 2 * size, size : 2 * size] = 1 - np.eye(size)
    dense[0, size] = dense[size, 0] = 1
    return csr_matrix(dense)


def test_vectors_tell_neighbourhoods_apart() -> None:
    stages: list[tuple[str, float]] = []
    vectors = train_label_vectors(
        two_cliques(),
        dimensions=16,
        walks_per_label=20,
        epochs=5,
        progress=lambda stage, done: stages.append((stage, done)),
    )
    assert (vectors.shape, vectors.dtype) == ((27, 16), np.float32)
    unit = vectors[:24] / np.linalg.norm(vectors[:24], axis=1, keepdims=True)
    likeness = unit @ unit.T
    assert likeness[1:12, 1:12].mean() > likeness[1:12, 13:24].mean() + 0.3
    assert np.square(vectors).mean() == pytest.approx(1, rel=1e-5)
    assert stages[0] == ("walks", 1)
    assert stages[-1] == ("skip-gram", 1)


def test_vectors_are_reproducible() -> None:
    first, same, other = (train_label_vectors(two_cliques(), dimensions=8, seed=seed) for seed in (1, 1, 2))
    assert (first == same).all()
    assert (first != other).all(axis=1).all()


def test_isolated_labels_get_vectors_of_their_own() -> None:
    vectors = train_label_vectors(two_cliques(), dimensions=8)
    norms = np.linalg.norm(vectors, axis=1)
    assert norms[24:] == pytest.approx(norms[:24].mean(), rel=1e-4)
    assert len({tuple(v) for v in vectors[24:]}) == 3


def test_without_edges_gensim_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    vectors = train_label_vectors(csr_matrix((4, 4)), dimensions=8, seed=3)
    assert np.square(vectors).mean() == pytest.approx(1, rel=1e-5)
    more = train_label_vectors(csr_matrix((6, 6)), dimensions=8, seed=3)
    assert more[:4] == pytest.approx(vectors, rel=1e-5)  # a label's vector follows from its index alone


def test_reading_an_array(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    np.save(path, np.arange(6.0).reshape(3, 2))
    assert read_label_vectors(path, ["a", "b", "c"]).tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(ConfigurationError, match=r"vectors.npy: an array of shape \(3, 2\) for 2 labels: give one row"):
        read_label_vectors(path, ["a", "b"])
    path.write_bytes(b"no array")
    with pytest.raises(ConfigurationError, match=r"not a .npy file of numbers: write it with numpy.save"):
        read_label_vectors(path, ["a", "b"])
    np.save(path, np.array([[1, np.inf]]))
    with pytest.raises(ConfigurationError, match="not finite"):
        read_label_vectors(path, ["a"])


def test_reading_text(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\nwater colour\t3 4\nunknown\t1 2\nsea\t0 1e1\n", encoding="utf-8")
    vectors = read_label_vectors(path, ["sea", "land", "water colour"])
    assert vectors[[0, 2]].tolist() == [[0, 10], [3, 4]]
    assert np.linalg.norm(vectors[1]) == pytest.approx(7.5)
    assert (read_label_vectors(path, ["sea", "land", "water colour"]) == vectors).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sea\t1 2\nland\t1 2 3\n", r"vectors.txt, line 2: 3 numbers where the lines before have 2: give every label"),
        ("sea\t1 2\nland 1 2\n", r"line 2: not a label, a tab and finite numbers"),
        ("sea\t1 nan\n", r"line 1: not a label, a tab and finite numbers"),
        ("sea\t1 x\n", r"line 1: not a label, a tab and finite numbers"),
        ("sky\t1 2\n", r"holds none of the 2 labels: check the names"),
        ("", r"holds none of the 2 labels"),
    ],
)
def test_unfit_text_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message):
        read_label_vectors(path, ["sea", "land"])


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_label_vectors(tmp_path / "none.txt", ["a"])
    (tmp_path / "latin.txt").write_bytes(b"sea\xe9\t1 2\n")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_label_vectors(tmp_path / "latin.txt", ["a"])
