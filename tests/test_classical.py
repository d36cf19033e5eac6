"""What the classical models say when something is missing, and what they do at the edges."""

from __future__ import annotations

import builtins
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.conftest import make_corpus

import laha
from laha.baselines.label_trees import write_examples
from laha.baselines.peers.folder_files import gather, spread
from laha.errors import ConfigurationError, CorpusError, LahaError, ModelError
from laha.prepared import Prepared
from laha.registry import create

TRAIN = make_corpus(60, 1)


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = builtins.__import__

    def fake(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **more)

    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", fake)


@pytest.mark.parametrize("name", ["parabel", "bonsai", "peer:omikuji"])
def test_without_omikuji_the_extra_is_named(name, monkeypatch):
    without(monkeypatch, "omikuji")
    with pytest.raises(LahaError, match=r"install it with pip install 'laha\[trees\]'"):
        create(name).fit(TRAIN)


def test_without_napkinxc_the_extra_is_named(monkeypatch):
    without(monkeypatch, "napkinxc")
    with pytest.raises(LahaError, match=r"pip install 'laha\[peers\]'"):
        create("peer:napkinxc").fit(TRAIN)


def test_without_libpecos_its_own_python_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("LAHA_PECOS_PYTHON", raising=False)
    with pytest.raises(LahaError, match="set LAHA_PECOS_PYTHON=pecos/bin/python"):
        create("peer:libpecos").fit(TRAIN)
    monkeypatch.setenv("LAHA_PECOS_PYTHON", str(tmp_path / "none"))
    with pytest.raises(LahaError, match="cannot be run"):
        create("peer:libpecos").fit(TRAIN)


def test_a_python_without_libpecos_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("LAHA_PECOS_PYTHON", sys.executable)
    with pytest.raises(LahaError, match=r"No module named 'pecos'.*pecos/bin/pip install"):
        create("peer:libpecos").fit(TRAIN)


@pytest.mark.parametrize("name", ["one-vs-all", "parabel", "bonsai"])
def test_documents_without_a_known_word_or_a_label_neither_stop_training_nor_prediction(name):
    texts = [*TRAIN.texts, "", "onceonly", "apple pear"]
    labels = [[TRAIN.label_names[column] for column in TRAIN.labels[row].indices] for row in range(60)]
    labels += [["fruit"], ["lost"], []]
    model = create(name, min_count=2).fit(texts, labels)
    assert "lost" in [label.name for label in model.labels_]
    scores = model.predict_scores(["", "onceonly"]).toarray()
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", ["one-vs-all", "parabel"])
def test_a_corpus_with_nothing_to_learn_from_is_refused(name):
    with pytest.raises(CorpusError, match="no training document with both words and labels"):
        create(name).fit(["one", "two"], [["a"], ["b"]])


def test_one_vs_all_refuses_too_many_labels_with_a_way_out():
    with pytest.raises(ConfigurationError, match="6 labels are many for one-vs-all: take parabel or bonsai"):
        create("one-vs-all", label_limit=5).fit(TRAIN)


def test_one_vs_all_learns_the_words_of_each_label_and_drops_small_weights():
    model: Any = create("one-vs-all", min_count=1, prune=0.05).fit(TRAIN)
    assert np.abs(model.weights_.data).min() >= 0.05
    fruit = [label.name for label in model.labels_].index("fruit")
    best = np.argsort(-model.weights_[:, fruit].toarray().ravel())[:4]
    assert {model.vocabulary_.words[word] for word in best} == {"apple", "pear", "plum", "cherry"}


def test_one_vs_all_is_the_same_with_more_threads():
    one, two = (create("one-vs-all", workers=workers).fit(TRAIN).predict_scores(["apple owl"]) for workers in (1, 2))
    assert (one != two).nnz == 0


def test_a_prepared_corpus_keeps_its_words(prepared: Prepared):
    with pytest.raises(ConfigurationError, match="prepared with min_count=1, not 3: prepare it anew"):
        create("one-vs-all", min_count=3).fit(prepared)
    model: Any = create("one-vs-all").fit(prepared)
    assert model.configuration_.min_count == 1


def test_label_trees_score_only_candidates():
    model = create("parabel", candidates=2).fit(TRAIN)
    assert np.diff(model.predict_scores(["apple owl", "iron"]).indptr).tolist() == [2, 2]
    assert [len(best) for best in model.predict(["apple owl"], top=4).named()] == [2]


