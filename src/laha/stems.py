"""Words -> stems: English plurals fold into their singular, so that a label's name meets its other forms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from laha.vocabulary import RESERVED, Vocabulary, WordIds

SHORTEST = 4  # a word this short keeps its ending: "gas", "this", "does"; "laws" too


def stem(word: str) -> str:
    """Return a word without its plural ending. Crude, but right for English and harmless for other languages.

    >>> [stem(word) for word in ("libraries", "proteins", "analysis", "classes", "virus", "gas")]
    ['library', 'protein', 'analysis', 'class', 'virus', 'gas']
    """
    if len(word) <= SHORTEST or not word.endswith("s"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("sses"):
        return word[:-2]
    return word if word.endswith(("ss", "us", "is")) else word[:-1]


class Stems:
    """The stems of a vocabulary, numbered like words: 0 is padding, 1 unknown.

    >>> stems = Stems(Vocabulary(["whale", "birds", "bird", "whales"]))
    >>> stems.of(WordIds(np.array([2, 5, 4, 1]), np.array([0, 4]))).ids.tolist(), len(stems)
    ([2, 2, 3, 1], 4)
    >>> stems.encode(["birds", "wolf"])
    [3, 1]
    """

    def __init__(self, vocabulary: Vocabulary):
        self._numbers: dict[str, int] = {}
        numbers = [self._numbers.setdefault(stem(word), len(self._numbers) + RESERVED) for word in vocabulary.words]
        self._of_word: NDArray[np.int32] = np.array([*range(RESERVED), *numbers], np.int32)

    def __len__(self) -> int:
        """Count the ids, the two reserved ones included."""
        return len(self._numbers) + RESERVED

    def of(self, words: WordIds) -> WordIds:
        """Return documents of word ids as documents of stem ids."""
        return WordIds(self._of_word[words.ids], words.offsets)

    def encode(self, words: list[str]) -> list[int]:
        """Return the stems of words; 1 for one that the vocabulary has no form of."""
        return [self._numbers.get(stem(word), 1) for word in words]
