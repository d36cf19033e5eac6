"""The deep baselines as estimators: they learn the rule, resume to the same bytes, and explain where they attend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import SMALL
from tests.test_training import stop_after

import laha
from laha.baselines.attentionxml import AttentionXML
from laha.baselines.exam import EXAM
from laha.baselines.xml_cnn import XMLCNN
from laha.candidates import Candidates
from laha.deep_estimator import DeepEstimator
from laha.errors import ConfigurationError, Interrupted, LahaError, ModelError
from laha.network.attention_xml import AttentionXMLNetwork
from laha.network.attention_xml_tree import AttentionXMLTree
from laha.prepared import Prepared
from laha.scoring.beam import Beam
from laha.storage import read_tensors, write_manifest, write_tensors
from laha.training import Examples, Trainer, TrainingConfiguration
from laha.training_folder import train_to_folder

EAGER = {"word_dropout": 0.0, "epochs": 25, "patience": 25}
# 2 nodes, 4 clusters of one or two labels, 6 labels; three clusters are looked into.
TREE = {"tree_above": 2, "splits": 1, "first_level": 2, "candidates": 3}
SMALL_EXAM = {key: value for key, value in SMALL.items() if key != "attention_units"}
SMALL_XML = {**SMALL_EXAM, "average_from": 0, "hidden_units": 8}
SMALL_CNN = {key: value for key, value in SMALL_EXAM.items() if key != "units"}
MODELS: dict[str, tuple[type[DeepEstimator], dict[str, Any]]] = {
    "attentionxml": (AttentionXML, SMALL_XML),
    "attentionxml-tree": (AttentionXML, {**SMALL_XML, **TREE}),
    "exam": (EXAM, {**SMALL_EXAM, "aggregation_units": 8}),
    "xml-cnn": (XMLCNN, {**SMALL_CNN, "maps": 8, "bottleneck": 16}),
}


def fit(name: str, prepared: Prepared, folder: Path | None = None, resume: bool = False, **settings: Any) -> Any:
    kind, small = MODELS[name]
    return kind(**{**small, **settings}).fit(prepared, folder=folder, resume=resume)


@pytest.fixture(scope="module")
def tree(prepared: Prepared) -> AttentionXML:
    model: AttentionXML = fit("attentionxml-tree", prepared)
    return model


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("attentionxml", {"units": 16, "state_dropout": 0.0}),
        ("attentionxml-tree", {"units": 16, "state_dropout": 0.0, "candidates": 4}),
        ("exam", {"units": 16, "state_dropout": 0.0, "max_words": 20}),  # no weights for places that no word takes
        ("xml-cnn", {"dropout": 0.0}),
    ],
)
def test_it_learns_the_rule(prepared: Prepared, name: str, settings: dict[str, Any]) -> None:
    history = fit(name, prepared, **{**EAGER, **settings}).trained_["history"]
    best = max(row["nDCG@5"] for row in history)
    assert best > 88
    assert best > history[0]["nDCG@5"] + 5


@pytest.mark.parametrize(("name", "steps"), [(name, 17) for name in MODELS] + [("attentionxml-tree", 47)])
def test_interrupted_and_resumed_it_ends_with_the_same_bytes(
    prepared: Prepared, tmp_path: Path, name: str, steps: int
) -> None:
    kind, small = MODELS[name]
    (tmp_path / "run").mkdir()
    with pytest.raises(Interrupted):
        kind(**small).fit(prepared, folder=tmp_path / "run", progress=stop_after(steps))
    resumed = fit(name, prepared, tmp_path / "run", resume=True)
    fit(name, prepared).save(tmp_path / "whole")
    resumed.save(tmp_path / "resumed")
    whole, again = (tmp_path / place / "weights.safetensors" for place in ("whole", "resumed"))
    assert whole.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("name", ["attentionxml", "attentionxml-tree"])
def test_attention_is_explained_in_the_column_of_self_attention(prepared: Prepared, name: str) -> None:
    model = fit(name, prepared, epochs=1)
    explained = model.explain("The RED apple and an Owl", top=2).labels
    best = model.predict(["The RED apple and an Owl"], top=2).named()[0]
    for label, (name, score) in zip(explained, best, strict=True):
        assert label.label == name
        assert label.score == pytest.approx(score, abs=1e-6)
        assert (label.alpha, label.beta) == (1, 0)
        assert [word.word for word in label.words] == ["the", "red", "apple", "and", "an", "owl"]
        assert sum(word.self for word in label.words) == pytest.approx(1, abs=1e-5)
        assert all(word.interaction == 0 and word.fused == pytest.approx(word.self) for word in label.words)


def test_what_has_no_attention_has_no_explanation() -> None:
    assert not hasattr(XMLCNN(), "explain")
    assert not hasattr(EXAM(), "explain")


def test_few_labels_need_no_tree_and_many_get_one(prepared: Prepared, tree: AttentionXML) -> None:
    assert "levels" not in fit("attentionxml", prepared, epochs=1).trained_
    assert isinstance(tree.network_, AttentionXMLTree)
    assert [level["nodes"] for level in tree.trained_["levels"]] == [2, 4, 6]


def test_a_level_begins_from_the_one_above_it(prepared: Prepared) -> None:
    model = fit("attentionxml-tree", prepared, epochs=1, learning_rate=1e-12)
    first, *others = (level.state_dict() for level in model.network_.networks)
    for other in others:
        for name, weight in first.items():
            if name != "attention.weight":
                np.testing.assert_allclose(other[name], weight, atol=1e-8, err_msg=name)


def test_the_tree_tags_by_beam_unless_every_label_is_asked_for(tree: AttentionXML, tmp_path: Path) -> None:
    tree.save(tmp_path / "model")
    again = laha.load(tmp_path / "model", device="cpu")
    for model in (tree, again):
        texts = ["apple owl", "iron noise1", ""]
        beam = model.predict_scores(texts)
        best = model.predict(texts, top=2)
        model.exact = True
        every = model.predict_scores(texts).toarray()
        model.exact = False
        assert beam.nnz < every.size == 18
        np.testing.assert_allclose(beam.data, every[beam.nonzero()], atol=1e-6)
        np.testing.assert_allclose(np.take_along_axis(every, best.ids, axis=1), best.scores, atol=1e-6)
        assert len(model.predict(texts, top=6).named()[0]) == 6
    assert (again.predict_scores(texts) != beam).nnz == 0


def test_training_a_tree_to_a_folder_keeps_no_more_than_the_model(prepared: Prepared, tmp_path: Path) -> None:
    kind, small = MODELS["attentionxml-tree"]
    train_to_folder(kind(**{**small, "epochs": 1}), prepared, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_weights_that_do_not_fit_are_refused(prepared: Prepared, tmp_path: Path) -> None:
    fit("attentionxml", prepared, epochs=1).save(tmp_path / "model")
    path = tmp_path / "model" / "weights.safetensors"
    arrays = read_tensors(path)[0]
    del arrays["output.bias"]
    write_tensors(path, arrays)
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    write_manifest(tmp_path / "model", "model", {k: v for k, v in manifest.items() if k not in ("format", "files")})
    with pytest.raises(ModelError, match="the weights do not fit the configuration"):
        laha.load(tmp_path / "model", device="cpu")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (AttentionXML, {"candidates": 0}),
        (AttentionXML, {"splits": 0}),
        (EXAM, {"aggregation_units": 0}),
        (XMLCNN, {"dropout": 1.0}),
        (XMLCNN, {"chunks": 0}),
    ],
)
def test_a_wrong_value_is_named(kind: type[DeepEstimator], settings: dict[str, Any]) -> None:
    (pair,) = settings.items()
    with pytest.raises(ConfigurationError, match="{}={}".format(*pair)):
        _ = kind(**settings).configuration


def test_the_defaults_are_the_papers() -> None:
    xml = AttentionXML().configuration
    assert (xml.units, xml.hidden_units, xml.hidden_layers, xml.word_dropout, xml.state_dropout) == (
        *(256, 256, 1),
        *(0.2, 0.5),
    )
    assert (2**xml.splits, xml.candidates, xml.negatives) == (8, 160, 0)
    cnn = XMLCNN().configuration
    assert (cnn.maps, cnn.bottleneck, cnn.dropout) == (128, 512, 0.5)


def test_one_text_must_be_a_list(tree: AttentionXML) -> None:
    with pytest.raises(LahaError, match="give a list of texts"):
        tree.predict("apple")


def test_a_level_is_trained_on_its_candidates_alone(prepared: Prepared) -> None:
    part = prepared.part("train")
    children = np.array([[0, 3], [1, -1], [2, 4]])
    parents = np.tile(np.array([[1, 2]], np.int32), (len(part), 1))
    labels = part.labels[:, :5]
    candidates = Candidates(parents, np.zeros(parents.shape, np.float32), children)
    examples = Examples(part.words, labels, candidates)
    assert examples.take(7, seed=0).candidates.parents.shape == (7, 2)  # type: ignore[union-attr]
    torch.manual_seed(0)
    network = AttentionXMLNetwork(len(prepared.word_vectors), 4, labels=5, units=3, hidden_units=4)
    configuration = TrainingConfiguration(batch=16, precision="float32")
    trainer = Trainer(network, examples, examples, configuration, 50, seed=0, device=torch.device("cpu"))
    documents = np.arange(6)
    words, lengths = trainer._tensors(part.words, documents)
    with torch.no_grad():
        predicted = network.eval()(words, lengths).sigmoid().double().numpy()[:, [1, 2, 4]]  # 0 and 3 are no candidates
    truth = labels[documents].toarray()[:, [1, 2, 4]]
    expected = -(truth * np.log(predicted) + (1 - truth) * np.log(1 - predicted)).sum() / 6
    assert float(trainer._step(documents)["loss"]) == pytest.approx(expected, rel=1e-5)


def test_without_a_tree_every_label_is_scored(prepared: Prepared, tree: AttentionXML) -> None:
    model = fit("attentionxml", prepared, epochs=1)
    assert model.scorer_.shortlist is None
    assert model.predict_scores(["red apple"]).nnz == len(model.labels_)
    assert isinstance(tree.scorer_.shortlist, Beam)
