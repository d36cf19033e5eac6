"""Stems: forms of a word that meet, and the ids that stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

from laha.stems import Stems, stem
from laha.vocabulary import Vocabulary, WordIds


@pytest.mark.parametrize(
    ("one", "many"),
    [("library", "libraries"), ("protein", "proteins"), ("class", "classes"), ("whale", "whales")],
)
def test_a_plural_meets_its_singular(one: str, many: str) -> None:
    assert stem(one) == stem(many) == one


@pytest.mark.parametrize("word", ["", "s", "gas", "bus", "does", "analysis", "virus", "glass", "東京", "naïf"])
def test_a_word_that_is_no_plural_stays(word: str) -> None:
    assert stem(word) == word


def test_documents_keep_their_places_padding_and_unknown_words() -> None:
    vocabulary = Vocabulary(["whales", "bird", "whale", "birds"])
    stems = Stems(vocabulary)
    words = WordIds(np.array([0, 1, 2, 3, 4, 5], np.uint16), np.array([0, 2, 6]))  # uint16: as a prepared folder has
    found = stems.of(words)
    assert found.ids.tolist() == [0, 1, 2, 3, 2, 3]
    assert found.offsets is words.offsets
    assert stems.encode(["whales", "whale", "birds", "yak"]) == [2, 2, 3, 1]
    assert len(stems) == 4
