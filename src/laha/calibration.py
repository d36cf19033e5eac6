"""Calibration: how far scores are probabilities, and from which score on labels hold a wanted precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

BINS = 15  # of the expected calibration error
GRID = 100  # scores at which precision is kept
SUPPORT = 20  # labels that a precision must rest on: one or two right by luck promise nothing


def calibration_error(scores: NDArray[Any], right: NDArray[Any]) -> float:
    """Return the expected calibration error: |precision - mean score| of bins of scores, weighed by their size.

    >>> calibration_error(np.array([0.75, 0.75, 0.75, 0.75]), np.array([1, 1, 1, 0]))
    0.0
    >>> calibration_error(np.array([0.9, 0.9]), np.array([1, 0])).__round__(2)
    0.4
    """
    if not len(scores):
        return 0.0
    place = np.minimum((scores * BINS).astype(int), BINS - 1)
    gap = np.bincount(place, weights=scores, minlength=BINS) - np.bincount(place, weights=right, minlength=BINS)
    return float(np.abs(gap).sum() / len(scores))


def precision_curve(scores: NDArray[Any], right: NDArray[Any], support: int = SUPPORT) -> NDArray[np.float32]:
    """Return rows of (score, precision of the labels that score so much or more), by falling score.

    Each row rests on `support` labels at least, or on all where there are fewer.

    >>> precision_curve(np.array([0.2, 0.9, 0.5]), np.array([0, 1, 1]), support=1).astype(float).round(2).tolist()
    [[0.9, 1.0], [0.5, 1.0], [0.2, 0.67]]
    >>> precision_curve(np.array([0.2, 0.9, 0.5]), np.array([0, 1, 1])).astype(float).round(2).tolist()
    [[0.2, 0.67]]
    """
    order = np.argsort(-scores, kind="stable")
    counts = np.arange(1, len(order) + 1)
    precision = np.cumsum(right[order]) / counts
    last = np.append(scores[order][:-1] != scores[order][1:], True)[: len(order)]  # equal scores stand or fall together
    last &= counts >= min(support, len(order))
    curve = np.stack([scores[order][last], precision[last]], axis=1).astype(np.float32)
    chosen = np.unique(np.linspace(0, len(curve) - 1, GRID).astype(int)) if len(curve) else np.zeros(0, int)
    return np.asarray(curve[chosen])


def score_for(curve: NDArray[np.float32], precision: float) -> float:
    """Return the lowest score from which on labels held the precision; infinity where none did.

    >>> curve = np.array([[0.9, 1.0], [0.5, 0.8], [0.2, 0.5]])
    >>> score_for(curve, 0.75), score_for(curve, 0.4), score_for(np.array([[0.9, 0.6]]), 0.7)
    (0.5, 0.2, inf)
    """
    holding = curve[curve[:, 1] >= precision]
    return float(holding[:, 0].min()) if len(holding) else float("inf")


def reliability(scores: NDArray[Any], right: NDArray[Any]) -> Mapping[str, Any]:
    """Return what a manifest says of calibration: the error, and for each tenth of scores how many were right."""
    place = np.minimum((np.asarray(scores) * 10).astype(int), 9)
    rows = []
    for number in range(10):
        inside = place == number
        if inside.any():
            rows.append([float(np.mean(scores[inside])), float(np.mean(right[inside])), int(inside.sum())])
    return {"error": calibration_error(scores, right), "reliability": rows}
