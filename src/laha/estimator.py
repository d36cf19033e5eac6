"""The contract of every model: fit, predict, predict_scores, save, load, by scikit-learn's conventions."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.configuration import build, check_known, known_settings
from laha.corpus import Corpus, Parts
from laha.errors import LahaError
from laha.label_neighbours import LabelNeighbours
from laha.prepared import Label, Prepared
from laha.ranking import TopK
from laha.vocabulary import WordIds

Documents = Sequence[str] | WordIds
KIND = "model"  # what the manifest of a model folder says it is


class Estimator(ABC):
    """A model with settings. The constructor only stores them; None stands for the default.

    What `fit` learns ends in an underscore: `labels_` (names and training frequencies, in the order of label ids),
    `train_documents_`, and `trained_` (what the manifest says of training).
    """

    Configuration: ClassVar[type]
    # Whether fit takes a folder for checkpoints and can be resumed.
    resumable: ClassVar[bool] = False
    # Score every label even where the model would score a shortlist of them; models without one always do.
    exact: bool = False
    # Of the numbers that documents are scored with: float32 or bfloat16; auto is bfloat16 on a GPU, float32 on a CPU.
    scoring_precision: str = "auto"
    labels_: list[Label]
    train_documents_: int
    trained_: dict[str, Any]
    neighbours_: LabelNeighbours | None = None  # in the label graph; None where a model folder was written without

    def __init__(self, **settings: Any):
        check_known(self.Configuration, settings)
        for name in known_settings(self.Configuration):
            setattr(self, name, settings.get(name))

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "Configuration" in vars(cls):  # so that help() and scikit-learn see the settings by name
            keyword = inspect.Parameter.KEYWORD_ONLY
            names = known_settings(cls.Configuration)
            settings = [inspect.Parameter(name, keyword, default=None) for name in names]
            cls.__signature__ = inspect.Signature(settings)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value is not None)
        return f"{type(self).__name__}({given})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings as they were given."""
        return {name: getattr(self, name) for name in known_settings(self.Configuration)}

    def set_params(self, **settings: Any) -> Self:
        """Change settings."""
        check_known(self.Configuration, settings)
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    @property
    def configuration(self) -> Any:
        """The settings with every default filled in, checked."""
        return build(self.Configuration, self.get_params())

    @property
    def repeatable(self) -> bool:
        """Whether the same seed gives the same model: not where a library draws at random without one."""
        return True

    @property
    @abstractmethod
    def model_name(self) -> str:
        """The name under which `laha train --model` knows this model."""

    @abstractmethod
    def fit(self, documents: Sequence[str] | Corpus | Parts | Prepared, labels: Any = None, valid: Any = None) -> Self:
        """Learn from tagged documents: texts with `labels`, or a corpus; `valid` likewise chooses the checkpoint."""

    @abstractmethod
    def predict(self, texts: Documents, top: int = 5) -> TopK:
        """Return the best labels of each text."""

    @abstractmethod
    def predict_scores(self, texts: Documents) -> csr_matrix:
        """Return the scores (documents, labels)."""

    @abstractmethod
    def save(self, path: str | Path, log: Path | None = None) -> None:
        """Write the model folder, with a training log where there is one."""

    @classmethod
    @abstractmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a model folder."""

    def facts(self, configuration: Any, words: int) -> dict[str, Any]:
        """Return what the manifest of a model folder says of the model."""
        return {
            "model": self.model_name,
            "configuration": asdict(configuration),
            "labels": len(self.labels_),
            "words": words,
            "train_documents": self.train_documents_,
            "training": self.trained_,
        }

    def score_at_precision(self, precision: float) -> float:
        """Return the score from which on labels held that precision (0 to 1) on held-out documents; inf: none did."""
        raise LahaError(f"{self.model_name} is not calibrated and can promise no precision: train laha-best instead")

    def vectors_of_labels(self) -> NDArray[np.float32] | None:
        """Return vectors (labels, dimensions), like labels near each other, perhaps of the first labels alone."""
        return None

    def check_fitted(self) -> None:
        """Refuse to predict before fit."""
        if not hasattr(self, "labels_"):
            raise LahaError(f"this {type(self).__name__} has not learned anything yet: call fit or load first")


def as_parts(documents: Any, labels: Any, valid: Any) -> Parts:
    """Turn what fit was given into the parts of a corpus."""
    if isinstance(documents, Parts):
        return documents
    train = documents if isinstance(documents, Corpus) else _given(documents, labels)
    if valid is None or isinstance(valid, Corpus):
        return Parts(train=train, valid=valid, test=None, name=train.name)
    if not isinstance(valid, tuple) or len(valid) != 2:
        raise LahaError("valid must be a Corpus or a pair (texts, labels)")
    return Parts(train=train, valid=_given(*valid), test=None, name=train.name)


def _given(texts: Any, labels: Any) -> Corpus:
    if labels is None:
        raise LahaError("fit needs the labels of the texts: fit(texts, labels) or fit(corpus)")
    return Corpus.from_lists(texts, labels)
