"""The tree expert: it learns the rule, knows labels by their names alone, and is restored whole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from laha.experts.tree import Tree
from laha.prepared import Label, Prepared
from laha.stems import Stems
from laha.vocabulary import Vocabulary, WordIds

pytest.importorskip("omikuji", reason="the extra trees is not installed")

EXTRA = [Label("noise1 noise2", 0, "Q1"), Label("?", 0, "Q2")]  # no training document has these


@pytest.fixture(scope="module")
def expert(prepared: Prepared) -> Tree:
    train = prepared.part("train")
    labels = [*prepared.labels, *EXTRA]
    truth = csr_matrix((train.labels.data, train.labels.indices, train.labels.indptr), shape=(len(train), len(labels)))
    return Tree.fit(Stems(prepared.vocabulary), train.words, truth, labels)


def test_it_learns_the_rule(expert: Tree, prepared: Prepared) -> None:
    test = prepared.part("test")
    first = expert.top(test.words, 5).ids[:, 0]
    assert np.asarray(test.labels[np.arange(len(test)), first]).mean() > 0.8


def test_its_name_alone_teaches_a_label(expert: Tree, prepared: Prepared) -> None:
    found = expert.top(prepared.vocabulary.encode([["noise1", "noise2"]]), 3)
    assert found.ids[0, 0] == prepared.train_labels
    assert prepared.train_labels + 1 not in expert.top(prepared.part("test").words).ids  # nothing is known of "?"


def test_scores_are_log_odds_best_first(expert: Tree, prepared: Prepared) -> None:
    found = expert.top(prepared.part("test").words, 4)
    assert np.isfinite(found.scores).all()
    known = found.ids >= 0
    assert (np.diff(np.where(known, found.scores, -np.inf)[known.all(axis=1)], axis=1) <= 0).all()
    assert found.scores[known].min() < 0 < found.scores[known].max()


def test_restored_it_proposes_the_same_and_saves_the_same(expert: Tree, prepared: Prepared) -> None:
    words, tensors = prepared.part("test").words, expert.tensors()
    again = Tree.restore(expert.stems, tensors)
    for own, restored in zip(expert.top(words), again.top(words), strict=True):
        np.testing.assert_array_equal(own, restored)
    assert all(array.tobytes() == tensors[name].tobytes() for name, array in again.tensors().items())


def test_where_nothing_is_known_it_proposes_nothing() -> None:
    stems, labels = Stems(Vocabulary(["apple"])), [Label("?", 1)]
    words = WordIds(np.array([2], np.int32), np.array([0, 0, 1]))  # the labelled document is empty
    expert = Tree.fit(stems, words, csr_matrix(np.array([[1.0], [0.0]], np.float32)), labels)
    assert (expert.top(words, 3).ids == -1).all()
    assert (Tree.restore(stems, expert.tensors()).top(words, 3).ids == -1).all()
