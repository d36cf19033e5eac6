"""The network against the formulas of DESIGN 1, written as naive loops in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from laha.network.encoder import Encoder
from laha.network.laha import LAHANetwork

WORDS, LABELS, UNITS, ATTENTION_UNITS, WORD_DIMENSIONS, LABEL_DIMENSIONS = 20, 7, 3, 4, 5, 6
VARIANTS = [("hybrid", "adaptive"), ("hybrid", "mean"), ("self", "adaptive"), ("interaction", "adaptive")]


def make_network(
    attention: str = "hybrid", fusion: str = "adaptive", dtype: torch.dtype = torch.float64
) -> LAHANetwork:
    torch.manual_seed(1)
    network = LAHANetwork(
        WORDS, WORD_DIMENSIONS, LABELS, LABEL_DIMENSIONS, UNITS, ATTENTION_UNITS, attention, fusion
    ).to(dtype)
    for parameter in network.parameters():  # far from zero, so that no term hides
        torch.nn.init.normal_(parameter, std=0.7)
    return network.eval()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(values: list[float]) -> list[float]:
    exponents = [math.exp(v - max(values)) for v in values]
    return [e / sum(exponents) for e in exponents]


def lstm(vectors: list[np.ndarray], module: torch.nn.LSTM) -> list[np.ndarray]:
    """One direction, gate by gate: input, forget, cell, output."""
    W, U = module.weight_ih_l0.detach().numpy(), module.weight_hh_l0.detach().numpy()
    b = module.bias_ih_l0.detach().numpy() + module.bias_hh_l0.detach().numpy()
    h, c, states = np.zeros(UNITS), np.zeros(UNITS), []
    for x in vectors:
        gates = W @ x + U @ h + b
        for unit in range(UNITS):
            i, f, g, o = (gates[unit + gate * UNITS] for gate in range(4))
            c[unit] = sigmoid(f) * c[unit] + sigmoid(i) * math.tanh(g)
            h[unit] = sigmoid(o) * math.tanh(c[unit])
        states.append(h.copy())
    return states


def naive_scores(network: LAHANetwork, words: list[int], attention: str, fusion: str) -> list[float]:
    """ŷ of every label for one document, from the formulas."""
    p = {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}
    vectors = [p["encoder.word_vectors.weight"][word] for word in words]
    H_f = lstm(vectors, network.encoder.forward_lstm)
    H_b = lstm(vectors[::-1], network.encoder.backward_lstm)[::-1]
    H = [np.concatenate(pair) for pair in zip(H_f, H_b, strict=True)]
    scores = []
    for label in range(LABELS):
        C_S = C_I = np.zeros(2 * UNITS)
        if attention != "interaction":
            W_s1, W_s2 = p["self_attention.W_s1.weight"], p["self_attention.W_s2.weight"]
            A_S = softmax([float(W_s2[label] @ np.tanh(W_s1 @ h)) for h in H])
            C_S = sum(weight * h for weight, h in zip(A_S, H, strict=True))
        if attention != "self":
            Q = p["interaction_attention.W_q.weight"] @ p["interaction_attention.L.weight"][label]
            A_I = softmax([float(f @ Q + b @ Q) for f, b in zip(H_f, H_b, strict=True)])
            C_I = sum(weight * h for weight, h in zip(A_I, H, strict=True))
        alpha = {"self": 1.0, "interaction": 0.0, "hybrid": 0.5}[attention]
        if attention == "hybrid" and fusion == "adaptive":
            a = sigmoid(float((p["fusion.F1.weight"] @ C_S + p["fusion.F1.bias"]).item()))
            b = sigmoid(float((p["fusion.F2.weight"] @ C_I + p["fusion.F2.bias"]).item()))
            alpha = a / (a + b)
        C = alpha * C_S + (1 - alpha) * C_I
        hidden = np.maximum(0, p["prediction.W_f.weight"] @ C + p["prediction.W_f.bias"])
        scores.append(sigmoid(float((p["prediction.W_o.weight"] @ hidden + p["prediction.W_o.bias"]).item())))
    return scores


DOCUMENTS = [[4, 9, 2, 11, 3], [7], [5, 5, 19, 8], [1, 2, 3, 4, 5, 6, 7, 8]]


def padded(documents: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, documents))
    rows = [document + [0] * (longest - len(document)) for document in documents]
    return torch.tensor(rows), torch.tensor([len(document) for document in documents])


@pytest.mark.parametrize(("attention", "fusion"), VARIANTS)
def test_equals_the_formulas(attention: str, fusion: str) -> None:
    network = make_network(attention, fusion)
    with torch.no_grad():
        found = network(*padded(DOCUMENTS)).sigmoid().numpy()
    expected = [naive_scores(network, document, attention, fusion) for document in DOCUMENTS]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("attention", "fusion"), VARIANTS)
def test_a_documents_scores_do_not_depend_on_its_batch(attention: str, fusion: str) -> None:
    network = make_network(attention, fusion, torch.float32)
    with torch.no_grad():
        together = network(*padded(DOCUMENTS)).sigmoid()
        alone = torch.cat([network(*padded([document])).sigmoid() for document in DOCUMENTS])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    network = make_network()
    words, lengths = padded(DOCUMENTS)
    other = words.clone()
    other[1, 1:] = 13  # behind the one word of the second document
    with torch.no_grad():
        assert torch.equal(network(words, lengths), network(other, lengths))


@pytest.mark.parametrize(("attention", "fusion"), VARIANTS)
def test_a_sample_of_labels_scores_as_among_all(attention: str, fusion: str) -> None:
    network = make_network(attention, fusion)
    labels = torch.tensor([5, 0, 3])
    with torch.no_grad():
        everything = network(*padded(DOCUMENTS))
        sample = network(*padded(DOCUMENTS), labels)
    torch.testing.assert_close(sample, everything[:, labels], rtol=0, atol=1e-12)


def test_weights_sum_to_one_over_words_and_vanish_on_padding() -> None:
    network = make_network()
    words, lengths = padded(DOCUMENTS)
    with torch.no_grad():
        attended = network.attend(network.encode(words, lengths))
    for weights in (attended.A_S, attended.A_I):
        assert weights is not None
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(len(DOCUMENTS), LABELS, dtype=torch.float64))
        assert (weights[1, :, 1:] == 0).all()


def test_alpha_holds_where_both_gates_vanish() -> None:
    network = make_network()
    with torch.no_grad():
        network.fusion.F1.bias.fill_(-2000.0)  # type: ignore[union-attr]
        network.fusion.F2.bias.fill_(-2000.0)  # type: ignore[union-attr]
        alpha = network.attend(network.encode(*padded(DOCUMENTS))).alpha
    assert torch.isfinite(alpha).all()  # type: ignore[arg-type]


def test_label_vectors_are_frozen_and_word_vectors_are_not() -> None:
    trained = {name for name, parameter in make_network().named_parameters() if parameter.requires_grad}
    assert "interaction_attention.L.weight" not in trained
    assert "encoder.word_vectors.weight" in trained


@pytest.mark.parametrize(
    ("attention", "absent"), [("self", "interaction_attention"), ("interaction", "self_attention")]
)
def test_an_ablation_has_no_weights_of_what_it_leaves_out(attention: str, absent: str) -> None:
    names = list(make_network(attention).state_dict())
    assert not [name for name in names if name.startswith((absent, "fusion"))]


def test_layers_have_a_bias_exactly_where_the_design_says() -> None:
    biases = {name for name in make_network().state_dict() if name.endswith("bias") and "lstm" not in name}
    assert biases == {"fusion.F1.bias", "fusion.F2.bias", "prediction.W_f.bias", "prediction.W_o.bias"}


def test_dropout_acts_on_word_vectors_and_on_states_only_in_training() -> None:
    words, lengths = padded(DOCUMENTS)
    for dropouts in ({"word_dropout": 0.5}, {"state_dropout": 0.5}):
        torch.manual_seed(0)
        encoder = Encoder(WORDS, WORD_DIMENSIONS, UNITS, **dropouts)
        assert not torch.equal(encoder.train()(words, lengths), encoder(words, lengths))
        assert torch.equal(encoder.eval()(words, lengths), encoder(words, lengths))