def test_label_trees_say_nothing_on_the_terminal(capfd, tmp_path: Path):
    create("parabel").fit(TRAIN).save(tmp_path / "model")
    laha.load(tmp_path / "model").predict(["apple"])
    assert capfd.readouterr() == ("", "")


def test_label_trees_with_a_file_missing_are_refused(tmp_path: Path):
    create("parabel").fit(TRAIN).save(tmp_path / "model")
    (tmp_path / "model" / "tree1.cbor").unlink()
    with pytest.raises(ModelError, match=r"tree1\.cbor is missing"):
        laha.load(tmp_path / "model")


def test_examples_are_written_in_the_repositorys_format(tmp_path: Path):
    rows, labels = csr_matrix([[0.5, 0, 1], [0, 2, 0]]), csr_matrix([[1, 1], [0, 0]])
    write_examples(tmp_path / "train.txt", rows, labels)
    assert (tmp_path / "train.txt").read_text() == "2 3 2\n0,1 0:0.5 2:1\n 1:2\n"


def test_a_peers_folder_comes_back_as_it_was_and_no_file_leaves_it(tmp_path: Path):
    (tmp_path / "one" / "deep").mkdir(parents=True)
    (tmp_path / "one" / "deep" / "weights.bin").write_bytes(b"12")
    files = gather(tmp_path / "one")
    assert files == {"peer~deep~weights.bin": b"12"}
    spread(files, tmp_path / "two")
    assert (tmp_path / "two" / "deep" / "weights.bin").read_bytes() == b"12"
    with pytest.raises(ModelError, match="forbidden name"):
        spread({"peer~..~out.bin": b""}, tmp_path / "two")


@pytest.mark.parametrize("settings", [{"kind": "ovr", "cost": 1.0}, {"trees": 2, "children": 4, "leaf": 2}])
def test_napkinxc_is_given_its_settings(settings, tmp_path: Path):
    pytest.importorskip("napkinxc", reason="the extra `peers` is not installed")
    model = create("peer:napkinxc", **settings).fit(TRAIN)
    assert model.predict(["apple pear plum"], top=1).named()[0][0][0] == "fruit"
    model.save(tmp_path / "model")
    again = laha.load(tmp_path / "model")
    assert (again.predict_scores(TRAIN.texts) != model.predict_scores(TRAIN.texts)).nnz == 0
    names = [path.name for path in (tmp_path / "model").iterdir()]
    assert any("member_1" in name for name in names) == ("trees" in settings)


def test_omikuji_is_given_its_settings():
    model: Any = create("peer:omikuji", children=4, balanced=False, depth=3, leaf=2, trees=1).fit(TRAIN)
    given = json.loads(model.files_["settings.json"])
    assert given["n_features"] == len(model.vocabulary_.words)
    assert list(model.files_) == ["settings.json", "tree0.cbor"]
    assert model.clustering() == {
        "cluster_k": 4,
        "cluster_balanced": False,
        "max_depth": 3,
        "min_branch_size": 2,
        "collapse_every_n_layers": 0,
    }


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("peer:napkinxc", {"kind": "ovo"}, "kind=ovo: did you mean 'ovr'"),
        ("peer:libpecos", {"negatives": "tfm"}, "negatives=tfm: did you mean 'tfn'"),
        ("peer:omikuji", {"children": 1}, "children=1: the value must be at least 2"),
    ],
)
def test_a_peers_wrong_setting_is_told(name, setting, message):
    with pytest.raises(ConfigurationError, match=message):
        _ = create(name, **setting).configuration


@pytest.mark.skipif(not os.environ.get("LAHA_PECOS_PYTHON"), reason="LAHA_PECOS_PYTHON names no interpreter")
def test_libpecos_is_given_its_settings():
    settings = {"negatives": "tfn+man", "relevance": "induce", "leaf": 2, "children": 2, "cost": 0.5, "beam": 2}
    model: Any = create("peer:libpecos", **settings).fit(TRAIN)
    assert model.predict(["apple pear plum"], top=1).named()[0][0][0] == "fruit"
    plain: Any = create("peer:libpecos").fit(TRAIN)
    rankers = [sum(name.endswith("W.npz") for name in fitted.files_) for fitted in (plain, model)]
    assert rankers == [1, 3]  # levels: 6 labels in one cluster of up to 100, and halved until two are left
