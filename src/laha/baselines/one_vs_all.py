"""One-vs-all: a pruned linear classifier a label, as DiSMEC trains them (Babbar and Schölkopf, 2017).

Each label gets its own linear classifier with squared hinge loss, learned by liblinear in the primal on all training
documents; weights near zero are dropped, so that the model fits in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack
from scipy.special import expit

from laha.baselines.classical import Classical, ClassicalConfiguration, available_cores, sparse_matrix, sparse_tensors
from laha.configuration import check_range
from laha.errors import ConfigurationError

CERTAIN = 10.0  # the margin of a label that no training document has, or that all have: nothing can be learned of it


@dataclass(frozen=True, kw_only=True)
class OneVsAllConfiguration(ClassicalConfiguration):
    """The settings of one-vs-all; each default with its reason."""

    cost: float = 0.3  # C of liblinear, the price of an error; DiSMEC has 1, which overfits (experiments/README.md)
    tolerance: float = 0.01  # where liblinear stops; its own default for this solver
    prune: float = 0.01  # weights below it are dropped; DiSMEC's
    label_limit: int = 10_000  # more labels are refused: each is a pass over all documents, so they would take hours
    workers: int | None = None  # threads that train labels side by side; None: one a core

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("cost", "tolerance"), 1e-9)
        check_range(self, ("prune",), 0)
        check_range(self, ("label_limit", "workers"), 1)


class OneVsAll(Classical):
    """A linear classifier for each label, on its own; a score is the logistic function of its margin."""

    Configuration = OneVsAllConfiguration
    weights_: csr_matrix  # (words, labels): a document's few words find their rows at once
    bias_: NDArray[np.float32]  # (labels,)

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "one-vs-all"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Train the labels side by side: liblinear works outside Python's lock."""
        configuration = self.configuration_
        if labels.shape[1] > configuration.label_limit:
            raise ConfigurationError(
                f"{labels.shape[1]} labels are many for one-vs-all: take parabel or bonsai, or, with hours to spare, "
                f"set label_limit={labels.shape[1]}"
            )
        rows = rows.astype(np.float64)  # once, not a label: liblinear computes in double precision
        columns = labels.tocsc()

        def train(label: int) -> tuple[csr_matrix, float]:
            positive = np.zeros(rows.shape[0], dtype=bool)
            positive[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
            return train_label(rows, positive, configuration)

        with ThreadPoolExecutor(configuration.workers or available_cores()) as pool:
            trained = list(pool.map(train, range(labels.shape[1])))
        self.weights_ = csr_matrix(vstack([weights for weights, _ in trained], format="csr").T)
        self.bias_ = np.array([bias for _, bias in trained], dtype=np.float32)

    def score(self, rows: csr_matrix) -> NDArray[np.float32]:
        """Return the logistic function of every label's margin."""
        margins = (rows @ self.weights_).toarray() + self.bias_  # (documents, labels)
        return np.asarray(expit(margins), dtype=np.float32)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the weights and the biases."""
        return {"bias": self.bias_, **sparse_tensors("weights", self.weights_)}

    def restore(self, tensors: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Take over the weights and the biases."""
        self.bias_ = tensors["bias"]
        self.weights_ = sparse_matrix("weights", tensors)


def train_label(
    rows: csr_matrix, positive: NDArray[np.bool_], configuration: OneVsAllConfiguration
) -> tuple[csr_matrix, float]:
    """Return the pruned weights (1, words) and the bias that tell one label's documents from all others."""
    from sklearn import config_context
    from sklearn.svm import LinearSVC

    if positive.all() or not positive.any():
        return csr_matrix((1, rows.shape[1]), dtype=np.float32), CERTAIN if positive.all() else -CERTAIN
    # The primal solver, as in DiSMEC: it draws nothing at random, so threads cannot disturb each other.
    classifier = LinearSVC(C=configuration.cost, tol=configuration.tolerance, dual=False)
    with config_context(assume_finite=True):
        classifier.fit(rows, positive)
    weights = classifier.coef_[0]
    kept = np.flatnonzero(np.abs(weights) >= configuration.prune)
    sparse = csr_matrix((weights[kept].astype(np.float32), kept, [0, len(kept)]), shape=(1, rows.shape[1]))
    return sparse, float(classifier.intercept_[0])
