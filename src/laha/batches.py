"""Length-bucketed batches: documents of like length together, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from laha.vocabulary import PADDING, UNKNOWN, WordIds

POOL = 50  # batches sorted by length together: enough for little padding, few enough to keep epochs different


def shuffled_batches(lengths: NDArray[np.int64], batch: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Split all documents into batches of like length, in random order."""
    order = rng.permutation(len(lengths))
    groups: list[NDArray[np.int64]] = []
    for start in range(0, len(order), batch * POOL):
        pool = order[start : start + batch * POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        groups += [pool[low : low + batch] for low in range(0, len(pool), batch)]
    return [groups[number] for number in rng.permutation(len(groups))]


def sorted_batches(lengths: NDArray[np.int64], words: int, max_words: int) -> Iterator[NDArray[np.int64]]:
    """Split all documents into batches of at most `words` words, padding counted, or one document, by falling length.

    The most memory is needed first; short documents come in large batches.

    >>> [batch.tolist() for batch in sorted_batches(np.array([1, 9, 4, 4, 2]), words=9, max_words=100)]
    [[1], [2, 3], [4, 0]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = min(max(1, int(lengths[order[start]])), max_words)
        count = max(1, words // longest)
        yield order[start : start + count]
        start += count


def pad(words: WordIds, documents: NDArray[np.int64], max_words: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the documents' word ids, padded at the end to the longest, and their lengths.

    A document without words becomes one unknown word, so that a softmax over its words exists.

    >>> pad(WordIds(np.array([5, 6, 7]), np.array([0, 3, 3])), np.array([0, 1]), max_words=2)
    (array([[5, 6],
           [1, 0]]), array([2, 1]))
    """
    starts = words.offsets[documents]
    lengths = np.minimum(words.offsets[documents + 1] - starts, max_words)
    longest = max(1, int(lengths.max(initial=0)))
    column = np.arange(longest)
    inside = column < lengths[:, None]  # (documents, longest)
    padded = np.full(inside.shape, PADDING, dtype=np.int64)
    padded[inside] = words.ids[(starts[:, None] + column)[inside]]
    padded[lengths == 0, 0] = UNKNOWN
    return padded, np.maximum(lengths, 1)
