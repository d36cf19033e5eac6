"""Explanations: weights at their places in the text, and the network's own α and β."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import PAPER

from laha.corpus import Parts
from laha.errors import LahaError
from laha.prepared import Prepared
from laha.tagger import LAHA

TEXT = "The RED apple, a noise3 and an Owl — 東京"


@pytest.fixture(scope="module")
def model(prepared: Prepared) -> LAHA:
    return LAHA(**PAPER).fit(prepared)


def test_words_stand_where_they_are_in_the_text(model: LAHA) -> None:
    for label in model.explain(TEXT).labels:
        assert [word.word for word in label.words][:3] == ["the", "red", "apple"]
        for word in label.words:
            assert TEXT[word.start : word.end].lower() == word.word


def test_weights_are_shares_and_the_fused_one_mixes_the_two(model: LAHA) -> None:
    for label in model.explain(TEXT, top=6).labels:
        assert label.alpha + label.beta == pytest.approx(1)
        assert sum(word.self for word in label.words) == pytest.approx(1, abs=1e-5)
        assert sum(word.interaction for word in label.words) == pytest.approx(1, abs=1e-5)
        for word in label.words:
            assert word.fused == pytest.approx(label.alpha * word.self + label.beta * word.interaction, abs=1e-6)


def test_scores_are_those_of_predict_best_first(model: LAHA) -> None:
    explained = [(label.label, label.score) for label in model.explain(TEXT, top=4).labels]
    for (name, score), (expected, probability) in zip(explained, model.predict([TEXT], 4).named()[0], strict=True):
        assert name == expected
        assert score == pytest.approx(probability, abs=1e-6)


def test_alpha_is_the_networks(model: LAHA) -> None:
    label = model.explain(TEXT, ["fruit"]).labels[0]
    number = [entry.name for entry in model.labels_].index("fruit")
    words = model.vocabulary_.encode([[word.word for word in label.words]])
    with torch.no_grad():
        encoded = model.network_.encode(torch.from_numpy(words.ids).long()[None], torch.tensor([len(words.ids)]))
        alpha = model.network_.attend(encoded).alpha
    assert label.alpha == pytest.approx(float(alpha[0, number, 0]), abs=1e-6)  # type: ignore[index]


@pytest.mark.parametrize(("attention", "alpha", "absent"), [("self", 1.0, "interaction"), ("interaction", 0.0, "self")])
def test_an_ablation_explains_by_the_attention_it_has(
    prepared: Prepared, attention: str, alpha: float, absent: str
) -> None:
    label = LAHA(**{**PAPER, "attention": attention, "epochs": 1}).fit(prepared).explain(TEXT).labels[0]
    assert (label.alpha, label.beta) == (alpha, 1 - alpha)
    assert all(getattr(word, absent) == 0 for word in label.words)
    assert sum(word.fused for word in label.words) == pytest.approx(1, abs=1e-5)


def test_only_the_words_the_model_reads_are_listed(parts: Parts) -> None:
    model = LAHA(**{**PAPER, "max_words": 3, "epochs": 1}).fit(parts)
    assert len(model.explain(TEXT).labels[0].words) == 3


def test_a_text_without_words_has_labels_but_no_words(model: LAHA) -> None:
    assert model.explain("…").labels[0].words == []


def test_an_unknown_label_names_the_nearest(model: LAHA) -> None:
    with pytest.raises(LahaError, match="the model has no label 'fruits': did you mean 'fruit'"):
        model.explain(TEXT, ["fruits"])


def test_the_json_is_as_documented(model: LAHA) -> None:
    document = model.explain("red apple").as_json()
    assert list(document) == ["text", "labels"]
    assert list(document["labels"][0]) == ["label", "score", "alpha", "beta", "words", "experts"]
    assert list(document["labels"][0]["words"][0]) == ["word", "start", "end", "self", "interaction", "fused"]
