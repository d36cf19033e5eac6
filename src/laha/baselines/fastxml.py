"""FastXML: a forest whose nodes part documents so that nDCG is best on both sides (Prabhu & Varma 2014).

A label's score is the share of documents that have it in the leaf a document falls in, averaged over the trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from laha.baselines.classical import Classical
from laha.baselines.forest import Array, Forest, ForestConfiguration


class FastXML(Classical):
    """A forest whose trees rank labels."""

    Configuration = ForestConfiguration
    forest_: Forest

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "fastxml"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Grow the trees; every label counts the same."""
        self.forest_ = Forest.grow(rows, labels, np.ones(labels.shape[1]), self.configuration_)

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Average the leaves; a label in none of them is not stored."""
        return self.forest_.scores(rows, len(self.labels_))

    def tensors(self) -> dict[str, Array]:
        """Return the trees."""
        return self.forest_.tensors()

    def restore(self, tensors: Mapping[str, Array], folder: Path) -> None:
        """Take over the trees."""
        self.forest_ = Forest.restore(tensors, len(self.vocabulary_.words), len(self.labels_))
