"""Popular: every document gets the labels that are most frequent in training; the floor any model must clear."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_matrix

from laha.errors import ConfigurationError
from laha.estimator import KIND, Documents, Estimator, as_parts
from laha.prepared import Label, Prepared, read_labels, write_labels
from laha.ranking import TopK
from laha.storage import atomic_folder, read_manifest, write_manifest, write_tensors


@dataclass(frozen=True, kw_only=True)
class PopularConfiguration:
    """Nothing to set."""


class Popular(Estimator):
    """Scores a label by the share of training documents that have it, whatever the text says."""

    Configuration = PopularConfiguration

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "popular"

    def fit(self, documents: Any, labels: Any = None, valid: Any = None) -> Self:
        """Count the labels."""
        if isinstance(documents, Prepared):
            self.labels_ = documents.labels[: documents.train_labels]
            self.train_documents_ = len(documents.part("train"))
            name = documents.name
        else:
            parts = as_parts(documents, labels, valid)
            train = parts.train_part()
            counts = np.asarray(train.labels.sum(axis=0)).ravel().astype(int)
            self.labels_ = [Label(name, int(n)) for name, n in zip(train.label_names, counts, strict=True)]
            self.train_documents_, name = len(train), parts.name
        self.trained_ = {"corpus": name, "device": "cpu"}
        return self

    def predict(self, texts: Documents, top: int = 5) -> TopK:
        """Return the most frequent labels for each text."""
        if top < 1:
            raise ConfigurationError(f"top={top}: ask for at least one label")
        scores = self._scores()
        best = np.argsort(-scores, kind="stable")[:top]
        names = [label.name for label in self.labels_]
        return TopK(np.tile(best, (len(texts), 1)), np.tile(scores[best], (len(texts), 1)), names)

    def predict_scores(self, texts: Documents) -> csr_matrix:
        """Return the share of training documents of every label, for each text."""
        return csr_matrix(np.tile(self._scores(), (len(texts), 1)))

    def _scores(self) -> Any:
        self.check_fitted()
        frequency = np.array([label.frequency for label in self.labels_], dtype=np.float32)
        return frequency / max(1, self.train_documents_)

    def save(self, path: str | Path, log: Path | None = None) -> None:
        """Write the model folder."""
        self.check_fitted()
        with atomic_folder(Path(path)) as folder:
            write_labels(folder / "labels.jsonl", self.labels_)
            write_tensors(folder / "weights.safetensors", {"frequency": self._scores()})
            write_manifest(folder, KIND, self.facts(self.configuration, 0))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a model folder."""
        folder = Path(path)
        manifest = read_manifest(folder, KIND)
        model = cls()
        model.labels_ = read_labels(folder / "labels.jsonl")
        model.train_documents_ = manifest["train_documents"]
        model.trained_ = manifest["training"]
        return model
