"""TopK: the best labels of each document, by name, and joined over batches."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from laha.ranking import TopK

NAMES = ["cats", "dogs", "birds"]


def top(ids: list[list[int]], scores: list[list[float]]) -> TopK:
    return TopK(np.array(ids), np.array(scores, np.float32), NAMES)


def test_labels_are_named_best_first_with_plain_numbers():
    named = top([[2, 0]], [[0.75, 0.5]]).named()
    assert named == [[("birds", 0.75), ("cats", 0.5)]]
    assert type(named[0][0][1]) is float


def test_a_document_may_have_fewer_labels_or_none():
    assert top([[1, -1], [-1, -1]], [[0.5, 0.0], [0.0, 0.0]]).named() == [[("dogs", 0.5)], []]


def test_the_length_is_the_number_of_documents():
    assert len(top([[0, 1], [1, 2], [2, 0]], [[1, 0]] * 3)) == 3
    assert TopK(np.zeros((0, 5), np.int64), np.zeros((0, 5), np.float32), NAMES).named() == []


def test_batches_join_in_order():
    joined = TopK.concatenate([top([[0]], [[0.5]]), top([[1], [2]], [[0.25], [0.125]])])
    assert joined.ids.tolist() == [[0], [1], [2]]
    assert joined.scores.tolist() == [[0.5], [0.25], [0.125]]
    assert joined.label_names == NAMES


def test_a_result_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        top([[0]], [[1.0]]).ids = np.array([[1]])
