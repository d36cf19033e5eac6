"""Calibration: thresholds that hold what they promise, and on how much they rest."""

from __future__ import annotations

import numpy as np
import pytest

from laha.calibration import GRID, SUPPORT, precision_curve, reliability, score_for


def draw(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores, many of them equal, that are right as often as they say."""
    random = np.random.default_rng(seed)
    scores = random.random(count).round(2).astype(np.float32)
    return scores, (random.random(count) < scores).astype(np.float32)


@pytest.mark.parametrize("count", [1, 5, SUPPORT, SUPPORT + 1, 80, 3000])
def test_each_row_is_the_precision_from_its_score_on_and_rests_on_enough(count: int) -> None:
    scores, right = draw(count)
    curve = precision_curve(scores, right)
    assert 1 <= len(curve) <= GRID
    assert (np.diff(curve[:, 0]) < 0).all()
    for score, precision in curve:
        kept = scores >= score
        assert right[kept].mean() == pytest.approx(precision, abs=1e-6)
        assert kept.sum() >= min(SUPPORT, count)
    assert curve[-1, 0] == scores.min()


def test_one_lucky_label_promises_nothing() -> None:
    scores = np.linspace(0.99, 0.01, 60)
    right = np.zeros(60)
    right[0] = 1
    assert score_for(precision_curve(scores, right), 0.9) == float("inf")
    assert score_for(precision_curve(scores, right, support=1), 0.9) == pytest.approx(0.99)


def test_nothing_measured_promises_nothing() -> None:
    empty = precision_curve(np.zeros(0), np.zeros(0))
    assert empty.shape == (0, 2)
    assert score_for(empty, 0.1) == float("inf")
    assert reliability(np.zeros(0), np.zeros(0)) == {"error": 0.0, "reliability": []}


def test_reliability_counts_each_tenth_of_scores() -> None:
    facts = reliability(np.array([0.05, 0.15, 0.17, 1.0]), np.array([0, 1, 0, 1]))
    np.testing.assert_allclose(facts["reliability"], [[0.05, 0, 1], [0.16, 0.5, 2], [1.0, 1, 1]])


def test_calibrated_scores_have_a_small_error_and_boasting_ones_a_large() -> None:
    scores, right = draw(20_000)
    assert reliability(scores, right)["error"] < 0.02
    assert reliability(np.sqrt(scores), right)["error"] > 0.1
