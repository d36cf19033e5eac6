"""Corpus: documents with their sets of labels, as every model is given them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from laha.errors import CorpusError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """One document as read: `labels` is None where the source does not say, which only tagging accepts."""

    text: str
    labels: tuple[str, ...] | None
    id: str | None
    line: int


@dataclass(frozen=True)
class LabelDetail:
    """What is known of a label beside its name."""

    identifier: str | None = None
    other_names: tuple[str, ...] = ()


@dataclass(eq=False)
class Corpus:
    """Documents, their labels as a sparse matrix of ones (documents × labels), and the names of both."""

    texts: list[str]
    labels: sparse.csr_matrix
    label_names: list[str]
    ids: list[str]
    name: str
    label_details: dict[str, LabelDetail] = field(default_factory=dict)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Record],
        name: str,
        path: str | Path | None = None,
        label_details: dict[str, LabelDetail] | None = None,
    ) -> Corpus:
        """Gather records, one at a time, into a corpus whose labels are in alphabetical order."""
        texts: list[str] = []
        ids: list[str] = []
        label_sets: list[list[int]] = []
        columns: dict[str, int] = {}
        for record in records:
            if record.labels is None:
                raise CorpusError(
                    "the document has no labels: give each its labels, or an empty list if it has none",
                    path or name,
                    record.line,
                )
            names = dict.fromkeys(label.strip() for label in map(replace_surrogates, record.labels))
            label_sets.append([columns.setdefault(label, len(columns)) for label in names if label])
            texts.append(replace_surrogates(record.text))
            ids.append(str(record.line) if record.id is None else record.id)
        label_names = sorted(columns)
        position = np.empty(len(columns), dtype=np.int64)
        position[[columns[label] for label in label_names]] = np.arange(len(columns))
        matrix = _matrix(label_sets, position, len(label_names))
        return cls(texts, matrix, label_names, ids, name, dict(label_details or {}))

    @classmethod
    def from_lists(cls, texts: Iterable[str], labels: Any, name: str = "given") -> Corpus:
        """Make a corpus of texts and their labels: a list of names each, or one 0-1 matrix (documents × labels).

        A matrix keeps its columns as they are, also those without a document; they are named "0", "1", …
        """
        texts = _checked_texts(texts)
        is_matrix = sparse.issparse(labels) or isinstance(labels, np.ndarray)
        count = labels.shape[0] if is_matrix else len(labels)
        if count != len(texts):
            raise CorpusError(f"{len(texts)} texts but {count} sets of labels: give one set of labels for each text")
        if not is_matrix:
            records = (Record(text, _checked_labels(names, n), None, n) for n, (text, names) in _pairs(texts, labels))
            return cls.from_records(records, name)
        matrix = _checked_matrix(labels)
        ids = [str(number) for number in range(1, len(texts) + 1)]
        return cls(texts, matrix, [str(column) for column in range(matrix.shape[1])], ids, name)

    def __len__(self) -> int:
        return len(self.texts)

    def records(self) -> Iterator[Record]:
        """Yield the documents in order; an id that is only the document's number is left out."""
        for row, (text, identifier) in enumerate(zip(self.texts, self.ids, strict=True)):
            given = None if identifier == str(row + 1) else identifier
            yield Record(text, tuple(self._names_of(row)), given, row + 1)

    def _names_of(self, row: int) -> list[str]:
        start, end = self.labels.indptr[row : row + 2]
        return [self.label_names[column] for column in self.labels.indices[start:end]]

    def subset(self, indices: Sequence[int] | np.ndarray[Any, Any]) -> Corpus:
        """Return the documents at these positions, with the labels that occur among them."""
        matrix = self.labels[np.asarray(indices, dtype=np.int64)]
        used = np.flatnonzero(np.bincount(matrix.indices, minlength=matrix.shape[1]))
        matrix = matrix[:, used]
        matrix.sort_indices()
        return Corpus(
            [self.texts[index] for index in indices],
            matrix,
            [self.label_names[column] for column in used],
            [self.ids[index] for index in indices],
            self.name,
            self.label_details,
        )

    def labels_by(self, label_names: list[str]) -> tuple[sparse.csr_matrix, list[str]]:
        """Express the labels in the columns of another list of names; labels it lacks follow, and are returned.

        >>> corpus = Corpus.from_lists(["one text"], [["law", "tax"]])
        >>> matrix, lacking = corpus.labels_by(["tax", "trade"])
        >>> matrix.toarray().tolist(), lacking
        ([[1.0, 0.0, 1.0]], ['law'])
        """
        known = {label: column for column, label in enumerate(label_names)}
        lacking = [label for label in self.label_names if label not in known]
        known.update((label, len(label_names) + extra) for extra, label in enumerate(lacking))
        position = np.array([known[label] for label in self.label_names], dtype=np.int64)
        columns = position[self.labels.indices]
        shape = (len(self), len(label_names) + len(lacking))
        matrix = sparse.csr_matrix((self.labels.data, columns, self.labels.indptr), shape=shape, copy=True)
        matrix.sort_indices()
        return matrix, lacking

    def split(self, fraction: float, seed: int) -> tuple[Corpus, Corpus]:
        """Split at random into a train part and a held-out part of about this fraction, each in document order."""
        if len(self) < 2:
            raise CorpusError("a corpus of fewer than 2 documents cannot be split: add documents", self.name)
        if not 0 < fraction < 1:
            raise CorpusError(f"cannot hold out a fraction of {fraction}: give one between 0 and 1", self.name)
        held = min(max(round(len(self) * fraction), 1), len(self) - 1)
        order = np.random.default_rng(seed).permutation(len(self))
        return self.subset(np.sort(order[held:])), self.subset(np.sort(order[:held]))

    def sha256(self) -> str:
        """Hash the texts and labels in order, whatever format they were read from; ids do not count."""
        digest = hashlib.sha256()
        for row, text in enumerate(self.texts):
            document = {"labels": sorted(self._names_of(row)), "text": text}
            digest.update(json.dumps(document, separators=(",", ":")).encode() + b"\n")
        return digest.hexdigest()


