"""The words of labels' names beside the label graph's vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from laha.label_content import name_vectors, with_content
from laha.prepared import Label, Prepared
from laha.vocabulary import Vocabulary


def test_other_names_count_and_unknown_words_do_not() -> None:
    vocabulary = Vocabulary(["sea", "ocean", "fish"])
    vectors = np.array([[9, 9], [9, 9], [1, 0], [0, 1], [5, 5]], np.float32)
    labels = [Label("Sea", 1, None, ("the Ocean",)), Label("whale", 1), Label("ocean", 1)]
    expected = [[2**-0.5, 2**-0.5], [0, 0], [0, 1]]
    np.testing.assert_allclose(name_vectors(labels, vocabulary, vectors), expected, atol=1e-6)


def test_both_halves_are_as_long(prepared: Prepared) -> None:
    labels = [replace(label, name=f"{label.name} apple") for label in prepared.labels]
    joined = with_content(replace(prepared, labels=labels))
    size = prepared.label_vectors.shape[1]
    np.testing.assert_array_equal(joined[:, :size], prepared.label_vectors)
    lengths = np.linalg.norm(joined[:, size:], axis=1)
    np.testing.assert_allclose(lengths, np.linalg.norm(prepared.label_vectors, axis=1).mean(), rtol=1e-5)
