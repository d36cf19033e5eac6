"""What the server knows of labels: by name and by uri, their neighbours, and documents that have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np

from laha.corpus import Corpus
from laha.estimator import Estimator
from laha.serve.label_search import LabelSearch

SCHEME = "label:"  # of the uri of a label to which the corpus gives no identifier
HEAD, TORSO = 50, 5  # training documents above which a label belongs to the group
NEIGHBOURS = 10
EXAMPLES, EXAMPLE_SIGNS = 3, 300  # kept a label, and of each document


class LabelDetails:
    """The labels of a model, found and described."""

    def __init__(self, estimator: Estimator, examples: Corpus | None = None):
        self._estimator, self.labels = estimator, estimator.labels_
        self._by_name = {label.name: number for number, label in enumerate(self.labels)}
        self._by_uri: dict[str, int] = {}
        for number, label in enumerate(self.labels):
            if label.identifier is not None:
                self._by_uri.setdefault(label.identifier, number)
        self.search = LabelSearch(self.labels)
        self._lengths: Any = None  # of the label vectors, once asked for
        self._examples = None if examples is None else _examples(examples, self._by_name)

    def find(self, given: str) -> int | None:
        """Return the id of a label given by its name, its identifier, or `label:NAME`, in that order."""
        for known, key in (
            (self._by_name, given),
            (self._by_uri, given),
            (self._by_name, given.removeprefix(SCHEME)),
            (self._by_name, unquote(given.removeprefix(SCHEME))),
        ):
            if key in known:
                return known[key]
        return None

    def entry(self, number: int) -> dict[str, Any]:
        """Describe a label in short."""
        label = self.labels[number]
        uri = SCHEME + label.name if label.identifier is None else label.identifier
        return {"label": label.name, "uri": uri, "frequency": label.frequency, "group": group_of(label.frequency)}

    def describe(self, number: int) -> dict[str, Any]:
        """Describe a label in full."""
        graph = self._estimator.neighbours_
        shared = None if graph is None else [self.entry(n) | {"documents": count} for n, count in graph.of(number)]
        return {
            **self.entry(number),
            "other_names": list(self.labels[number].other_names),
            "neighbours": {"graph": shared, "vectors": self._nearest(number)},
            "examples": None if self._examples is None else self._examples.get(number, []),
        }

    def _nearest(self, number: int) -> list[dict[str, Any]] | None:
        """Return the labels whose vectors point most nearly the same way."""
        vectors = self._estimator.vectors_of_labels()
        if vectors is None or number >= len(vectors):  # a label known by its name alone has none
            return None
        if self._lengths is None:
            self._lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
        similar = vectors @ vectors[number] / (self._lengths * self._lengths[number])
        similar[number] = -np.inf
        count = min(NEIGHBOURS, len(similar) - 1)
        best = np.argpartition(-similar, count)[:count] if count < len(similar) - 1 else np.argsort(-similar)[:count]
        best = best[np.argsort(-similar[best], kind="stable")]
        return [self.entry(int(n)) | {"similarity": round(float(similar[n]), 4)} for n in best]


def group_of(frequency: int) -> str:
    """Name the group of a label by its training documents, as the metrics part them.

    >>> group_of(51), group_of(50), group_of(5), group_of(0)
    ('head', 'torso', 'tail', 'unseen')
    """
    if frequency > HEAD:
        return "head"
    return "torso" if frequency > TORSO else "tail" if frequency else "unseen"


def _examples(corpus: Corpus, numbers: dict[str, int]) -> dict[int, list[str]]:
    kept: dict[int, list[str]] = {}
    columns: Sequence[int | None] = [numbers.get(name) for name in corpus.label_names]
    for row, text in enumerate(corpus.texts):
        for column in corpus.labels.indices[corpus.labels.indptr[row] : corpus.labels.indptr[row + 1]]:
            number = columns[column]
            if number is not None and len(kept.setdefault(number, [])) < EXAMPLES:
                kept[number].append(text[:EXAMPLE_SIGNS])
    return kept
