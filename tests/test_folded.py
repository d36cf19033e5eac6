"""Folded scoring is the network's own function: scores and gradients, on every path and for every ablation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from laha.network.attention_xml import AttentionXMLNetwork
from laha.network.encoder import word_mask
from laha.network.laha import LAHANetwork
from laha.scoring import folded, streaming
from laha.scoring.folded import FoldedScoring, Queries
from laha.scoring.folded_attention_xml import FoldedAttentionXML
from laha.scoring.paths import choose_scoring

VARIANTS = [("hybrid", "adaptive"), ("hybrid", "mean"), ("self", "adaptive"), ("interaction", "adaptive")]


@pytest.fixture(params=VARIANTS, ids=["-".join(variant) for variant in VARIANTS])
def network(request: pytest.FixtureRequest) -> LAHANetwork:
    torch.manual_seed(3)
    attention, fusion = request.param
    network = LAHANetwork(30, 6, 150, 4, units=5, attention_units=3, attention=attention, fusion=fusion)
    return network.double()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randint(1, 30, (4, 9)), torch.tensor([9, 4, 3, 1])


@pytest.fixture(params=["kept", "computed again", "small chunks"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if request.param == "computed again":
        monkeypatch.setitem(streaming.BUDGET, "cpu", 1)
    if request.param == "small chunks":
        monkeypatch.setattr(folded, "CACHED", 1)  # 64 labels at a time
    return


def gradients(network: torch.nn.Module, logits: Tensor) -> list[Tensor]:
    loss = (logits.sigmoid() * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum()
    parameters = [p for p in network.parameters() if p.requires_grad]
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("labels", [None, torch.tensor([7, 0, 149, 3])])
def test_scores_and_gradients_are_the_networks(
    network: LAHANetwork, batch: tuple[Tensor, Tensor], labels: Tensor | None
) -> None:
    scoring = FoldedScoring(network)
    expected, logits = network(*batch, labels), scoring.score(scoring.encode(*batch), labels)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(network, logits), gradients(network, expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_all_documents_at_once_as_on_a_gpu(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    scoring = FoldedScoring(network)
    documents = scoring.encode(*batch)
    mask = word_mask(batch[1], 9)
    logits = torch.cat([scoring._logits(documents, mask, chunk) for chunk in scoring.queries().chunks(40)], dim=1)
    torch.testing.assert_close(logits, network(*batch), rtol=0, atol=1e-12)


def test_each_document_may_have_labels_of_its_own(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    scoring = FoldedScoring(network, frozen=True)
    labels = torch.randint(0, 150, (4, 11))
    with torch.inference_mode():
        documents = scoring.encode(*batch)
        logits = scoring.score(documents, labels)
        torch.testing.assert_close(logits, network(*batch).gather(1, labels), rtol=0, atol=1e-12)
        mask = word_mask(batch[1], 9)
        at_once = torch.cat([scoring._logits(documents, mask, chunk) for chunk in scoring.queries(labels).chunks(4)], 1)
        torch.testing.assert_close(at_once, logits, rtol=0, atol=1e-12)


def test_padding_never_counts(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    scoring = FoldedScoring(network)
    words, lengths = batch
    longer = torch.cat([words, torch.full((4, 5), 17)], dim=1)
    expected = scoring.score(scoring.encode(words, lengths))
    torch.testing.assert_close(scoring.score(scoring.encode(longer, lengths)), expected, rtol=0, atol=1e-12)


def test_frozen_it_keeps_its_queries(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    scoring = FoldedScoring(network, frozen=True)
    kept = scoring.queries()
    assert scoring.queries() is kept
    labels = torch.tensor([5, 2])
    for part, whole in zip(scoring.queries(labels), kept, strict=True):
        assert (part is None) == (whole is None)
        assert part is None or torch.equal(part, whole[labels])
    with torch.inference_mode():
        logits = scoring.score(scoring.encode(*batch))
    torch.testing.assert_close(logits, network(*batch), rtol=0, atol=1e-12)


def test_a_chunk_of_queries_keeps_the_batch() -> None:
    Q = torch.arange(24.0).view(2, 6, 2)
    _, chunk = Queries(Q, None).chunks(4)
    assert chunk.labels == 2
    assert chunk.Q_S is not None
    assert torch.equal(chunk.Q_S, Q[:, 4:])


def test_no_documents_give_no_rows(network: LAHANetwork) -> None:
    scoring = FoldedScoring(network)
    documents = scoring.encode(torch.zeros((1, 1), dtype=torch.long), torch.ones(1, dtype=torch.long))
    none = type(documents)(*(None if part is None else part[:0] for part in documents))
    assert scoring.score(none).shape == (0, 150)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("labels", [None, torch.tensor([7, 0, 149, 3]), torch.arange(44).view(4, 11)])
def test_attention_xml_is_scored_as_it_is_written(
    batch: tuple[Tensor, Tensor], labels: Tensor | None, layers: int
) -> None:
    torch.manual_seed(5)
    network = AttentionXMLNetwork(30, 6, 150, units=5, hidden_units=7, hidden_layers=layers).double()
    scoring = choose_scoring(network)
    assert type(scoring) is FoldedAttentionXML
    expected, logits = network(*batch, labels), scoring.score(scoring.encode(*batch), labels)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(network, logits), gradients(network, expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    documents = scoring.encode(*batch)
    at_once = [scoring._logits(documents, word_mask(batch[1], 9), chunk) for chunk in scoring.queries(labels).chunks(4)]
    torch.testing.assert_close(torch.cat(at_once, dim=1), expected, rtol=0, atol=1e-12)


def test_a_network_that_has_no_faster_way_is_scored_as_it_is_written(network: LAHANetwork) -> None:
    other = torch.nn.Linear(2, 2)
    assert choose_scoring(other) is other
    assert type(choose_scoring(network)) is FoldedScoring
