"""What a corpus is like: the columns of the paper's Table 1, and how its labels are spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from laha.corpus import Corpus, Parts

# The last bin has no upper end.
FREQUENCY_BINS = ((1, 1), (2, 5), (6, 10), (11, 50), (51, 100), (101, 1000), (1001, None))


def describe(parts: Parts, words: Callable[[str], list[str]]) -> dict[str, Any]:
    """Count documents, distinct words and labels, and average as the paper's Table 1 does, over the train part.

    Words and labels are counted over all parts; without a train part the averages are those of the first there is.
    `words` splits a text into its words.
    """
    corpora = parts.present()
    distinct: set[str] = set()
    lengths = {part: _count_words(corpus, words, distinct) for part, corpus in corpora.items()}
    first = next(iter(corpora.values()), None)
    frequency = _frequency(first)
    tagged = int(frequency.sum())
    names = set().union(*(_occurring(corpus) for corpus in corpora.values()))
    return {
        "name": parts.name,
        "train_documents": _size(parts.train),
        "valid_documents": _size(parts.valid),
        "test_documents": _size(parts.test),
        "words": len(distinct),
        "labels": len(names),
        "labels_per_document": tagged / max(_size(first), 1),
        "documents_per_label": tagged / max(len(frequency), 1),
        "words_per_train_document": lengths.get("train", 0.0),
        "words_per_valid_document": lengths.get("valid", 0.0),
        "words_per_test_document": lengths.get("test", 0.0),
        "documents_without_labels": sum(int((np.diff(c.labels.indptr) == 0).sum()) for c in corpora.values()),
        "labels_unseen_in_train": len(names) - len(frequency) if parts.train is not None else 0,
        "label_frequencies": histogram(frequency),
    }


def _size(corpus: Corpus | None) -> int:
    return 0 if corpus is None else len(corpus)


def _count_words(corpus: Corpus, words: Callable[[str], list[str]], distinct: set[str]) -> float:
    total = 0
    for text in corpus.texts:
        found = words(text)
        distinct.update(found)
        total += len(found)
    return total / max(len(corpus), 1)


def _frequency(corpus: Corpus | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Count the documents of each label that has any."""
    if corpus is None:
        return np.zeros(0, dtype=np.int64)
    counts: np.ndarray[Any, np.dtype[np.int64]] = np.bincount(corpus.labels.indices)
    return counts[counts > 0]


def _occurring(corpus: Corpus) -> set[str]:
    return {corpus.label_names[column] for column in np.unique(corpus.labels.indices)}


def histogram(frequency: np.ndarray[Any, np.dtype[np.int64]]) -> list[dict[str, Any]]:
    """Count the labels in each bin of training frequency."""
    bins = []
    for low, high in FREQUENCY_BINS:
        within = (frequency >= low) & (frequency <= (high or np.inf))
        name = f">{low - 1}" if high is None else str(low) if low == high else f"{low}-{high}"
        bins.append({"documents": name, "labels": int(within.sum())})
    return bins
