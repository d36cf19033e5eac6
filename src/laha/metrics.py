"""How good rankings are: P@k, nDCG@k, R@k, PSP@k, PSnDCG@k, F1@5, label groups and bootstrap intervals.

Every metric but the macro F1 is a ratio of two sums over documents. So a batch is reduced to a few numbers a document,
batches can be streamed, and a bootstrap only has to weigh those numbers anew. Nothing here is ever as large as
documents × labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.errors import ModelError

CUTOFFS = (1, 3, 5)
DEPTH = CUTOFFS[-1]
DISCOUNT = 1 / np.log2(np.arange(2, DEPTH + 2))  # ranks start at 1, and rank 1 counts in full

RATIOS = (*(f"{name}@{k}" for name in ("P", "nDCG", "R", "PSP", "PSnDCG") for k in CUTOFFS), f"microF1@{DEPTH}")
METRICS = (*RATIOS, f"macroF1@{DEPTH}")
# Which denominator each ratio has: the number of documents, then PSP's and PSnDCG's best possible, then F1's.
DENOMINATOR = np.array([0] * 9 + [1, 2, 3, 4, 5, 6] + [7])

GROUPS = ("F<=5", "5<F<=50", "F>50", "unseen")

CELLS = 1 << 22  # the most numbers a temporary table holds: 32 MiB of float64


def top_labels(scores: csr_matrix, k: int, among: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Rank each document's k best labels: (documents, k) ids, best first, -1 where fewer scores are stored.

    Only stored entries are predictions; equal scores are ordered by label id. `among` restricts the ranking to a mask
    over labels.

    >>> scores = csr_matrix([[0.1, 0.7, 0.7], [0.0, 0.0, 0.2]])
    >>> top_labels(scores, 2).tolist()
    [[1, 2], [2, -1]]
    >>> top_labels(scores, 2, among=np.array([True, False, True])).tolist()
    [[2, 0], [2, -1]]
    """
    if not scores.has_canonical_format:
        scores = scores.copy()
        scores.sum_duplicates()
    if np.isnan(scores.data).any():
        raise ModelError("some scores are not numbers (NaN): train the model again with a lower learning rate")
    if among is not None:
        scores = restrict(scores, among)
    top = np.full((scores.shape[0], k), -1, dtype=np.int64)
    lengths = np.diff(scores.indptr)
    for documents in rows_of_similar_length(lengths):
        rows, labels, values = candidates(scores, documents, lengths[documents], k)
        order = np.lexsort((labels, -values, rows))
        rows = rows[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        kept = rank < k
        top[documents[rows[kept]], rank[kept]] = labels[order][kept]
    return top


def rows_of_similar_length(lengths: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
    """Split the non-empty rows so that each part, padded to its longest row, stays within CELLS (or is one row)."""
    order = np.argsort(lengths, kind="stable")
    order = order[np.searchsorted(lengths[order], 0, side="right") :]
    while len(order):
        cells = np.arange(1, len(order[:CELLS]) + 1) * lengths[order[:CELLS]].astype(np.int64)
        count = max(1, int(np.searchsorted(cells, CELLS, side="right")))
        yield order[:count]
        order = order[count:]


def candidates(
    scores: csr_matrix, documents: NDArray[np.int64], lengths: NDArray[Any], k: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Gather the scores that may be among the best k: those not below a document's k-th best, ties included."""
    width = int(lengths.max())
    filled = np.arange(width) < lengths[:, None]  # (documents, width)
    shift = scores.indptr[documents] - (np.cumsum(lengths) - lengths)
    stored = np.repeat(shift, lengths) + np.arange(lengths.sum())
    values, labels = scores.data[stored], scores.indices[stored]
    if width <= k:
        return np.nonzero(filled)[0], labels, values
    table = np.full(filled.shape, -np.inf, dtype=np.result_type(values, np.float32))
    table[filled] = values
    lowest = np.partition(table, width - k, axis=1)[:, width - k]
    kept = (table >= lowest[:, None])[filled]
    return np.repeat(np.arange(len(documents)), lengths)[kept], labels[kept], values[kept]


def restrict(matrix: csr_matrix, among: NDArray[np.bool_]) -> csr_matrix:
    """Drop the stored entries of labels outside the mask; a label beyond the mask's end is outside."""
    kept = np.append(among, False)[np.minimum(matrix.indices, len(among))]
    ends = np.concatenate(([0], np.cumsum(kept)))[matrix.indptr]
    return csr_matrix((matrix.data[kept], matrix.indices[kept], ends), shape=matrix.shape)


def propensities(frequency: NDArray[Any], documents: int, a: float = 0.55, b: float = 1.5) -> NDArray[np.float64]:
    """Estimate how likely a true label is to be given at all (Jain et al. 2016) from its frequency in train.

    p = 1 / (1 + C (frequency + b)^-a) with C = (ln documents - 1)(b + 1)^a. Under e documents C would be negative; it
    is held at 0 there, which makes every label alike.

    >>> propensities(np.array([0, 10, 1000]), documents=10_000).round(3).tolist()
    [0.084, 0.22, 0.767]
    """
    c = max(np.log(max(documents, 1)) - 1, 0) * (b + 1) ** a
    return np.asarray(1 / (1 + c * (np.asarray(frequency, dtype=np.float64) + b) ** -a))


def label_groups(frequency: NDArray[Any], total_labels: int) -> dict[str, NDArray[np.bool_]]:
    """Part the labels by their frequency in train, as masks over all labels of train and test.

    A label is unseen when its frequency is 0 or when it lies beyond the frequencies given.

    >>> {name: mask.nonzero()[0].tolist() for name, mask in label_groups(np.array([3, 0, 51, 50]), 5).items()}
    {'F<=5': [0], '5<F<=50': [3], 'F>50': [2], 'unseen': [1, 4]}
    """
    counts = np.zeros(max(total_labels, len(frequency)), dtype=np.int64)
    counts[: len(frequency)] = frequency
    masks = ((counts > 0) & (counts <= 5), (counts > 5) & (counts <= 50), counts > 50, counts == 0)
    return dict(zip(GROUPS, masks, strict=True))


class RankingMetrics:
    """The metrics of rankings, gathered batch by batch.

    `frequency` and `train_documents` are train's and set the propensities. With `among`, a mask over labels, the truth
    is restricted to a label group; the rankings added must be made with the same mask.

    >>> quality = RankingMetrics(frequency=np.array([5, 3, 2]), train_documents=8)
    >>> quality.add(np.array([[1, 0, 2, -1, -1]]), truth=csr_matrix([[1, 0, 0]]))
    >>> {name: round(value, 1) for name, value in quality.metrics().items() if name.startswith(("P@", "nDCG"))}
    {'P@1': 0.0, 'P@3': 33.3, 'P@5': 20.0, 'nDCG@1': 0.0, 'nDCG@3': 63.1, 'nDCG@5': 63.1}
    """

    def __init__(self, frequency: NDArray[Any], train_documents: int, among: NDArray[np.bool_] | None = None):
        # One entry more than labels: the gain of every label that train has not seen.
        self._gain = 1 / propensities(np.append(frequency, 0), train_documents)
        self.among = among
        self.documents = 0
        self.documents_without_labels = 0
        self._parts: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._label_hits = self._label_total = np.zeros(0, dtype=np.int64)

    def add(self, ranked: NDArray[np.int64], truth: csr_matrix) -> None:
        """Add documents: `ranked` (documents, 5 or more) as `top_labels` gives it, `truth` with a row for each.

        The truth may have more columns than the model has labels: those labels are never ranked, so they are misses.
        Documents without labels are left out and counted.
        """
        if ranked.shape[0] != truth.shape[0] or ranked.shape[1] < DEPTH:
            raise ValueError(f"ranked must have {truth.shape[0]} rows and at least {DEPTH} columns: {ranked.shape}")
        truth = csr_matrix(truth, copy=True)
        truth.sum_duplicates()
        truth.eliminate_zeros()
        if self.among is not None:
            truth = restrict(truth, self.among)
        labelled = np.diff(truth.indptr) > 0
        self.documents += int(labelled.sum())
        self.documents_without_labels += int((~labelled).sum())
        ranked, truth = ranked[labelled, :DEPTH], truth[labelled]
        hits = is_true(ranked, truth)
        self._parts.append(self._reduce(ranked, truth, hits))
        self._count_labels(ranked, truth, hits)

    def _reduce(
        self, ranked: NDArray[np.int64], truth: csr_matrix, hits: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Reduce each document to the numerators (documents, 16) and denominators (documents, 8) of the ratios."""
        relevant = np.diff(truth.indptr)[:, None]  # (documents, 1)
        ideal = np.arange(DEPTH) < relevant  # (documents, DEPTH), as are the gains
        gains = np.where(hits, self._gain_of(ranked), 0)
        weighted = csr_matrix((self._gain_of(truth.indices), truth.indices, truth.indptr), shape=truth.shape)
        best = np.where(ideal, self._gain_of(top_labels(weighted, DEPTH)), 0)
        numerators = np.hstack(
            [
                at_cutoffs(hits) / np.array(CUTOFFS),
                at_cutoffs(hits * DISCOUNT) / at_cutoffs(ideal * DISCOUNT),
                at_cutoffs(hits) / relevant,
                at_cutoffs(gains),
                at_cutoffs(gains * DISCOUNT),
                2 * hits.sum(axis=1, keepdims=True),
            ]
        )
        given = (ranked >= 0).sum(axis=1, keepdims=True)
        one = np.ones_like(relevant)
        return numerators, np.hstack([one, at_cutoffs(best), at_cutoffs(best * DISCOUNT), given + relevant])

    def _gain_of(self, labels: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(self._gain[np.minimum(labels, len(self._gain) - 1)])

    def _count_labels(self, ranked: NDArray[np.int64], truth: csr_matrix, hits: NDArray[np.bool_]) -> None:
        # Only the labels at hand are touched, so a small batch costs little among a million labels.
        labels = np.concatenate([truth.indices, ranked[ranked >= 0]])
        missing = max(0, int(labels.max(initial=-1)) + 1 - len(self._label_total))
        self._label_total, self._label_hits = (np.pad(c, (0, missing)) for c in (self._label_total, self._label_hits))
        np.add.at(self._label_total, labels, 1)
        np.add.at(self._label_hits, ranked[hits], 1)

    def metrics(self) -> dict[str, float]:
        """Return every metric in percent, or nothing when no document had labels.

        macroF1@5 is the mean of the F1 of the labels that occur in the truth or among the five best of some document;
        a label in neither has no F1.
        """
        if not self.documents:
            return {}
        above, below = (sum(part[side].sum(axis=0) for part in self._parts) for side in (0, 1))
        values = dict(zip(RATIOS, 100 * above / below[DENOMINATOR], strict=True))
        occurs = self._label_total > 0
        values[METRICS[-1]] = 100 * np.mean(2 * self._label_hits[occurs] / self._label_total[occurs])
        return {name: float(value) for name, value in values.items()}

    def intervals(self, level: float = 0.95, resamples: int = 1000, seed: int = 0) -> dict[str, list[float]]:
        """Return [low, high] of every metric but the macro F1: percentiles of a bootstrap over documents."""
        if not self.documents:
            return {}
        sums = np.hstack([np.concatenate([part[side] for part in self._parts]) for side in (0, 1)])
        random = np.random.default_rng(seed)
        drawn = np.empty((resamples, sums.shape[1]))
        step = max(1, CELLS // self.documents)
        for start in range(0, resamples, step):
            drawn[start : start + step] = resample(random, self.documents, min(step, resamples - start)) @ sums
        values = 100 * drawn[:, : len(RATIOS)] / drawn[:, len(RATIOS) :][:, DENOMINATOR]
        tail = (1 - level) / 2
        low, high = np.quantile(values, [tail, 1 - tail], axis=0)
        return {name: [float(low[i]), float(high[i])] for i, name in enumerate(RATIOS)}


def is_true(ranked: NDArray[np.int64], truth: csr_matrix) -> NDArray[np.bool_]:
    """Say which ranked labels the truth holds: (documents, depth). The truth's columns must be sorted in each row."""
    width = max(truth.shape[1], int(ranked.max(initial=0)) + 1)
    rows = np.arange(truth.shape[0], dtype=np.int64)
    keys = np.repeat(rows, np.diff(truth.indptr)) * width + truth.indices
    wanted = rows[:, None] * width + ranked
    found = np.searchsorted(keys, wanted)
    return np.asarray((ranked >= 0) & (np.append(keys, -1)[found] == wanted))


def at_cutoffs(values: NDArray[Any]) -> NDArray[np.float64]:
    """Sum over the ranks up to each cutoff: (documents, depth) -> (documents, cutoffs)."""
    return np.cumsum(values, axis=1, dtype=np.float64)[:, np.array(CUTOFFS) - 1]


def resample(random: np.random.Generator, documents: int, times: int) -> NDArray[np.float64]:
    """Draw how often each document falls in each resample: multinomial counts, (times, documents)."""
    drawn = random.integers(documents, size=(times, documents))
    drawn += np.arange(times)[:, None] * documents
    return np.bincount(drawn.ravel(), minlength=times * documents).reshape(times, documents).astype(np.float64)
