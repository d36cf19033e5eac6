"""The networks of the deep baselines against their papers' formulas, written as naive loops in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from laha.network.attention_xml import AttentionXMLNetwork
from laha.network.attention_xml_tree import AttentionXMLTree
from laha.network.exam import EXAMNetwork
from laha.network.xml_cnn import XMLCNNNetwork, dynamic_max_pool

WORDS, DIMENSIONS, LABELS, UNITS = 20, 5, 7, 3
DOCUMENTS = [[4, 9, 2, 11, 3], [7], [5, 5, 19, 8], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]]
PARENTS = [[0, 1, 0], [2, 0, 1, 0, 2, 1, 0]]  # of 2 nodes, 3 nodes, 7 labels


def attention_xml(labels: int = LABELS) -> AttentionXMLNetwork:
    return AttentionXMLNetwork(WORDS, DIMENSIONS, labels, UNITS, hidden_units=4, hidden_layers=2)


def attention_xml_tree() -> AttentionXMLTree:
    return AttentionXMLTree([attention_xml(k) for k in (2, 3, 7)], [torch.tensor(p) for p in PARENTS])


def xml_cnn() -> XMLCNNNetwork:
    return XMLCNNNetwork(WORDS, DIMENSIONS, LABELS, (2, 4), maps=3, chunks=3, bottleneck=6)


def exam() -> EXAMNetwork:
    return EXAMNetwork(WORDS, DIMENSIONS, LABELS, max_words=15, units=UNITS, aggregation_units=4)


MAKERS = [attention_xml, attention_xml_tree, xml_cnn, exam]


def made(maker: Callable[[], nn.Module], dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    network = maker().to(dtype)
    for parameter in network.parameters():  # far from zero, so that no term hides
        nn.init.normal_(parameter, std=0.6)
    return network.eval()


def numbers(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def lstm(vectors: list[np.ndarray], module: nn.LSTM) -> list[np.ndarray]:
    p = numbers(module)
    h, c, states = np.zeros(UNITS), np.zeros(UNITS), []
    for x in vectors:
        gates = p["weight_ih_l0"] @ x + p["bias_ih_l0"] + p["weight_hh_l0"] @ h + p["bias_hh_l0"]
        i, f, g, o = gates.reshape(4, UNITS)
        c = 1 / (1 + np.exp(-f)) * c + 1 / (1 + np.exp(-i)) * np.tanh(g)
        h = 1 / (1 + np.exp(-o)) * np.tanh(c)
        states.append(h)
    return states


def gru(vectors: list[np.ndarray], module: nn.GRU) -> list[np.ndarray]:
    p = numbers(module)
    h, states = np.zeros(UNITS), []
    for x in vectors:
        r_x, z_x, n_x = (p["weight_ih_l0"] @ x + p["bias_ih_l0"]).reshape(3, UNITS)
        r_h, z_h, n_h = (p["weight_hh_l0"] @ h + p["bias_hh_l0"]).reshape(3, UNITS)
        r, z = 1 / (1 + np.exp(-r_x - r_h)), 1 / (1 + np.exp(-z_x - z_h))
        h = (1 - z) * np.tanh(n_x + r * n_h) + z * h
        states.append(h)
    return states


def both_ways(words: list[int], encoder: nn.Module, run: Callable[..., list[np.ndarray]], kind: str) -> np.ndarray:
    vectors = [numbers(encoder)["word_vectors.weight"][word] for word in words]
    forward = run(vectors, getattr(encoder, f"forward_{kind}"))
    backward = run(vectors[::-1], getattr(encoder, f"backward_{kind}"))[::-1]
    return np.array([np.concatenate(pair) for pair in zip(forward, backward, strict=True)])  # (n, 2r)


def naive_attention_xml(network: nn.Module, words: list[int]) -> list[float]:
    p = numbers(network)
    H = both_ways(words, network.encoder, lstm, "lstm")  # type: ignore[arg-type]
    scores = []
    for w in p["attention.weight"]:
        exponents = [math.exp(float(h @ w)) for h in H]
        m = sum(e / sum(exponents) * h for e, h in zip(exponents, H, strict=True))
        for layer in (0, 1):
            m = np.maximum(0, p[f"hidden.{layer}.weight"] @ m + p[f"hidden.{layer}.bias"])
        scores.append(sigmoid(float(p["output.weight"][0] @ m + p["output.bias"][0])))
    return scores


def naive_attention_xml_tree(network: AttentionXMLTree, words: list[int]) -> list[float]:
    levels = [naive_attention_xml(level, words) for level in network.networks]
    scores = []
    for label in range(LABELS):
        middle = PARENTS[1][label]
        scores.append(levels[2][label] * levels[1][middle] * levels[0][PARENTS[0][middle]])
    return scores


def naive_xml_cnn(network: nn.Module, words: list[int]) -> list[float]:
    p = numbers(network)
    vectors = [p["encoder.word_vectors.weight"][word] for word in words]
    n, maps = len(words), []
    for number, width in enumerate((2, 4)):
        W, b = p[f"encoder.convolutions.{number}.weight"], p[f"encoder.convolutions.{number}.bias"]
        for feature in range(3):
            row = []
            for t in range(n):
                window = [W[feature, :, j] @ vectors[t + j] for j in range(width) if t + j < n]
                row.append(max(0.0, float(sum(window) + b[feature])))
            maps.append(row)
    pooled = []
    for chunk in range(3):
        start, end = n * chunk // 3, math.ceil(n * (chunk + 1) / 3)
        pooled += [max(row[start:end]) for row in maps]
    hidden = np.maximum(0, p["bottleneck.weight"] @ np.array(pooled) + p["bottleneck.bias"])
    return [sigmoid(float(x)) for x in p["output.weight"] @ hidden + p["output.bias"]]


def naive_exam(network: nn.Module, words: list[int]) -> list[float]:
    p = numbers(network)
    H = both_ways(words, network.encoder, gru, "gru")  # type: ignore[arg-type]
    scores = []
    for T in p["T.weight"]:
        row = np.zeros(15)
        row[: len(words)] = [float(h @ T) for h in H]
        hidden = np.maximum(0, p["hidden.weight"] @ row + p["hidden.bias"])
        scores.append(sigmoid(float(p["output.weight"][0] @ hidden + p["output.bias"][0])))
    return scores


NAIVE = [naive_attention_xml, naive_attention_xml_tree, naive_xml_cnn, naive_exam]


def padded(documents: list[list[int]], longest: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(longest, *map(len, documents))
    rows = [document + [0] * (longest - len(document)) for document in documents]
    return torch.tensor(rows), torch.tensor([len(document) for document in documents])


def scores_of(network: nn.Module, documents: list[list[int]], longest: int = 0) -> torch.Tensor:
    with torch.no_grad():
        return network.score(network.encode(*padded(documents, longest))).sigmoid()  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize(("maker", "naive"), list(zip(MAKERS, NAIVE, strict=True)))
def test_equals_the_formulas(maker: Callable[[], nn.Module], naive: Callable[..., list[float]]) -> None:
    network = made(maker)
    expected = [naive(network, document) for document in DOCUMENTS]
    np.testing.assert_allclose(scores_of(network, DOCUMENTS).numpy(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_documents_scores_do_not_depend_on_its_batch(maker: Callable[[], nn.Module]) -> None:
    network = made(maker, torch.float32)
    alone = torch.cat([scores_of(network, [document]) for document in DOCUMENTS])
    for longest in (0, 15):
        torch.testing.assert_close(scores_of(network, DOCUMENTS, longest), alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("maker", MAKERS)
def test_what_stands_in_the_padding_changes_nothing(maker: Callable[[], nn.Module]) -> None:
    network = made(maker)
    words, lengths = padded(DOCUMENTS)
    other = words.clone()
    other[1, 1:] = 13
    with torch.no_grad():
        first, second = (network.score(network.encode(w, lengths)) for w in (words, other))  # type: ignore[operator]
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_sample_of_labels_scores_as_among_all(maker: Callable[[], nn.Module]) -> None:
    network = made(maker)
    labels = torch.tensor([5, 0, 3])
    with torch.no_grad():
        encoded = network.encode(*padded(DOCUMENTS))  # type: ignore[operator]
        sample = network.score(encoded, labels)  # type: ignore[operator]
        everything = network.score(encoded)  # type: ignore[operator]
    torch.testing.assert_close(sample, everything[:, labels], rtol=0, atol=1e-12)


def test_each_document_may_have_labels_of_its_own() -> None:
    network = made(attention_xml)
    labels = torch.randint(0, LABELS, (len(DOCUMENTS), 4))
    with torch.no_grad():
        encoded = network.encode(*padded(DOCUMENTS))  # type: ignore[operator]
        own, everything = network.score(encoded, labels), network.score(encoded)  # type: ignore[operator]
    torch.testing.assert_close(own, everything.gather(1, labels), rtol=0, atol=1e-12)


def test_attention_sums_to_one_over_words_and_vanishes_on_padding() -> None:
    for maker in (attention_xml, attention_xml_tree):
        network = made(maker)
        with torch.no_grad():
            A = network.attend(network.encode(*padded(DOCUMENTS))).A_S  # type: ignore[operator]
        torch.testing.assert_close(A.sum(dim=-1), torch.ones(len(DOCUMENTS), LABELS, dtype=torch.float64))
        assert (A[1, :, 1:] == 0).all()


def test_chunks_cover_all_words_of_a_document_and_no_padding() -> None:
    features = torch.arange(24.0).view(2, 12, 1)
    lengths = torch.tensor([12, 5])
    assert dynamic_max_pool(features, lengths, 3).tolist() == [[3, 7, 11], [13, 15, 16]]


@pytest.mark.parametrize("maker", MAKERS)
def test_half_precision_scores_nearly_the_same(maker: Callable[[], nn.Module]) -> None:
    whole, half = made(maker, torch.float32), made(maker, torch.float32).bfloat16()
    torch.testing.assert_close(scores_of(half, DOCUMENTS).float(), scores_of(whole, DOCUMENTS), rtol=0, atol=0.06)
