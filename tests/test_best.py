"""The preset "best": experts beside the network, what a budget leaves of them, and what is kept meanwhile."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import PAPER, SMALL, make_corpus

from laha.corpus import Corpus, LabelDetail, Parts
from laha.errors import ConfigurationError, Interrupted, LahaError, ModelError
from laha.evaluation import evaluate
from laha.experts import fusion, tree
from laha.experts.panel import ask
from laha.prepared import PreparationConfiguration, Prepared, add_vectors, prepare, prepare_words
from laha.storage import read_tensors
from laha.tagger import EXPERTS, LAHA
from laha.training_folder import train_to_folder

NO_TREES = "neighbours,names"  # what learns at once
REPEATABLE = "neighbours,names,lexical"  # Omikuji draws its trees at random
OWN = {k: v for k, v in SMALL.items() if k in PreparationConfiguration.__dataclass_fields__}
DETAILS = {
    "whale": LabelDetail("Q1", ("noise1 noise2",)),
    "metal": LabelDetail("Q2", ("iron", "copper")),  # synonyms that are always right,
    "bird": LabelDetail(None, ("noise5",)),  # and one that mostly is not
}
TEXTS = ["apple owl noise3", "noise1 noise2 iron", "", "zzz"]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "STEPS", 60)


@pytest.fixture(scope="module")
def described(parts: Parts) -> Parts:
    """Return the corpus with a label "whale" that no training document has, and some held-out ones that do."""

    def with_whales(corpus: Corpus, number: int) -> Corpus:
        texts = [*corpus.texts, *(f"the noise1 noise2 of {n}" for n in range(number))]
        names = [[corpus.label_names[i] for i in corpus.labels[row].indices] for row in range(len(corpus))]
        return Corpus.from_lists(texts, [*names, *[["whale"]] * number], corpus.name)

    train = replace(parts.train_part(), label_details=DETAILS)
    assert parts.valid is not None
    assert parts.test is not None
    return Parts(train, with_whales(parts.valid, 10), with_whales(parts.test, 5), "described")


@pytest.fixture(scope="module")
def ready(described: Parts) -> Prepared:
    return prepare(described, PreparationConfiguration(**OWN), seed=0)


@pytest.fixture(scope="module")
def model(ready: Prepared) -> LAHA:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "STEPS", 60)
        return LAHA(**{**SMALL, "epochs": 2}, experts=REPEATABLE).fit(ready)


@pytest.fixture(scope="module")
def saved(model: LAHA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("best") / "model"
    model.save(path)
    return path


def assert_same(left: LAHA, right: LAHA, texts: Any = TEXTS) -> None:
    assert [label.name for label in left.labels_] == [label.name for label in right.labels_]
    assert (left.predict_scores(texts) != right.predict_scores(texts)).nnz == 0


def test_a_label_known_by_its_name_is_one_of_the_models(model: LAHA) -> None:
    assert model.labels_[-1].name == "whale"
    assert model.labels_[-1].frequency == 0
    assert model.network_.labels == len(model.labels_) - 1
    assert model.panel_ is not None
    assert "names" in model.panel_.names


def test_a_label_without_training_documents_is_predicted_and_evaluated(model: LAHA, ready: Prepared) -> None:
    assert model.predict(["noise1 noise2"], top=7).named()[0]
    column = [label.name for label in model.labels_].index("whale")
    scores = model.predict_scores(["noise1 noise2", "apple"]).toarray()[:, column]
    assert scores[0] > scores[1]
    groups = evaluate(model, ready).groups
    assert groups["unseen"]["documents"] == 5
    assert groups["unseen"]["P@1"] == 100
    assert LAHA(**PAPER)._labels_of(ready) == len(model.labels_) - 1  # the paper's cannot


def test_a_label_of_which_nothing_is_known_stays_unknown(described: Parts, parts: Parts) -> None:
    bare = replace(described, train=parts.train)
    words = prepare_words(bare, PreparationConfiguration(**OWN))
    assert words.known_labels == words.train_labels == len(words.labels) - 1


def test_preparation_in_two_steps_is_preparation(described: Parts, ready: Prepared) -> None:
    bare = prepare_words(described, PreparationConfiguration(**OWN), 0)
    assert not bare.has_vectors
    assert bare.train_labels == ready.train_labels
    whole = add_vectors(bare)
    assert whole.has_vectors
    np.testing.assert_array_equal(whole.word_vectors, ready.word_vectors)
    np.testing.assert_array_equal(whole.label_vectors, ready.label_vectors)
    assert add_vectors(bare, passes=1).configuration.word_epochs == 1
    assert add_vectors(bare, passes=99).configuration.word_epochs == OWN["word_epochs"]


def test_saved_and_loaded_it_says_the_same_and_saves_the_same_bytes(model: LAHA, saved: Path, tmp_path: Path) -> None:
    again = LAHA.load(saved, device="cpu")
    assert_same(model, again)
    assert again.explain(TEXTS[1], ["whale", "metal"]) == model.explain(TEXTS[1], ["whale", "metal"])
    assert again.score_at_precision(0.5) == model.score_at_precision(0.5)
    again.save(tmp_path / "again")
    for file in saved.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name


def test_trees_are_saved_and_loaded_with_the_others(ready: Prepared, tmp_path: Path) -> None:
    pytest.importorskip("omikuji", reason="the extra trees is not installed")
    model = LAHA(**SMALL, experts="names,tree", budget=0.001).fit(prepare_parts_of(ready))
    assert model.evidence_ is not None
    assert list(model.evidence_.experts) == ["names", "tree"]
    model.save(tmp_path / "one")
    again = LAHA.load(tmp_path / "one", device="cpu")
    assert_same(model, again)
    again.save(tmp_path / "two")
    assert (tmp_path / "one" / EXPERTS).read_bytes() == (tmp_path / "two" / EXPERTS).read_bytes()


def test_damaged_experts_are_refused(saved: Path, tmp_path: Path, model: LAHA) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "model" / EXPERTS).write_bytes(b"not tensors")
    with pytest.raises(ModelError):
        LAHA.load(tmp_path / "model")


def test_word_ids_of_a_prepared_folder_score_as_their_texts(
    model: LAHA, ready: Prepared, described: Parts, tmp_path: Path
) -> None:
    ready.save(tmp_path / "prepared")
    words = Prepared.load(tmp_path / "prepared").part("test").words
    assert described.test is not None
    from_texts, from_words = model.predict(described.test.texts), model.predict(words)
    np.testing.assert_array_equal(from_texts.ids, from_words.ids)
    np.testing.assert_array_equal(from_texts.scores, from_words.scores)
    assert evaluate(model, ready).metrics == evaluate(model, described.test).metrics


def test_predict_gives_the_best_of_predict_scores(model: LAHA) -> None:
    scores, best = model.predict_scores(TEXTS).toarray(), model.predict(TEXTS, top=3)
    for row in range(len(TEXTS)):
        np.testing.assert_allclose(best.scores[row], -np.sort(-scores[row])[:3])
    assert ((scores >= 0) & (scores <= 1)).all()
    assert model.predict(TEXTS, top=99).ids.shape == (4, len(model.labels_))


def test_no_text_is_no_document(model: LAHA) -> None:
    assert model.predict([]).named() == []
    assert model.predict([], top=2).ids.shape == (0, 2)
    assert model.predict_scores([]).shape == (0, len(model.labels_))
    with pytest.raises(ConfigurationError, match="top=0"):
        model.predict(TEXTS, top=0)


def test_an_explanation_says_whose_evidence_a_label_has(model: LAHA) -> None:
    explanation = model.explain("iron copper noise1 noise2", ["whale", "metal"])
    scores = dict(model.predict(["iron copper noise1 noise2"], top=7).named()[0])
    assert model.panel_ is not None
    for entry in explanation.labels:
        assert entry.score == pytest.approx(scores[entry.label], abs=1e-5)
        assert set(entry.experts) == set(model.panel_.names)
        assert sum(entry.experts.values()) == pytest.approx(1)
    whale = next(entry for entry in explanation.labels if entry.label == "whale")
    assert not whale.experts.get("attention")
    assert not whale.experts.get("lexical")
    assert [entry.score for entry in explanation.labels] == sorted((e.score for e in explanation.labels), reverse=True)
    assert len(model.explain("iron", top=2).labels) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts": "tre"}, "experts=tre: did you mean 'tree'?"),
        ({"experts": "names,neighbors"}, "did you mean 'neighbours'?"),
        ({"experts": ""}, "experts="),
        ({"budget": -1.0}, "budget=-1.0"),
    ],
)
def test_a_wrong_value_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _ = LAHA(**settings).configuration
    assert message in str(caught.value)


def test_experts_are_learned_the_cheapest_first() -> None:
    assert LAHA(experts="lexical,neighbours").configuration.expert_kinds == ("neighbours", "lexical")
    assert LAHA(preset="paper").configuration.expert_kinds == ()
    assert not LAHA().repeatable
    assert LAHA(experts=NO_TREES).repeatable


def test_one_seed_gives_the_same_bytes_without_trees(ready: Prepared, tmp_path: Path) -> None:
    for name in ("one", "two"):
        LAHA(**{**SMALL, "epochs": 1}, experts=REPEATABLE).fit(ready).save(tmp_path / name)
    for file in ("weights.safetensors", EXPERTS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_budget_too_small_for_a_network_leaves_a_model_all_the_same(ready: Prepared, tmp_path: Path) -> None:
    bare = prepare_parts_of(ready)
    model = LAHA(**SMALL, experts=NO_TREES, budget=0.001).fit(bare)
    assert model.network_ is None
    assert "left out" in model.trained_["network"]
    assert model.vectors_of_labels() is None
    assert evaluate(model, bare).metrics["P@1"] > 80
    model.save(tmp_path / "model")
    again = LAHA.load(tmp_path / "model")
    assert again.network_ is None
    assert_same(model, again)
    assert again.predict([]).named() == []
    explanation = again.explain("noise3 iron", ["metal"])  # without attention: by what the score loses
    weights = {weight.word: weight.fused for weight in explanation.labels[0].words}
    assert weights["iron"] == max(weights.values()) > 0.5
    assert again.explain("", ["metal"]).labels[0].words == []
    assert again.explain("", top=2).labels == []  # no expert has anything to say of no words
    assert len(again.explain("qqq qqq", ["whale", "metal"]).labels) == 2
    assert read_tensors(tmp_path / "model" / "weights.safetensors")[0] == {}
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / EXPERTS).read_bytes() == (tmp_path / "model" / EXPERTS).read_bytes()


def prepare_parts_of(ready: Prepared) -> Prepared:
    """Return a prepared corpus before its vectors."""
    return replace(
        ready,
        word_vectors=np.zeros((len(ready.vocabulary), 0), np.float32),
        label_vectors=np.zeros((ready.train_labels, 0), np.float32),
    )


def test_a_budget_that_suffices_trains_a_network_within_it(ready: Prepared) -> None:
    model = LAHA(**SMALL, experts=NO_TREES, budget=30.0).fit(ready)
    assert model.network_ is not None
    assert 0 < model.configuration_.limit_seconds < 30
    assert "network" not in model.trained_


def test_fit_again_forgets_the_first(ready: Prepared) -> None:
    model = LAHA(**{**SMALL, "epochs": 1}, experts=NO_TREES).fit(ready)
    assert model.network_ is not None
    model.set_params(budget=0.001).fit(ready)
    assert model.network_ is None
    assert model.panel_ is not None
    assert not {"attention", "document"} & set(model.panel_.names)
    model.set_params(budget=None, preset="paper", experts=None).fit(ready)
    assert model.panel_ is None
    assert model.predict(["apple"], top=1).ids.shape == (1, 1)


def test_without_the_library_of_trees_the_model_stands(
    ready: Prepared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tree, "available", lambda: False)
    with pytest.warns(UserWarning, match=r"pip install 'laha\[trees\]'"):
        model = LAHA(**SMALL, experts="names,tree", budget=0.001).fit(ready)
    assert model.evidence_ is not None
    assert list(model.evidence_.experts) == ["names"]
    model.save(tmp_path / "model")
    assert_same(model, LAHA.load(tmp_path / "model"))


def test_documents_to_validate_on_need_labels() -> None:
    texts = ["red apple", "green pear", "blue plum", "old owl"] * 5
    with pytest.raises(LahaError, match="no validation document has a label"):
        LAHA(**SMALL).fit(texts, [["a"]] * 20, (texts[:2], [[], []]))


@pytest.mark.parametrize("labels", [[["a"]] * 20, [["!!"]] * 20, [[f"l{n}{m}" for m in range(9)] for n in range(20)]])
def test_one_label_a_name_without_words_and_more_labels_than_documents(labels: list[list[str]]) -> None:
    texts = ["red apple", "green pear", "", "old owl"] * 5
    model = LAHA(**{**SMALL, "epochs": 1}).fit(texts, labels)
    assert model.predict(["red"], top=1).named()[0]


class Stop:
    """Sends the process Ctrl-C when the model folder is there and training has begun."""

    def __init__(self, out: Path, task: str):
        self.out, self.task, self.sent = out, task, False

    def __call__(self, task: str, done: float, note: str = "") -> None:
        if task == self.task and not self.sent and (self.out / "manifest.json").is_file():
            self.sent = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("task", ["training", "label vectors: walks"])
def test_stopped_after_the_first_experts_there_is_a_model_and_resumed_it_ends_as_if_never_stopped(
    described: Parts, tmp_path: Path, task: str
) -> None:
    settings = {**SMALL, "epochs": 2, "experts": NO_TREES}
    out, stop = tmp_path / "model", Stop(tmp_path / "model", task)
    with pytest.raises((Interrupted, KeyboardInterrupt)):
        train_to_folder(LAHA(**settings), lambda: described, out, progress=stop, facts={"command": "here"})
    assert stop.sent
    kept = LAHA.load(out)
    assert kept.network_ is None
    assert kept.trained_["command"] == "here"
    assert kept.predict(["apple"], top=1).named()[0][0][0] == "fruit"
    train_to_folder(LAHA(**settings), lambda: described, out, resume=True)
    assert not (tmp_path / "model.training").exists()
    whole = LAHA.load(out)
    assert whole.network_ is not None
    if task != "training":
        return
    train_to_folder(LAHA(**settings), lambda: described, tmp_path / "never")
    assert (tmp_path / "never" / EXPERTS).read_bytes() == (out / EXPERTS).read_bytes()
    assert (tmp_path / "never" / "weights.safetensors").read_bytes() == (out / "weights.safetensors").read_bytes()


def test_the_model_is_kept_again_with_the_network_as_it_gets_better(ready: Prepared, tmp_path: Path) -> None:
    model, networks = LAHA(**{**SMALL, "epochs": 3}, experts=NO_TREES), []

    def keep() -> None:
        model.save(tmp_path / "model")
        with torch.random.fork_rng(devices=[]):  # a network that is made anew draws its first weights
            loaded = LAHA.load(tmp_path / "model", device="cpu")
        assert_same(model, loaded)
        networks.append(loaded.network_ is not None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("laha.tagger.KEEP_EVERY", 0)
        model.fit(ready, keep=keep)
    assert networks[0] is False
    assert True in networks
    plain = LAHA(**{**SMALL, "epochs": 3}, experts=NO_TREES).fit(ready)
    assert_same(model, plain)  # keeping changes nothing in what is learned


def test_the_manifest_says_what_the_experts_are_worth(model: LAHA, saved: Path) -> None:
    training = json.loads((saved / "manifest.json").read_text())["training"]
    experts = training["experts"]
    assert model.panel_ is not None
    assert tuple(experts["alone"]) == model.panel_.names
    assert training["validation"] == experts["together"]
    assert experts["documents"] == 50


def test_what_a_precision_promises_holds_on_the_validation_documents(model: LAHA, ready: Prepared) -> None:
    part = ready.part("valid")
    best = model.predict(part.words)
    score = model.score_at_precision(0.6)
    kept = best.scores >= score
    right = np.asarray(part.labels[np.arange(len(part))[:, None].repeat(5, 1)[kept], best.ids[kept]])
    assert kept.sum() >= 20
    assert right.mean() >= 0.6
    assert model.score_at_precision(1.01) == float("inf")
    with pytest.raises(LahaError, match="not calibrated"):
        LAHA(**PAPER).score_at_precision(0.9)


def test_a_corpus_of_another_seed_is_tagged_right(model: LAHA) -> None:
    assert evaluate(model, make_corpus(50, 9)).metrics["P@1"] > 95


def test_only_experts_that_the_panel_weighs_are_asked(ready: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LAHA(**{**SMALL, "epochs": 1}, experts=NO_TREES).fit(ready)
    assert model.panel_ is not None
    words = model._encode(["apple iron"])
    assert set(ask(words, model._sources())) >= set(model.panel_.names)
    monkeypatch.setattr(model.panel_, "names", ("neighbours",))
    monkeypatch.setattr(model, "_ask_network", None)  # nobody may call it
    assert set(ask(words, model._sources())) == {"neighbours"}
