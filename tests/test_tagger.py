"""LAHA the estimator: presets, names, preparation taken over, devices."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import PAPER

from laha.corpus import Parts
from laha.deep_estimator import Work, choose_device
from laha.errors import ConfigurationError, CorpusError, LahaError
from laha.prepared import Prepared
from laha.tagger import LAHA


def test_the_defaults_are_the_papers() -> None:
    paper = LAHA(preset="paper").configuration
    assert (paper.units, paper.attention_units, paper.word_dimensions, paper.label_dimensions) == (256, 256, 300, 256)
    assert (paper.batch, paper.learning_rate, paper.max_words) == (64, 0.001, 500)
    assert (paper.attention, paper.fusion, paper.schedule, paper.negatives) == ("hybrid", "adaptive", "constant", None)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "laha-paper"),
        ({"attention": "self"}, "laha-self"),
        ({"attention": "interaction"}, "laha-interaction"),
        ({"fusion": "mean"}, "laha-mean"),
    ],
)
def test_a_variant_has_its_name(settings: dict[str, str], name: str) -> None:
    assert LAHA(preset="paper", **settings).model_name == name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "both"}, "attention=both"),
        ({"preset": "paperr"}, "did you mean 'paper'"),
        ({"units": 0}, "units=0"),
        ({"word_dropout": 1.0}, "word_dropout=1.0"),
        ({"epochs": "many"}, "epochs='many'"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_a_wrong_value_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _ = LAHA(**settings).configuration


def test_scores_begin_at_the_share_of_right_labels(prepared: Prepared) -> None:
    model = LAHA(**PAPER)
    model._open(prepared, None, None, Work(torch.device("cpu")))
    model._build(prepared)
    labels = prepared.part("train").labels
    share = labels.nnz / (labels.shape[0] * prepared.train_labels)
    assert model.network_.prediction.W_o.bias.item() == pytest.approx(math.log(share / (1 - share)), rel=1e-5)


def test_preparation_is_taken_over_from_a_prepared_corpus(prepared: Prepared) -> None:
    model = LAHA(**{**PAPER, "min_count": None, "epochs": 1}).fit(prepared)
    assert model.configuration_.min_count == 1
    assert model.configuration_.word_dimensions == 12


def test_a_setting_that_contradicts_the_prepared_corpus_is_refused(prepared: Prepared) -> None:
    with pytest.raises(ConfigurationError, match="prepared with min_count=1, not 9"):
        LAHA(**{**PAPER, "min_count": 9}).fit(prepared)


def test_without_validation_a_part_of_train_is_held_out(parts: Parts) -> None:
    model = LAHA(**{**PAPER, "epochs": 1, "valid_fraction": 0.25}).fit(parts.train_part())
    assert model.train_documents_ == 120


def test_one_text_must_be_a_list(prepared: Prepared) -> None:
    model = LAHA(**{**PAPER, "epochs": 1}).fit(prepared)
    with pytest.raises(LahaError, match="give a list of texts"):
        model.predict("apple")


def test_documents_without_any_label_cannot_teach() -> None:
    with pytest.raises(CorpusError, match="no training document of given has a label"):
        LAHA(**PAPER).fit(["a b", "c d", "e f"], [[], [], []])


def test_more_negatives_than_labels_is_all_labels(prepared: Prepared) -> None:
    everything = LAHA(**{**PAPER, "epochs": 1, "negatives": 0}).fit(prepared)
    sampled = LAHA(**{**PAPER, "epochs": 1, "negatives": 1000}).fit(prepared)
    for name, tensor in everything.network_.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), sampled.network_.state_dict()[name].numpy(), atol=1e-5)


def test_a_corpus_of_one_label_and_one_of_matrix_labels_can_be_learned() -> None:
    texts = ["red apple", "green pear", "blue plum", "old owl"] * 5
    assert LAHA(**PAPER).fit(texts, [["a"]] * 20).predict(["red"]).named()[0][0][0] == "a"
    matrix = np.tile(np.eye(4)[:, :2], (5, 1))
    assert [label.name for label in LAHA(**PAPER).fit(texts, matrix).labels_] == ["0", "1"]


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ConfigurationError, match="take --device cpu"):
        choose_device("cuda")


def test_word_and_label_vectors_from_files(parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("apple 1 2 3\nowl 4 5 6\n")
    names = parts.train_part().label_names
    (tmp_path / "labels.txt").write_text("".join(f"{name}\t{number} 1\n" for number, name in enumerate(names)))
    model = LAHA(
        **{**PAPER, "epochs": 1, "word_dimensions": None, "label_dimensions": None},
        word_vectors=str(tmp_path / "words.txt"),
        label_vectors=str(tmp_path / "labels.txt"),
    ).fit(parts)
    assert model.network_.encoder.word_vectors.weight.shape[1] == 3
    assert model.network_.interaction_attention is not None
    np.testing.assert_allclose(
        model.network_.interaction_attention.L.weight.numpy()[:, 0], np.arange(len(names)), atol=1e-3
    )


def test_the_estimator_may_be_loaded_where_texts_are_a_corpus(prepared: Prepared, tmp_path: Path) -> None:
    model = LAHA(**{**PAPER, "epochs": 1}).fit(prepared)
    model.save(tmp_path / "m")
    loaded = LAHA.load(tmp_path / "m")
    assert loaded.explain("red apple").as_json() == model.explain("red apple").as_json()
    assert loaded.trained_["corpus"] == "topics"


def test_a_shortlist_is_used_unless_every_label_is_asked_for(prepared: Prepared, tmp_path: Path) -> None:
    model = LAHA(**PAPER, shortlist=3).fit(prepared)
    assert model.trained_["shortlist"]["labels"] == 3
    assert 0 < model.trained_["shortlist"]["recall@5"] <= 1
    model.save(tmp_path / "model")
    again = LAHA.load(tmp_path / "model", device="cpu")
    for fitted in (model, again):
        short = fitted.predict_scores(["apple owl", "iron"])
        assert np.diff(short.indptr).tolist() == [3, 3]
        assert fitted.predict(["apple"], top=2).ids.shape == (1, 2)
        fitted.exact = True
        exact = fitted.predict_scores(["apple owl", "iron"])
        assert exact.nnz == 2 * len(fitted.labels_)
        np.testing.assert_allclose(short.data, exact.toarray()[short.nonzero()], atol=1e-6)


def test_a_shortlist_is_the_default_only_where_labels_are_many(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LAHA(**{**PAPER, "epochs": 1}).fit(prepared).network_.document_head is None
    monkeypatch.setattr("laha.tagger.ALL_LABELS_UP_TO", 3)
    model = LAHA(**{**PAPER, "epochs": 1}).fit(prepared)
    assert model.network_.document_head is not None
    assert model.trained_["shortlist"]["labels"] == prepared.train_labels  # fewer than any size: all of them
    assert LAHA(**{**PAPER, "epochs": 1}, shortlist=0).fit(prepared).network_.document_head is None


def test_very_many_labels_get_an_index_that_is_saved(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss", reason="the extra ann is not installed")
    monkeypatch.setattr("laha.tagger.INDEX_ABOVE", 3)
    model = LAHA(**{**PAPER, "epochs": 1}, shortlist=3).fit(prepared)
    assert model.index_ is not None
    model.save(tmp_path / "model")
    again = LAHA.load(tmp_path / "model", device="cpu")
    assert again.index_ is not None
    assert (again.predict_scores(["apple owl"]) != model.predict_scores(["apple owl"])).nnz == 0
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.warns(UserWarning, match=r"pip install laha\[ann\]"):
        without = LAHA.load(tmp_path / "model", device="cpu")
    assert without.predict_scores(["apple owl"]).nnz == 3


def test_half_precision_scores_nearly_the_same_and_changes_no_weight(prepared: Prepared) -> None:
    model = LAHA(**PAPER, shortlist=5).fit(prepared)
    before = {name: tensor.clone() for name, tensor in model.network_.state_dict().items()}
    whole = model.predict_scores(["apple owl", "iron noise1"]).toarray()
    model.scoring_precision = "bfloat16"
    half = model.predict_scores(["apple owl", "iron noise1"]).toarray()
    both = (whole > 0) & (half > 0)
    np.testing.assert_allclose(half[both], whole[both], atol=0.02)
    assert (half != whole).any()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.network_.state_dict().items())
    model.scoring_precision = "float16"
    with pytest.raises(ConfigurationError, match="scoring_precision=float16"):
        model.predict(["apple"])
