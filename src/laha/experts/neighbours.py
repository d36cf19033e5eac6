"""The neighbours expert: the labels of the training documents that are most like a text, by the cosine of TF-IDF.

It needs no training, and it is strong where labels are rare: one like document suffices, where a classifier needs
several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.experts.proposals import DEPTH, Proposals, best_of
from laha.features import Features
from laha.stems import Stems
from laha.vocabulary import RESERVED, WordIds

NEIGHBOURS = 50  # whose labels count; 20 to 100 differ little, for a neighbour's weight falls with its distance
POWER = 2.0  # of the cosine that a neighbour's labels are weighed by: the nearest decide
CELLS = 2**24  # similarities held at once
SMALLEST = 1e-6  # a score's logarithm has a floor


class Neighbours:
    """The training documents as rows of features, with their labels."""

    def __init__(self, stems: Stems, features: Features, rows: csr_matrix, labels: csr_matrix):
        self.stems, self.features, self.rows, self.labels = stems, features, rows, labels
        self._columns = csr_matrix(rows.T)  # (stems, documents): a product with it meets only shared stems

    @classmethod
    def fit(cls, stems: Stems, words: WordIds, labels: csr_matrix) -> Self:
        """Keep the training documents."""
        documents = stems.of(words)
        features = Features.fit(documents, len(stems) - RESERVED, "tfidf")
        # Half precision, as it will be saved: a model scores the same before and after.
        rows = features.rows(documents)
        rows.data = rows.data.astype(np.float16).astype(np.float32)
        return cls(stems, features, rows, labels)

    def top(self, words: WordIds, depth: int = DEPTH) -> Proposals:
        """Return the labels that weigh most among the nearest training documents, with the logarithm of their share."""
        queries = self.features.rows(self.stems.of(words))
        size = max(1, CELLS // max(1, self.rows.shape[0]))
        parts = [self._vote(csr_matrix(queries[start : start + size])) for start in range(0, len(words), size)]
        if not parts:
            return Proposals(np.zeros((0, depth), np.int64), np.zeros((0, depth), np.float32))
        found = [best_of(part, depth) for part in parts]
        ids, scores = (np.concatenate([part[place] for part in found]) for place in (0, 1))
        return Proposals(ids, np.where(ids >= 0, np.log(np.maximum(scores, SMALLEST)), 0).astype(np.float32))

    def _vote(self, queries: csr_matrix) -> csr_matrix:
        cosines = (queries @ self._columns).toarray()  # (batch, documents)
        count = min(NEIGHBOURS, cosines.shape[1])
        nearest = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        weights = np.take_along_axis(cosines, nearest, 1) ** POWER
        weights /= np.maximum(weights.sum(axis=1, keepdims=True), SMALLEST)
        ends = np.arange(0, count * len(weights) + 1, count)
        votes = csr_matrix((weights.ravel(), nearest.ravel(), ends), shape=cosines.shape) @ self.labels
        votes = csr_matrix(votes)
        votes.eliminate_zeros()
        return votes  # (batch, labels)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the documents as they are kept."""
        return {
            "rarity": self.features.rarity,
            "rows.data": self.rows.data.astype(np.float16),
            "rows.indices": self.rows.indices.astype(np.int32),
            "rows.indptr": self.rows.indptr.astype(np.int64),
            "labels.indices": self.labels.indices.astype(np.int32),
            "labels.indptr": self.labels.indptr.astype(np.int64),
        }

    @classmethod
    def restore(cls, stems: Stems, labels: int, tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what `tensors` gave."""
        features = Features("tfidf", tensors["rarity"])
        data, indices, indptr = (tensors[f"rows.{name}"] for name in ("data", "indices", "indptr"))
        rows = csr_matrix((data.astype(np.float32), indices, indptr), shape=(len(indptr) - 1, len(stems) - RESERVED))
        indices, indptr = tensors["labels.indices"], tensors["labels.indptr"]
        ones = np.ones(len(indices), np.float32)
        return cls(stems, features, rows, csr_matrix((ones, indices, indptr), shape=(len(indptr) - 1, labels)))
