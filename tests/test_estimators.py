"""The contract that every estimator keeps, LAHA and baselines alike."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.base import clone
from tests.conftest import SMALL, make_corpus

import laha
from laha.corpus import Corpus, Parts
from laha.errors import ConfigurationError, LahaError, ModelError
from laha.estimator import Estimator
from laha.prepared import Prepared
from laha.registry import MODELS, create, estimator_class
from laha.training_folder import train_to_folder

NAMES = sorted(MODELS)


def skip_unless_installed(name: str) -> None:
    if name == "peer:napkinxc":
        pytest.importorskip("napkinxc", reason="the extra `peers` is not installed")
    if name == "peer:libpecos" and not os.environ.get("LAHA_PECOS_PYTHON"):
        pytest.skip("LAHA_PECOS_PYTHON names no Python with libpecos")


# What only the baselines know; with 60 neighbours SLEEC finds every label, as the contract asks.
SMALL_BASELINES = {
    **{"trees": 10, "learners": 2, "dimensions": 8, "similar": 10, "neighbours": 60},
    **{"hidden_units": 8, "maps": 4, "chunks": 3, "bottleneck": 8, "aggregation_units": 6},
}


def settings(name: str) -> dict[str, Any]:
    known = estimator_class(name).Configuration.__dataclass_fields__
    return {key: value for key, value in {**SMALL, **SMALL_BASELINES}.items() if key in known}


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    skip_unless_installed(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str, parts: Parts) -> Estimator:
    return create(name, **settings(name)).fit(parts)


def test_fit_returns_the_model_with_its_labels(model: Estimator, parts: Parts) -> None:
    assert [label.name for label in model.labels_] == parts.train_part().label_names
    counts = np.asarray(parts.train_part().labels.sum(axis=0)).ravel()
    assert [label.frequency for label in model.labels_] == counts.tolist()
    assert model.train_documents_ == 160


def test_predict_gives_the_best_labels_best_first(model: Estimator, parts: Parts) -> None:
    texts = make_corpus(5, 9).texts
    best = model.predict(texts, top=3)
    scores = model.predict_scores(texts)
    assert issparse(scores)
    assert scores.shape == (5, len(model.labels_))
    dense = scores.toarray()
    assert best.ids.shape == best.scores.shape == (5, 3)
    np.testing.assert_allclose(best.scores, -np.sort(-dense, axis=1)[:, :3], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(dense, best.ids, axis=1), best.scores, atol=1e-6)
    assert ((dense >= 0) & (dense <= 1)).all()


def test_odd_documents_are_tagged_like_any_other(model: Estimator) -> None:
    texts = ["", "   ", "zzz unknown", "苹果 🍎", "apple " * 2000, "a\x00b"]
    assert len(model.predict(texts)) == len(texts)
    assert np.isfinite(model.predict_scores(texts).toarray()).all()


def test_no_documents_give_no_rows(model: Estimator) -> None:
    assert model.predict([]).ids.shape[0] == 0
    assert model.predict_scores([]).shape == (0, len(model.labels_))


def test_asking_for_more_labels_than_there_are_gives_all(model: Estimator) -> None:
    assert len(model.predict(["apple"], top=99).named()[0]) == len(model.labels_)


def test_asking_for_no_label_is_refused(model: Estimator) -> None:
    with pytest.raises(ConfigurationError, match="at least one label"):
        model.predict(["apple"], top=0)


def test_saved_and_loaded_it_predicts_the_same(model: Estimator, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    again = laha.load(tmp_path / "model", device="cpu")
    assert type(again) is type(model)
    texts = make_corpus(5, 9).texts
    assert (again.predict_scores(texts) != model.predict_scores(texts)).nnz == 0
    assert again.model_name == model.model_name
    assert [label.name for label in again.labels_] == [label.name for label in model.labels_]
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert {"format", "model", "configuration", "labels", "words", "training", "files"} <= manifest.keys()
    assert {"labels.jsonl", "weights.safetensors"} <= manifest["files"].keys()


def test_saving_twice_gives_the_same_bytes(model: Estimator, tmp_path: Path) -> None:
    for place in ("one", "two"):
        model.save(tmp_path / place)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_a_damaged_model_is_refused(model: Estimator, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"weights\.safetensors does not match its sha256"):
        laha.load(tmp_path / "model")


def test_scikit_learns_conventions(name: str) -> None:
    model = create(name, **settings(name))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "labels_")
    assert type(model)().set_params(**model.get_params()).get_params() == model.get_params()


def test_unfitted_it_says_so(name: str, tmp_path: Path) -> None:
    model = create(name)
    for action in (
        lambda: model.predict(["a"]),
        lambda: model.predict_scores(["a"]),
        lambda: model.save(tmp_path / "m"),
    ):
        with pytest.raises(LahaError, match="call fit or load first"):
            action()


def test_an_unknown_setting_names_the_nearest(name: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no setting 'unitz'"):
        create(name, unitz=3)


def test_it_learns_from_lists_from_a_corpus_and_from_a_prepared_folder(
    name: str, parts: Parts, prepared: Prepared, tmp_path: Path
) -> None:
    train, valid = parts.train_part(), parts.valid
    assert valid is not None
    prepared.save(tmp_path / "prepared")
    texts = ["apple owl", "iron noise1"]
    scores = []
    for given in (
        (train.texts, names_of(train), (valid.texts, names_of(valid))),
        (train, None, valid),
        (parts, None, None),
        (Prepared.load(tmp_path / "prepared"), None, None),
    ):
        scores.append(create(name, **settings(name)).fit(*given).predict_scores(texts).toarray())
    tolerance = 0 if create(name).repeatable else 0.03  # near enough to tell a wrong corpus from a redraw
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], rtol=0, atol=tolerance)


def names_of(corpus: Corpus) -> list[list[str]]:
    return [[corpus.label_names[column] for column in corpus.labels[row].indices] for row in range(len(corpus))]


def test_texts_without_labels_are_refused(name: str) -> None:
    with pytest.raises(LahaError, match="fit needs the labels"):
        create(name).fit(["a text"])


def test_training_to_a_folder_leaves_only_the_model(name: str, parts: Parts, tmp_path: Path) -> None:
    out = tmp_path / "model"
    train_to_folder(create(name, **settings(name)), lambda: parts, out, facts={"command": "laha train"})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["training"]["command"] == "laha train"


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'laha-paper'"):
        create("laha-papre")


def test_a_variants_settings_cannot_be_undone() -> None:
    with pytest.raises(ConfigurationError, match="laha-self has attention=self"):
        create("laha-self", attention="hybrid")
