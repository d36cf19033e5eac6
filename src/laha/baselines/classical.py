"""What the classical models share: features of words, scoring in batches, and the model folder."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from laha.configuration import check_range
from laha.errors import ConfigurationError, CorpusError, LahaError, ModelError
from laha.estimator import KIND, Documents, Estimator, as_parts
from laha.features import FeatureConfiguration, Features
from laha.label_neighbours import LabelNeighbours
from laha.metrics import top_labels
from laha.prepared import Label, Prepared, read_labels, write_labels
from laha.ranking import TopK
from laha.results import resident_peak, versions
from laha.storage import (
    atomic_folder,
    read_lines,
    read_manifest,
    read_tensors,
    write_lines,
    write_manifest,
    write_tensors,
)
from laha.vocabulary import Tokenizer, Vocabulary, WordIds

BATCH = 256  # documents scored at once: bounds the memory of their scores
RARITY = "features.rarity"  # the one tensor that every classical model has


@dataclass(frozen=True, kw_only=True)
class ClassicalConfiguration(FeatureConfiguration):
    """The settings that every classical model has."""

    seed: int = 0  # every random draw follows it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("seed",), 0, 2**31 - 1)


class Classical(Estimator):
    """A model of sparse features: it brings `learn`, `score`, `tensors` and `restore`; all else is here."""

    Configuration = ClassicalConfiguration
    configuration_: Any  # with the words as a prepared corpus has them
    vocabulary_: Vocabulary
    features_: Features

    @abstractmethod
    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Learn from features (documents, words), none of them empty, and 0-1 labels (documents, labels)."""

    @abstractmethod
    def score(self, rows: csr_matrix) -> csr_matrix | NDArray[np.float32]:
        """Return scores from 0 to 1, (documents, labels): all of them, or sparse the best of each document."""

    @abstractmethod
    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, to be saved."""

    @abstractmethod
    def restore(self, tensors: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Take over what `tensors` and `write_files` saved."""

    def write_files(self, folder: Path) -> None:
        """Write further files into the model folder (no folders in it)."""

    def memory_elsewhere(self) -> int:
        """Return the bytes that training held in other processes."""
        return 0

    def fit(self, documents: Any, labels: Any = None, valid: Any = None) -> Self:
        """Learn from texts with labels, a Corpus, its Parts, or a Prepared corpus; `valid` is not needed."""
        configuration = self.configuration
        if isinstance(documents, Prepared):
            name, words, matrix, sha256 = self._take_prepared(configuration, documents)
        else:
            name, words, matrix, sha256 = self._take_parts(configuration, as_parts(documents, labels, valid))
        self.neighbours_ = LabelNeighbours.of_documents(matrix, seed=getattr(configuration, "seed", 0))
        began = time.perf_counter()
        self.train_documents_ = len(words)
        self.features_ = Features.fit(words, len(self.vocabulary_.words), self.configuration_.features)
        rows = self.features_.rows(words)
        filled = np.diff(rows.indptr) > 0  # an empty row has nothing to learn from, and Omikuji refuses it
        matrix = csr_matrix(matrix[filled])
        if not matrix.nnz:
            raise CorpusError(f"{name} has no training document with both words and labels: add some")
        self.learn(rows[filled], matrix)
        self.trained_ = {
            "corpus": name,
            "corpus_sha256": sha256,
            "versions": versions(),
            "seconds": time.perf_counter() - began,
            "peak_memory_bytes": resident_peak() + self.memory_elsewhere(),
            "device": "cpu",
        }
        return self

    def _take_prepared(self, configuration: Any, prepared: Prepared) -> tuple[str, WordIds, csr_matrix, str]:
        """Read a prepared corpus; its words are taken as they are, and settings that say otherwise are an error."""
        taken = {name: getattr(prepared.configuration, name) for name in ("max_words", "min_count", "vocabulary_words")}
        for name, value in taken.items():
            if getattr(self, name) not in (None, value):
                raise ConfigurationError(
                    f"the corpus was prepared with {name}={value}, not {getattr(self, name)}: prepare it anew"
                )
        self.configuration_ = replace(configuration, **taken)
        self.vocabulary_ = prepared.vocabulary
        self.labels_ = prepared.labels[: prepared.train_labels]
        part = prepared.part("train")
        return prepared.name, part.words, part.labels[:, : prepared.train_labels], part.sha256

    def _take_parts(self, configuration: Any, parts: Any) -> tuple[str, WordIds, csr_matrix, str]:
        self.configuration_ = configuration
        train = parts.train_part()
        tokenizer, cut = Tokenizer(), configuration.max_words
        documents = [tokenizer.words(text)[:cut] for text in train.texts]
        self.vocabulary_ = Vocabulary.build(documents, configuration.min_count, configuration.vocabulary_words)
        counts = np.asarray(train.labels.sum(axis=0)).ravel().astype(int)
        self.labels_ = []
        for name, frequency in zip(train.label_names, counts, strict=True):
            detail = train.label_details.get(name)
            identifier, others = (detail.identifier, detail.other_names) if detail else (None, ())
            self.labels_.append(Label(name, int(frequency), identifier, others))
        return parts.name, self.vocabulary_.encode(documents), train.labels, train.sha256()

    def predict(self, texts: Documents, top: int = 5) -> TopK:
        """Return the best labels of each text."""
        if top < 1:
            raise ConfigurationError(f"top={top}: ask for at least one label")
        self.check_fitted()
        names = [label.name for label in self.labels_]
        top = min(top, len(names))
        found = [TopK(np.zeros((0, top), np.int64), np.zeros((0, top), np.float32), names)]
        for scores in self._batches(texts):
            ids = top_labels(scores, top)
            rows = np.repeat(np.arange(len(ids)), top)
            values = np.asarray(scores[rows, np.maximum(ids, 0).ravel()]).reshape(ids.shape)
            found.append(TopK(ids, np.where(ids >= 0, values, 0).astype(np.float32), names))
        return TopK.concatenate(found)

    def predict_scores(self, texts: Documents) -> csr_matrix:
        """Return the scores (documents, labels); a label that is not stored was not thought worth scoring."""
        self.check_fitted()
        empty = csr_matrix((0, len(self.labels_)), dtype=np.float32)
        return csr_matrix(vstack([empty, *self._batches(texts)], format="csr"))

    def _batches(self, texts: Documents) -> Iterator[csr_matrix]:
        if isinstance(texts, str):
            raise LahaError("give a list of texts: one text is [text]")
        tokenizer, cut = Tokenizer(), self.configuration_.max_words
        for start in range(0, len(texts), BATCH):
            if isinstance(texts, WordIds):
                offsets = texts.offsets[start : start + BATCH + 1]
                words = WordIds(texts.ids[offsets[0] : offsets[-1]], offsets - offsets[0])
            else:
                words = self.vocabulary_.encode((tokenizer.words(t) for t in texts[start : start + BATCH]), cut)
            scores = self.score(self.features_.rows(words))
            yield scores if isinstance(scores, csr_matrix) else all_stored(scores)

    def save(self, path: str | Path, log: Path | None = None) -> None:
        """Write the model folder, atomically."""
        self.check_fitted()
        with atomic_folder(Path(path)) as folder:
            write_tensors(folder / "weights.safetensors", {RARITY: self.features_.rarity, **self.tensors()})
            write_labels(folder / "labels.jsonl", self.labels_)
            write_lines(folder / "vocabulary.txt", self.vocabulary_.words)
            if self.neighbours_ is not None:
                self.neighbours_.save(folder)
            self.write_files(folder)
            write_manifest(folder, KIND, self.facts(self.configuration_, len(self.vocabulary_.words)))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a model folder; every file is checked against its sum, and nothing is executed."""
        folder = Path(path)
        manifest = read_manifest(folder, KIND)
        tensors = read_tensors(folder / "weights.safetensors")[0]
        try:
            model = cls(**manifest["configuration"])
            model.configuration_ = model.configuration
            model.labels_ = read_labels(folder / "labels.jsonl")
            model.neighbours_ = LabelNeighbours.load(folder, len(model.labels_))
            model.vocabulary_ = Vocabulary(read_lines(folder / "vocabulary.txt"))
            model.features_ = Features(model.configuration_.features, tensors.pop(RARITY))
            model.train_documents_ = manifest["train_documents"]
            model.trained_ = manifest["training"]
            model.restore(tensors, folder)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder} is damaged ({error!r}): restore it from a copy") from error
        return model


def all_stored(scores: NDArray[np.float32]) -> csr_matrix:
    """Make a sparse matrix that stores every score, the zeros too: each is a prediction.

    >>> all_stored(np.array([[0.5, 0.0]], np.float32)).nnz
    2
    """
    rows, columns = scores.shape
    indices = np.tile(np.arange(columns, dtype=np.int32), rows)
    return csr_matrix((scores.ravel(), indices, np.arange(rows + 1) * columns), shape=scores.shape)


def sparse_tensors(name: str, matrix: csr_matrix) -> dict[str, NDArray[Any]]:
    """Take a sparse matrix apart for saving; `sparse_matrix` joins it again.

    >>> sparse_matrix("weights", sparse_tensors("weights", csr_matrix([[0.0, 2.0]]))).toarray().tolist()
    [[0.0, 2.0]]
    """
    return {
        f"{name}.data": matrix.data,
        f"{name}.indices": matrix.indices,
        f"{name}.indptr": matrix.indptr,
        f"{name}.shape": np.array(matrix.shape, dtype=np.int64),
    }


def sparse_matrix(name: str, tensors: Mapping[str, NDArray[Any]]) -> csr_matrix:
    """Join a sparse matrix from what `sparse_tensors` made of it."""
    parts = tuple(tensors[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
    return csr_matrix(parts, shape=tuple(int(size) for size in tensors[f"{name}.shape"]))


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
