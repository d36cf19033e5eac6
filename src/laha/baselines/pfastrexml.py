"""PfastreXML: FastXML for missing and rare labels (Jain, Prabhu & Varma 2016).

Labels count by their inverse propensity in the splits, and the labels that the trees find are ranked again with the
help of a classifier for each: how near the document lies to the centre of the label's documents. In the leaves labels
count alike: weighted there too, rare labels rose no further and frequent ones fell (experiments/README.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from laha.baselines.classical import Classical, sparse_matrix, sparse_tensors
from laha.baselines.forest import Array, Forest, ForestConfiguration
from laha.configuration import check_range
from laha.features import scale_rows
from laha.metrics import propensities


@dataclass(frozen=True, kw_only=True)
class PfastreXMLConfiguration(ForestConfiguration):
    """The settings of PfastreXML."""

    a: float = 0.55  # of the propensities; the paper's for all corpora but Wikipedia and Amazon
    b: float = 1.5  # likewise
    alpha: float = 0.8  # how much the trees' score counts against the centres'; the paper
    gamma: float = 30.0  # how fast a label's score falls with the distance from its centre; the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("a", "b", "gamma"), 0)
        check_range(self, ("alpha",), 0, 1)


class PfastreXML(Classical):
    """A forest that favours rare labels, and centres that rank again what it finds."""

    Configuration = PfastreXMLConfiguration
    forest_: Forest
    centres_: csr_matrix  # (labels, words)

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "pfastrexml"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Grow the trees and find each label's centre."""
        settings = self.configuration_
        frequency = np.asarray(labels.sum(axis=0)).ravel()
        weights = 1 / propensities(frequency, labels.shape[0], settings.a, settings.b)
        self.forest_ = Forest.grow(rows, labels, weights, settings)
        self.centres_ = centres(rows, labels)

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Return the trees' score ^ alpha · the centres' score ^ (1 - alpha) for the labels that the trees find."""
        settings = self.configuration_
        found = self.forest_.scores(rows, len(self.labels_))
        distances = squared_distances(scale_rows(rows), self.centres_, found)
        near = 1 / (1 + np.exp(settings.gamma / 2 * distances))
        found.data = (found.data**settings.alpha * near ** (1 - settings.alpha)).astype(np.float32)
        return found

    def tensors(self) -> dict[str, Array]:
        """Return the trees and the centres."""
        return {**self.forest_.tensors(), **sparse_tensors("centres", self.centres_)}

    def restore(self, tensors: Mapping[str, Array], folder: Path) -> None:
        """Take over the trees and the centres."""
        self.forest_ = Forest.restore(tensors, len(self.vocabulary_.words), len(self.labels_))
        self.centres_ = sparse_matrix("centres", tensors)


def centres(rows: csr_matrix, labels: csr_matrix) -> csr_matrix:
    """Return the mean of each label's documents, each scaled to length 1: (labels, words).

    >>> print(centres(csr_matrix([[2.0, 0.0], [0.0, 3.0]]), csr_matrix([[1.0, 1.0], [0.0, 1.0]])).toarray())
    [[1.  0. ]
     [0.5 0.5]]
    """
    sums = csr_matrix(labels.T) @ scale_rows(rows)
    counts = np.maximum(np.asarray(labels.sum(axis=0)).ravel(), 1)
    sums.data = (sums.data / np.repeat(counts, np.diff(sums.indptr))).astype(rows.dtype)
    sums.sort_indices()
    return csr_matrix(sums)


def squared_distances(rows: csr_matrix, points: csr_matrix, pairs: csr_matrix) -> Array:
    """Return the squared distance of row i and point j for every stored entry (i, j) of `pairs`, in their order.

    >>> squared_distances(csr_matrix([[1.0, 0.0]]), csr_matrix([[0.0, 1.0], [0.5, 0.0]]), csr_matrix([[1, 1]])).tolist()
    [2.0, 0.25]
    """
    width = pairs.shape[1]
    owner = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    products = csr_matrix((rows @ points.T).multiply(pairs.astype(bool)))  # those not 0
    products.sort_indices()
    places = np.searchsorted(
        owner * width + pairs.indices,
        np.repeat(np.arange(pairs.shape[0]), np.diff(products.indptr)) * width + products.indices,
    )
    distances = squared_lengths(rows)[owner] + squared_lengths(points)[pairs.indices]
    distances[places] -= 2 * products.data
    return np.asarray(np.maximum(distances, 0))


def squared_lengths(rows: csr_matrix) -> Array:
    """Return the squared length of each row."""
    return np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
