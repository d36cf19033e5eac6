"""The label tree: balanced, every label in one leaf, alike labels together; and the beam search through it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from tests.test_baseline_networks import DOCUMENTS, attention_xml_tree, made, padded

from laha.candidates import Candidates, with_ancestors
from laha.label_tree import build_label_tree, label_features
from laha.network.attention_xml_tree import AttentionXMLTree
from laha.scoring.beam import Beam
from laha.vocabulary import WordIds


def random_features(labels: int, seed: int = 0) -> csr_matrix:
    rng = np.random.default_rng(seed)
    return csr_matrix(rng.random((labels, 12)) * (rng.random((labels, 12)) < 0.4))


@settings(deadline=None, max_examples=20)
@given(labels=st.integers(3, 90), splits=st.integers(1, 3), first=st.integers(1, 9))
def test_it_is_balanced_and_every_label_is_in_one_leaf(labels: int, splits: int, first: int) -> None:
    tree = build_label_tree(random_features(labels), splits, first)
    assert tree.nodes[-1] == labels
    assert tree.nodes[0] <= max(first, 2**splits)
    sizes = np.bincount(tree.parents[-1], minlength=tree.nodes[-2])
    assert sizes.sum() == labels
    assert sizes.max() - sizes.min() <= 1
    assert sizes.max() <= max(2**splits, (labels + 1) // 2)
    for parents, above in zip(tree.parents[:-1], tree.nodes, strict=False):
        assert (np.bincount(parents, minlength=above) == 2**splits).all()


def test_one_seed_gives_one_tree() -> None:
    first, second = (build_label_tree(random_features(50), 1, 4, seed=3) for _ in range(2))
    for left, right in zip(first.parents, second.parents, strict=True):
        assert np.array_equal(left, right)


def test_labels_of_alike_documents_come_together() -> None:
    words = WordIds(np.array([2, 3, 2, 3, 4, 5, 4, 5]), np.array([0, 2, 4, 6, 8]))
    features = label_features(words, csr_matrix(np.eye(4)), vocabulary=6)
    np.testing.assert_allclose(np.asarray(features.multiply(features).sum(axis=1)).ravel(), 1, rtol=1e-6)
    for seed in range(8):
        leaves = build_label_tree(features, splits=1, first=2, seed=seed).parents[-1]
        assert leaves[0] == leaves[1] != leaves[2] == leaves[3]


def test_a_labels_features_are_the_mean_of_its_documents_vectors() -> None:
    words = WordIds(np.array([2, 2, 3, 3, 4]), np.array([0, 3, 4, 5]))  # "2 2 3", "3", "4"
    labels = csr_matrix(np.array([[1.0, 0], [1, 0], [0, 1]]))
    idf = {2: np.log(3), 3: np.log(3 / 2), 4: np.log(3)}
    one = np.array([2 * idf[2], idf[3]]) / np.hypot(2 * idf[2], idf[3])
    mean = one + np.array([0, 1])
    found = label_features(words, labels, vocabulary=5).toarray()
    np.testing.assert_allclose(found[0, 2:4], mean / np.linalg.norm(mean), rtol=1e-6)
    np.testing.assert_allclose(found[1], [0, 0, 0, 0, 1], rtol=1e-6)


def test_a_node_is_right_where_a_label_below_it_is() -> None:
    tree = build_label_tree(random_features(10), splits=1, first=2)
    labels = csr_matrix((np.random.default_rng(1).random((6, 12)) < 0.2).astype(np.float32))  # two labels unseen
    for level in range(len(tree.parents)):
        expected = np.zeros((6, tree.nodes[level]))
        for document, label in zip(*labels[:, :10].nonzero(), strict=True):
            node = label
            for parents in reversed(tree.parents[level:]):
                node = parents[node]
            expected[document, node] = 1
        np.testing.assert_array_equal(tree.truth(labels, level).toarray(), expected)
    assert (tree.truth(labels, len(tree.parents)) != labels).nnz == 0


@pytest.fixture
def tree() -> AttentionXMLTree:
    network = made(attention_xml_tree)
    assert isinstance(network, AttentionXMLTree)
    return network


def exhaustive(tree: AttentionXMLTree) -> torch.Tensor:
    with torch.no_grad():
        return tree.score(tree.encode(*padded(DOCUMENTS))).sigmoid()


def test_a_beam_over_all_nodes_equals_exhaustive_scoring(tree: AttentionXMLTree) -> None:
    beam, expected = Beam(tree, 99), exhaustive(tree)
    ids, scores = beam.score(*padded(DOCUMENTS))
    assert beam.size == 7
    for row in range(len(DOCUMENTS)):
        known = ids[row] >= 0
        assert sorted(ids[row][known].tolist()) == list(range(7))
        torch.testing.assert_close(scores[row][known], expected[row][ids[row][known]], rtol=0, atol=1e-9)
        assert (scores[row][~known] == 0).all()
    best, probabilities = beam.score_top(*padded(DOCUMENTS), 3)
    torch.testing.assert_close(probabilities, expected.topk(3).values, rtol=0, atol=1e-9)
    torch.testing.assert_close(expected.gather(1, best), probabilities, rtol=0, atol=1e-9)


def test_a_narrow_beam_follows_the_best_node_of_each_level(tree: AttentionXMLTree) -> None:
    words, lengths = padded(DOCUMENTS)
    with torch.no_grad():
        first, second, _ = (level.score(level.encode(words, lengths)).sigmoid() for level in tree.networks)
    ids, _ = Beam(tree, 1).score(words, lengths)
    for row in range(len(DOCUMENTS)):
        inside = torch.nonzero(tree.above(1) == first[row].argmax()).ravel()
        node = inside[second[row][inside].argmax()]
        expected = torch.nonzero(tree.above(2) == node).ravel()
        assert sorted(ids[row][ids[row] >= 0].tolist()) == expected.tolist()


def test_a_beam_is_the_same_alone_and_in_any_batch(tree: AttentionXMLTree) -> None:
    beam = Beam(tree.float(), 2)
    together = beam.score_top(*padded(DOCUMENTS), 3)
    alone = [beam.score_top(*padded([document]), 3) for document in DOCUMENTS]
    assert torch.equal(together[0], torch.cat([ids for ids, _ in alone]))
    torch.testing.assert_close(together[1], torch.cat([scores for _, scores in alone]), rtol=0, atol=1e-5)


def test_candidates_are_the_children_with_their_truth() -> None:
    candidates = Candidates(
        np.array([[1, 0], [2, 1]]), np.zeros((2, 2), np.float32), np.array([[0, 3], [1, -1], [2, 4]])
    )
    truth = csr_matrix(np.array([[1, 0, 0, 1, 0], [0, 1.0, 1, 0, 0]]))
    ids, targets, weights = candidates.targets(np.array([0, 1]), truth)
    assert ids.tolist() == [[1, 0, 0, 3], [2, 4, 1, 0]]
    assert targets.tolist() == [[0, 0, 1, 1], [1, 0, 1, 0]]
    assert weights.tolist() == [[1, 0, 1, 1], [1, 1, 1, 0]]


def test_the_best_candidates_are_the_best_products_along_the_path() -> None:
    shares = np.log(np.array([[0.5, 0.1]], np.float32))
    candidates = Candidates(np.array([[1, 0]]), shares, np.array([[0, 3], [1, -1]]))
    logits = torch.logit(torch.tensor([[0.1, 0.9, 0.2, 0.9]]))  # of 1, none, 0, 3: 0.05, nothing, 0.02, 0.09
    assert candidates.best(np.array([0]), logits, 5).tolist() == [[3, 1, 0, -1, -1]]


def test_the_right_ancestors_come_first_and_the_best_others_fill_up() -> None:
    truth = csr_matrix(np.array([[0, 1.0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0]]))
    ids, _ = with_ancestors(np.array([[4, 3, 0], [2, 1, 0], [4, 3, 2]]), np.zeros((3, 3), np.float32), truth)
    assert ids.tolist() == [[1, 3, 4], [2, 1, 0], [0, 1, 2]]
