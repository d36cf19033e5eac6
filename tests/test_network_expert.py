"""The network's own two experts: trained beside each other, each with a loss of its own, and asked apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import PAPER
from tests.test_training import assert_same, fit, stop_after, weights

from laha.deep_estimator import Work
from laha.errors import ConfigurationError, Interrupted
from laha.experts.network import network_top
from laha.network.laha import LAHANetwork
from laha.prepared import Prepared
from laha.scoring.folded import FoldedScoring
from laha.tagger import LAHA
from laha.training import Examples, Trainer

BESIDE: dict[str, Any] = {"document_loss": 1.0, "document_units": 8}


def trainer_of(model: LAHA, prepared: Prepared, companion: float) -> Trainer:
    train, valid = prepared.part("train"), prepared.part("valid")
    examples = Examples(train.words, train.labels), Examples(valid.words, valid.labels)
    settings = model.configuration_
    return Trainer(model.network_, *examples, settings, 50, 0, torch.device("cpu"), companion=companion)


def test_the_head_learns_beside_the_attention(prepared: Prepared) -> None:
    model = fit(prepared, epochs=25, patience=25, units=16, word_dropout=0.0, state_dropout=0.0, **BESIDE)
    last = model.trained_["history"][-1]
    assert last["attention nDCG@5"] > 90
    assert last["document nDCG@5"] > 90
    assert last["nDCG@5"] > 90


def test_each_has_its_own_loss_and_the_encoder_learns_from_both(prepared: Prepared) -> None:
    model = fit(prepared, epochs=1, word_dropout=0.0, state_dropout=0.0, **BESIDE)
    documents = np.arange(5)
    truth = prepared.part("train").labels[documents].toarray()
    losses, moves = [], []
    for weight in (0.0, 0.5):
        network = model.network_
        before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        trainer = trainer_of(model, prepared, weight)
        words, lengths = trainer._tensors(trainer.train.words, documents)
        figures = trainer._step(documents)
        moved = {name: bool((tensor != before[name]).any()) for name, tensor in network.state_dict().items()}
        gradient = network.encoder.forward_lstm.weight_ih_l0.grad
        assert gradient is not None
        losses.append((float(figures["loss"]), float(figures.get("document_loss", 0.0)), gradient.clone()))
        moves.append(moved)
        network.load_state_dict(before)
        with torch.no_grad():
            expected = []
            scoring = FoldedScoring(network)
            encoded = scoring.encode(words, lengths)
            for logits in (scoring.score(encoded), scoring.companion(encoded)):
                p = logits.sigmoid().double().numpy()
                expected.append(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).sum() / 5)
    assert losses[0][0] == pytest.approx(expected[0], rel=1e-5)
    assert losses[1][0] == pytest.approx(expected[0] + 0.5 * expected[1], rel=1e-5)
    assert losses[1][1] == pytest.approx(expected[1], rel=1e-5)
    assert not torch.allclose(losses[0][2], losses[1][2])
    assert not moves[0]["document_head.labels.weight"]
    assert moves[1]["document_head.labels.weight"]
    assert moves[1]["self_attention.W_s1.weight"]


def test_without_that_loss_the_network_is_the_papers(prepared: Prepared) -> None:
    plain = fit(prepared)
    off = fit(prepared, document_loss=0.0, own_outputs=False, label_content=False, weight_decay=0.0)
    assert_same(plain, off)
    assert plain.network_.document_head is None
    assert "document nDCG@5" not in plain.trained_["history"][0]


def test_the_attention_begins_as_it_does_without_the_head(prepared: Prepared) -> None:
    networks = []
    for settings in ({}, BESIDE):
        model = LAHA(**PAPER, **settings)
        model._open(prepared, None, None, Work(torch.device("cpu")))
        model._build(prepared)
        networks.append({name: tensor.numpy() for name, tensor in model.network_.state_dict().items()})
    plain, beside = networks
    assert all(array.tobytes() == beside[name].tobytes() for name, array in plain.items())
    assert set(np.unique(beside["document_head.labels.weight"])) == {0.0}  # all labels alike


def test_interrupted_and_resumed_it_ends_with_the_same_bytes(prepared: Prepared, tmp_path: Path) -> None:
    settings = {**BESIDE, "own_outputs": True, "label_content": True, "weight_decay": 0.01, "document_dropout": 0.2}
    whole = fit(prepared, **settings)
    with pytest.raises(Interrupted):
        LAHA(**PAPER, **settings).fit(prepared, folder=tmp_path, progress=stop_after(14))
    assert_same(whole, fit(prepared, folder=tmp_path, resume=True, **settings))


def test_it_is_saved_and_loaded(prepared: Prepared, tmp_path: Path) -> None:
    model = fit(prepared, label_content=True, own_outputs=True, **BESIDE)
    assert model.network_.interaction_attention is not None
    assert model.network_.interaction_attention.L.weight.shape[1] == 6 + 12  # node2vec's, then the word vectors'
    model.save(tmp_path / "model")
    assert_same(model, LAHA.load(tmp_path / "model", device="cpu"))


def test_a_head_that_has_learned_is_the_shortlist_too(prepared: Prepared) -> None:
    without, model = fit(prepared, **BESIDE), fit(prepared, shortlist=3, **BESIDE)
    assert_same(without, model)
    assert model.trained_["shortlist"]["labels"] == 3


def test_weight_decay_shrinks_weights(prepared: Prepared) -> None:
    free, decayed = (weights(fit(prepared, epochs=1, weight_decay=decay)) for decay in (0.0, 0.5))
    norms = [np.linalg.norm(each["self_attention.W_s2.weight"]) for each in (free, decayed)]
    assert norms[1] < 0.95 * norms[0]


def test_training_ends_with_its_time(prepared: Prepared) -> None:
    model = fit(prepared, epochs=2_000, patience=2_000, limit_seconds=1.0, schedule="one-cycle")
    assert 1 <= len(model.trained_["history"]) < 2_000
    assert model.trained_["seconds"] < 5


@pytest.mark.parametrize("depth", [3, 9])
def test_each_is_asked_apart(prepared: Prepared, depth: int) -> None:
    model = fit(prepared, epochs=2, own_outputs=True, **BESIDE)
    words = prepared.part("test").words
    found = network_top(model.scorer_, words, depth)
    assert list(found) == ["attention", "document"]
    network = model.network_
    assert isinstance(network, LAHANetwork)
    known = min(depth, prepared.train_labels)
    with torch.no_grad():
        for documents, padded, lengths in model.scorer_.batches(words):
            scoring = FoldedScoring(network)
            encoded = scoring.encode(padded, lengths)
            for name, logits in (("attention", network(padded, lengths)), ("document", scoring.companion(encoded))):
                best = logits.topk(known, dim=1)
                ids, scores = (part[documents] for part in found[name])
                np.testing.assert_array_equal(ids[:, :known], best.indices.numpy())
                np.testing.assert_allclose(scores[:, :known], best.values.numpy(), atol=1e-5)
                assert (ids[:, known:] == -1).all()


def test_a_network_without_a_head_has_one_expert(prepared: Prepared) -> None:
    model = fit(prepared, epochs=1)
    words = prepared.part("test").words
    found = network_top(model.scorer_, words, 2)
    assert list(found) == ["attention"]
    np.testing.assert_array_equal(found["attention"][0], model.predict(words, top=2).ids)


def test_labels_may_be_sampled(prepared: Prepared) -> None:
    model = fit(prepared, negatives=2, **BESIDE)
    scoring = FoldedScoring(model.network_)
    words, lengths = torch.tensor([[2, 3, 4]]), torch.tensor([3])
    labels = torch.tensor([4, 1])
    with torch.no_grad():
        encoded = scoring.encode(words, lengths)
        torch.testing.assert_close(scoring.companion(encoded, labels), scoring.companion(encoded)[:, labels])
        head = model.network_.document_head
        assert head is not None
        torch.testing.assert_close(head(encoded.pooled, labels), head(encoded.pooled)[:, labels])


def test_wrong_settings_are_named() -> None:
    for name in ("document_loss", "document_dropout", "weight_decay", "limit_seconds"):
        with pytest.raises(ConfigurationError, match=f"{name}=-1"):
            _ = LAHA(**{name: -1}).configuration
