"""The forest of FastXML and PfastreXML: its splits by hand, its separator by its optimality, toys, seeds, numba."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import laha.baselines
from laha.baselines.fastxml import FastXML
from laha.baselines.forest import Forest, ForestConfiguration, ideal_shares, with_bias
from laha.baselines.pfastrexml import PfastreXML, centres, squared_distances
from laha.errors import ConfigurationError, LahaError, ModelError

growth = pytest.importorskip("laha.baselines.tree_growth", reason="the extra `trees` is not installed")
numba = pytest.importorskip("numba")


def part(labels: list[list[int]], sides: list[int], weights: tuple[float, ...] = (1, 1, 1)) -> list[int]:
    """Part documents with these labels, from these sides."""
    counts = np.array([len(own) for own in labels])
    indices = np.array([label for own in labels for label in own], np.int32)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    gains = np.array(weights, np.float64)[indices] * np.repeat(ideal_shares(counts), counts)
    found, position = np.array(sides, np.int8), np.full(3, -1, np.int32)
    growth.part_documents(np.arange(len(labels)), found, np.zeros(len(labels)), offsets, indices, gains, position)
    assert (position == -1).all()
    return found.tolist()


def test_the_ranking_of_best_ndcg_is_by_falling_sums() -> None:
    # Label 1 has rank 1 (1 / log2 2), label 2 rank 2 (1 / log2 3), label 0 rank 3 (1 / log2 4).
    np.testing.assert_allclose(growth.rank_discounts(np.array([0.5, 2.0, 1.0])), [0.5, 1.0, 0.63093], atol=1e-5)


def test_a_document_moves_to_the_side_that_ranks_its_labels_higher() -> None:
    # Side 0 ranks 0 before 1; side 1 has label 0 once and label 1 twice, so ranks 1 before 0. The second document gains
    # 1 on side 0 and 0.63 on side 1: it moves. Nobody else does, and then the parting is perfect.
    assert part([[0], [0], [1], [1]], [0, 1, 1, 1]) == [0, 0, 1, 1]


def test_a_document_of_several_labels_counts_each_by_its_rank() -> None:
    # Sums: side 0 has 1 + 0.613 for label 0, 0.613 for label 2; side 1 has 1 for label 2, 0.613 for 0 and 1 each (ties
    # by id). The last document, {0, 1}, gains 0.613 (1 + 1 / log2 4) there and 0.613 (1 / log2 3 + 1 / log2 4) here.
    assert part([[0], [0, 2], [2], [0, 1]], [0, 0, 1, 1]) == [0, 0, 1, 0]


def test_weights_of_labels_decide_the_ranking() -> None:
    # Both sides rank label 0 first (1 against 0, 2.6 against 1.6), so nobody gains by moving. Counted nine times, label
    # 1 comes first on side 1 (14.5 against 2.6), and the documents of label 0 alone leave.
    documents, sides = [[0, 1], [0], [0], [0], [1]], [1, 0, 1, 1, 1]
    assert part(documents, sides) == sides
    assert part(documents, sides, weights=(1, 9, 1)) == [1, 0, 0, 0, 1]


def test_the_separator_is_optimal() -> None:
    random = np.random.default_rng(0)
    dense = (random.random((60, 12)) < 0.4).astype(np.float32)
    rows, sides = csr_matrix(dense), (dense[:, 0] + dense[:, 1] + random.random(60) > 1.3).astype(np.int8)
    position = np.full(12, -1, np.int32)
    numba.njit(lambda: np.random.seed(0))()  # compiled code draws from a stream of its own, left where others left it
    found = growth.learn_separator(
        *(np.arange(60), sides, rows.indptr.astype(np.int64), rows.indices, rows.data, 1.0, position)
    )
    weights = np.zeros(12)
    weights[found[0]] = found[1]
    signs = 2.0 * sides - 1
    slopes = -(signs / (1 + np.exp(signs * (dense @ weights)))) @ dense
    assert 0 < len(found[0]) < 12
    np.testing.assert_allclose(slopes[weights != 0], -np.sign(weights[weights != 0]), atol=0.1)  # passes end at 1 %
    assert (np.abs(slopes[weights == 0]) <= 1.1).all()


def toy() -> tuple[list[str], list[list[str]]]:
    """Return documents whose one topical word is their label."""
    random = np.random.default_rng(0)
    topics = random.integers(0, 8, 240)
    texts = [f"topic{topic} noise{noise}" for topic, noise in zip(topics, random.integers(0, 5, 240), strict=True)]
    return texts, [[f"topic{topic}"] for topic in topics]


@pytest.mark.parametrize("kind", [FastXML, PfastreXML])
def test_separable_topics_are_learned(kind: type[FastXML] | type[PfastreXML]) -> None:
    texts, labels = toy()
    model = kind(trees=10, features="binary", leaf_documents=2).fit(texts, labels)
    best = model.predict(texts, top=1)
    assert [row[0][0] for row in best.named()] == [own[0] for own in labels]


def test_each_seed_has_its_own_bytes(tmp_path: Path) -> None:
    texts, labels = toy()
    written = []
    for number, (seed, workers) in enumerate([(1, 1), (1, 3), (2, 1)]):
        FastXML(trees=4, features="binary", seed=seed, workers=workers).fit(texts, labels).save(tmp_path / str(number))
        written.append((tmp_path / str(number) / "weights.safetensors").read_bytes())
    assert written[0] == written[1]
    assert written[0] != written[2]


def test_every_document_reaches_one_leaf_and_leaves_are_small() -> None:
    texts, labels = toy()
    forest = FastXML(trees=3, features="binary", leaf_documents=4, leaf_labels=1).fit(texts, labels).forest_
    leaves = forest.children[:, 0] < 0
    assert (np.diff(forest.label_offsets)[leaves] <= 1).all()
    assert (np.diff(forest.label_offsets)[~leaves] == 0).all()
    assert len(forest.roots) == 3
    assert ((forest.shares > 0) & (forest.shares <= 1)).all()


def test_documents_without_words_or_labels_are_no_obstacle() -> None:
    rows = csr_matrix((30, 4), dtype=np.float32)
    given = np.random.default_rng(0).random((30, 5)) < 0.2
    given[:5] = False
    forest = Forest.grow(rows, csr_matrix(given, dtype=np.float32), np.ones(5), ForestConfiguration(trees=2))
    assert forest.scores(rows[:3], 5).shape == (3, 5)


def test_the_bias_is_the_last_feature() -> None:
    assert with_bias(csr_matrix([[0.0, 2.0], [0.0, 0.0]])).toarray().tolist() == [[0, 2, 1], [0, 0, 1]]


def test_pfastrexml_ranks_again_by_the_distance_to_centres() -> None:
    rows, labels = csr_matrix([[1.0, 0.0], [0.0, 1.0]]), csr_matrix([[1.0, 0.0], [1.0, 1.0]])
    middle = centres(rows, labels)
    assert middle.toarray().tolist() == [[0.5, 0.5], [0.0, 1.0]]
    pairs = csr_matrix([[0.5, 0.5], [0.0, 0.5]])
    assert squared_distances(rows, middle, pairs).tolist() == [0.5, 2.0, 0.0]


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigurationError, match=r"alpha=1\.5: the value must be between 0 and 1"):
        PfastreXML(alpha=1.5).fit(["a"], [["b"]])


def test_without_numba_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(laha.baselines, "tree_growth")
    monkeypatch.delitem(sys.modules, "laha.baselines.tree_growth")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(LahaError, match=r"need numba, which is not installed: pip install 'laha\[trees\]'"):
        FastXML(min_count=1).fit(["a"], [["b"]])


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("children", (0, 0), 0),  # a circle
        ("children", (0, 0), -1),  # half a leaf
        ("children", (0, 1), 10**6),
        ("roots", 0, -1),
        ("features", 0, 3),
        ("labels", 0, 2),
        ("weight_offsets", 1, 10**6),
        ("label_offsets", -1, 0),
    ],
)
def test_damaged_trees_are_refused_before_compiled_code_follows_them(name: str, place: object, value: int) -> None:
    rows = csr_matrix(np.repeat(np.eye(2), 20, axis=0))
    settings = ForestConfiguration(trees=1, leaf_documents=5, seed=1)
    tensors = Forest.grow(rows, csr_matrix(np.repeat(np.eye(2), 20, axis=0)), np.ones(2), settings).tensors()
    Forest.restore(tensors, 2, 2)
    tensors = {key: array.copy() for key, array in tensors.items()}
    tensors[f"forest.{name}"][place] = value
    with pytest.raises(ModelError, match="trees are damaged"):
        Forest.restore(tensors, 2, 2)
