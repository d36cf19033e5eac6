"""Evaluate a model on documents whose labels are known: evaluate(model, corpus) -> Report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_matrix

from laha.corpus import Corpus
from laha.metrics import RankingMetrics, label_groups, top_labels
from laha.prepared import Label, Prepared
from laha.progress import Progress, silent
from laha.vocabulary import WordIds

BATCH = 256  # documents scored at once: bounds the memory of their scores
DEPTH = 5


class Scorer(Protocol):
    """What evaluation asks of a model."""

    labels_: list[Label]
    train_documents_: int

    def predict_scores(self, texts: Sequence[str] | WordIds) -> csr_matrix:
        """Return the scores of documents (documents, labels)."""


@dataclass(frozen=True)
class Report:
    """The metrics of a model on one part of a corpus."""

    metrics: dict[str, float]
    groups: dict[str, dict[str, float]]
    documents: int
    documents_without_labels: int
    milliseconds_per_document: float
    intervals: dict[str, list[float]] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what `laha evaluate --json` prints."""
        document: dict[str, Any] = {
            **self.metrics,
            "documents": self.documents,
            "documents_without_labels": self.documents_without_labels,
            "groups": self.groups,
        }
        return document if self.intervals is None else {**document, "intervals": self.intervals}


def evaluate(
    model: Scorer, corpus: Corpus | Prepared, intervals: bool = False, part: str = "test", progress: Progress = silent
) -> Report:
    """Rank all labels for every document and compare with its own.

    Within a group of labels both the ranking and the truth are restricted to the group; labels that the model has
    never seen count as misses, and form a group of their own.
    """
    documents, truth = _documents_and_truth(model, corpus, part)
    labels = len(model.labels_)
    frequency = np.array([label.frequency for label in model.labels_])
    masks = label_groups(frequency, truth.shape[1])
    overall = RankingMetrics(frequency, model.train_documents_)
    grouped = {name: RankingMetrics(frequency, model.train_documents_, mask) for name, mask in masks.items()}
    seconds = 0.0
    for start in range(0, truth.shape[0], BATCH):
        chunk = _slice(documents, start, start + BATCH)
        began = time.perf_counter()
        scores = model.predict_scores(chunk)
        seconds += time.perf_counter() - began
        rows = truth[start : start + BATCH]
        overall.add(top_labels(scores, DEPTH), rows)
        for name, group in grouped.items():
            group.add(top_labels(scores, DEPTH, masks[name][:labels]), rows)
        progress("evaluation", min(1.0, (start + BATCH) / truth.shape[0]))
    return Report(
        metrics=overall.metrics(),
        groups={name: {**group.metrics(), "documents": group.documents} for name, group in grouped.items()},
        documents=overall.documents,
        documents_without_labels=overall.documents_without_labels,
        milliseconds_per_document=1000 * seconds / max(1, truth.shape[0]),
        intervals=overall.intervals() if intervals else None,
    )


def _documents_and_truth(
    model: Scorer, corpus: Corpus | Prepared, part: str
) -> tuple[Sequence[str] | WordIds, csr_matrix]:
    names = [label.name for label in model.labels_]
    if isinstance(corpus, Corpus):
        return corpus.texts, corpus.labels_by(names)[0]
    prepared = corpus.part(part)
    columns = {label.name: column for column, label in enumerate(corpus.labels)}
    # Labels of the model first, then those it does not know, as Corpus.labels_by orders them.
    known = [columns.pop(name, -1) for name in names]
    order = np.array(known + list(columns.values()))
    empty = csr_matrix((prepared.labels.shape[0], 1), dtype=prepared.labels.dtype)
    padded = csr_matrix(_hstack(prepared.labels, empty))  # column -1 stands for a label the prepared corpus lacks
    return prepared.words, padded[:, order % padded.shape[1]]


def _hstack(left: csr_matrix, right: csr_matrix) -> Any:
    from scipy.sparse import hstack

    return hstack([left, right], format="csr")


def _slice(documents: Sequence[str] | WordIds, start: int, stop: int) -> Sequence[str] | WordIds:
    if not isinstance(documents, WordIds):
        return documents[start:stop]
    offsets = documents.offsets[start : stop + 1]
    return WordIds(documents.ids[offsets[0] : offsets[-1]], offsets - offsets[0])