@dataclass(eq=False)
class Parts:
    """The parts of a corpus; one that is absent, or was not asked for, is None."""

    train: Corpus | None
    valid: Corpus | None
    test: Corpus | None
    name: str

    def train_part(self) -> Corpus:
        """Return the train part, or say that there is none."""
        if self.train is None:
            raise CorpusError(f"{self.name} has no train part to learn from: add train.jsonl, say")
        return self.train

    def present(self) -> dict[str, Corpus]:
        """Return the parts there are, by their names."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: corpus for name, corpus in parts.items() if corpus is not None}


def replace_surrogates(text: str) -> str:
    r"""Replace lone surrogates, which JSON can spell but UTF-8 cannot, by U+FFFD.

    >>> replace_surrogates("\ud800!")
    '�!'
    """
    return _LONE_SURROGATE.sub("\ufffd", text)


def _matrix(rows: list[list[int]], position: np.ndarray[Any, Any], columns: int) -> sparse.csr_matrix:
    indptr = np.cumsum([0] + [len(row) for row in rows])
    indices = position[np.fromiter((column for row in rows for column in row), dtype=np.int64, count=indptr[-1])]
    matrix = sparse.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(rows), columns))
    matrix.sort_indices()
    return matrix


def _pairs(texts: list[str], labels: Iterable[Any]) -> Iterator[tuple[int, tuple[str, Any]]]:
    return enumerate(zip(texts, labels, strict=True), start=1)


def _checked_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise CorpusError("the texts are a single string: give a list of texts")
    texts = list(texts)
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise CorpusError(f"text {number} is of type {type(text).__name__}: give each text as a string")
    return [replace_surrogates(text) for text in texts]


def _checked_labels(names: Any, number: int) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise CorpusError(f"the labels of text {number} are {names!r}: give a list of names")
    checked: tuple[str, ...] = tuple(names)
    if not all(isinstance(name, str) for name in checked):
        raise CorpusError(f"the labels of text {number} are not all strings: give a list of names")
    return checked


def _checked_matrix(labels: Any) -> sparse.csr_matrix:
    if labels.ndim != 2:
        raise CorpusError(f"the label matrix has {labels.ndim} dimension(s): give documents × labels")
    matrix = sparse.csr_matrix(labels, dtype=np.float32, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.all(matrix.data == 1):
        raise CorpusError("the label matrix holds values other than 0 and 1: give 1 where a document has a label")
    return matrix
