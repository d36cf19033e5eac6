"""The lexical expert: what it computes, that it learns, and that it is saved whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laha.errors import ConfigurationError
from laha.experts.lexical import Lexical, LexicalConfiguration
from laha.features import Features
from laha.metrics import RankingMetrics
from laha.prepared import Prepared
from laha.vocabulary import WordIds


def fit(prepared: Prepared, seed: int = 0, **settings: object) -> Lexical:
    small = {"width": 16, "batch": 16, "epochs": 20, "learning_rate": 0.02, "dropout": 0.0, "patience": 20}
    return Lexical(LexicalConfiguration(**{**small, **settings})).fit(prepared, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["softmax", "binary"])
def test_it_learns_the_rule(prepared: Prepared, loss: str) -> None:
    expert = fit(prepared, loss=loss)
    assert max(row["nDCG@5"] for row in expert.history) > 90
    part = prepared.part("test")
    first = expert.top(part.words, 3).ids[:, 0]
    assert np.asarray(part.labels[np.arange(len(part)), first]).mean() > 0.9


def test_scores_are_those_of_the_formula(prepared: Prepared) -> None:
    expert = fit(prepared, epochs=2, loss="softmax")
    words = prepared.part("test").words
    found = expert.top(words, prepared.train_labels)
    p = {name: array.astype(np.float64) for name, array in expert.tensors().items()}
    bag = Features("tfidf", expert.features.rarity).rows(words).toarray() @ p["words.weight"]
    logits = np.tanh(bag + p["bias"]) @ p["labels.weight"].T + p["labels.bias"]
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = -np.sort(-np.log(share / (1 - share)), axis=1)
    np.testing.assert_allclose(found.scores, expected, atol=1e-4)


def test_with_a_loss_a_label_scores_are_logits(prepared: Prepared) -> None:
    expert = fit(prepared, epochs=12)
    part = prepared.part("valid")
    scores = expert.top(part.words, prepared.train_labels).scores
    share = 1 / (1 + np.exp(-scores.astype(np.float64)))
    assert share.sum(axis=1).mean() == pytest.approx(part.labels.sum() / len(part), rel=0.15)


def test_the_best_epoch_is_kept(prepared: Prepared) -> None:
    expert = fit(prepared, learning_rate=0.3, epochs=8)
    best = max(range(8), key=lambda epoch: expert.history[epoch]["nDCG@5"])
    again = fit(prepared, learning_rate=0.3, epochs=8, seconds=1e6)
    assert expert.history[best]["nDCG@5"] == max(row["nDCG@5"] for row in again.history)
    part = prepared.part("valid")
    metrics = RankingMetrics(np.asarray(prepared.part("train").labels.sum(axis=0)).ravel(), 160)
    metrics.add(expert.top(part.words, 5).ids, part.labels)
    assert metrics.metrics()["nDCG@5"] == pytest.approx(expert.history[best]["nDCG@5"])


def test_one_seed_gives_the_same_bytes_whatever_ran_before(prepared: Prepared) -> None:
    first = fit(prepared, epochs=2, dropout=0.3).tensors()
    torch.rand(5)
    state = torch.get_rng_state()
    again, other = fit(prepared, epochs=2, dropout=0.3).tensors(), fit(prepared, 1, epochs=2, dropout=0.3).tensors()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(array.tobytes() == again[name].tobytes() for name, array in first.items())
    assert first["words.weight"].tobytes() != other["words.weight"].tobytes()


def test_it_is_restored_whole(prepared: Prepared) -> None:
    expert, words = fit(prepared, epochs=2), prepared.part("test").words
    again = Lexical.from_tensors(expert.tensors(), expert.configuration)
    for own, restored in zip(expert.top(words, 4), again.top(words, 4), strict=True):
        np.testing.assert_array_equal(own, restored)


def test_more_labels_than_there_are_and_documents_without_words(prepared: Prepared) -> None:
    expert = fit(prepared, epochs=1)
    found = expert.top(WordIds(np.array([1, 1], np.int32), np.array([0, 0, 2])), prepared.train_labels + 2)
    assert (found.ids[:, -2:] == -1).all()
    np.testing.assert_array_equal(found.ids[0], found.ids[1])  # nothing known, or nothing at all
    assert np.isfinite(found.scores).all()


def test_its_time_is_limited(prepared: Prepared) -> None:
    assert len(fit(prepared, epochs=500, patience=500, seconds=0.2).history) < 500


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(ConfigurationError, match="loss=hinge"):
        LexicalConfiguration(loss="hinge")
