"""Words -> sparse features that the classical models share: TF-IDF, or the bag of words as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.configuration import check_choice, check_range
from laha.vocabulary import RESERVED, WordIds

FEATURES = ("tfidf", "binary")


@dataclass(frozen=True, kw_only=True)
class FeatureConfiguration:
    """How a document becomes a row of features; each default with its reason."""

    features: str = "tfidf"  # "binary": a word is there or not, for corpora that are bags of words
    # The words are those of preparation, with its defaults and reasons: every model of a comparison reads the same.
    max_words: int = 500
    min_count: int = 2
    vocabulary_words: int = 500_000

    def __post_init__(self) -> None:
        check_choice(self, "features", FEATURES)
        check_range(self, ("max_words", "min_count", "vocabulary_words"), 1)


class Features:
    """Weighs the words of documents: a row a document, a column a word of the vocabulary.

    A "tfidf" weight is (1 + ln count) times the word's inverse document frequency, 1 + ln((1 + n) / (1 + documents with
    it)) as fitted on train, and each row is then scaled to length 1; a "binary" weight is 1. Unknown words have no
    column, so a document of unknown words has an empty row.

    >>> words = WordIds(np.array([2, 2, 3, 3, 1], np.int32), np.array([0, 3, 4, 5]))
    >>> print(Features.fit(words, words=2, kind="tfidf").rows(words).toarray().round(2))
    [[0.91 0.41]
     [0.   1.  ]
     [0.   0.  ]]
    >>> Features.fit(words, words=2, kind="binary").rows(words).toarray().tolist()
    [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, kind: str, rarity: NDArray[np.float32]):
        self.kind = kind
        self.rarity = rarity  # (words,): the inverse document frequencies; ones where they do not count

    @classmethod
    def fit(cls, documents: WordIds, words: int, kind: str) -> Features:
        """Learn from training documents how rare each of `words` words is."""
        if kind == "binary":
            return cls(kind, np.ones(words, np.float32))
        holders = np.bincount(word_counts(documents, words).indices, minlength=words)
        return cls(kind, (1 + np.log((1 + len(documents)) / (1 + holders))).astype(np.float32))

    def rows(self, documents: WordIds) -> csr_matrix:
        """Return the features of documents: (documents, words), float32, columns in order within a row."""
        counts = word_counts(documents, len(self.rarity))
        if self.kind == "binary":
            counts.data[:] = 1
            return counts
        counts.data = (1 + np.log(counts.data)) * self.rarity[counts.indices]
        return scale_rows(counts)


def scale_rows(rows: csr_matrix) -> csr_matrix:
    """Scale each row to length 1; an empty row stays empty.

    >>> print(scale_rows(csr_matrix([[3.0, 4.0], [0.0, 0.0]])).toarray())
    [[0.6 0.8]
     [0.  0. ]]
    """
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1))).ravel()
    scale = 1 / np.where(lengths > 0, lengths, 1)
    data = rows.data * np.repeat(scale, np.diff(rows.indptr))
    return csr_matrix((data.astype(rows.dtype), rows.indices, rows.indptr), shape=rows.shape)


def word_counts(documents: WordIds, words: int) -> csr_matrix:
    """Count the known words of documents: (documents, words)."""
    ids = np.asarray(documents.ids, dtype=np.int32)
    known = ids >= RESERVED
    ends: NDArray[Any] = np.concatenate(([0], np.cumsum(known)))[documents.offsets]
    ones = np.ones(int(known.sum()), np.float32)
    counts = csr_matrix((ones, ids[known] - RESERVED, ends), shape=(len(documents), words))
    counts.sum_duplicates()
    return counts
