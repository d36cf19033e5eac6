"""A budget of time: what is left of it, and what it is planned for."""

from __future__ import annotations

import math

import pytest

from laha.budget import OF_FUSION, OF_LEXICAL, OF_VECTORS, SECONDS_A_WORD, WORDS_A_SECOND, Budget


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("laha.budget.time.perf_counter", lambda: now[0])
    return now


def test_time_runs_and_the_fusions_is_set_aside(clock: list[float]) -> None:
    budget = Budget(100)
    assert budget.left == pytest.approx(100 - 100 * OF_FUSION)
    clock[0] += 40
    assert budget.left == pytest.approx(60 - 100 * OF_FUSION)
    assert budget.lexical_seconds == pytest.approx(OF_LEXICAL * budget.left)
    clock[0] += 100
    assert budget.left < 0
    assert budget.lexical_seconds == 1  # an expert that was begun ends as one


def test_without_a_limit_everything_fits() -> None:
    budget = Budget(0)
    assert budget.lexical_seconds == 0
    assert budget.word_passes(10**12) is None
    assert budget.network_epochs(10**12, "cpu", vectors=False) == math.inf
    assert not budget.quick


def test_word_vectors_take_their_share_and_one_pass_at_least(clock: list[float]) -> None:
    budget = Budget(1000)
    words = 1_000_000
    assert budget.word_passes(words) == int(OF_VECTORS * 900 * WORDS_A_SECOND / words)
    assert budget.word_passes(10**12) == 1
    assert budget.word_passes(0) is not None


def test_the_networks_epochs_come_after_the_vectors(clock: list[float]) -> None:
    budget, words = Budget(1000), 1_000_000
    with_vectors = budget.network_epochs(words, "cpu", vectors=True)
    assert with_vectors == pytest.approx(900 / (words * SECONDS_A_WORD["cpu"]))
    passes = budget.word_passes(words) or 0
    seconds = 900 - passes * words / WORDS_A_SECOND
    assert budget.network_epochs(words, "cpu", vectors=False) == pytest.approx(seconds / 50)
    assert budget.network_epochs(words, "cuda", vectors=True) > with_vectors
