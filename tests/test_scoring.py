"""Scoring in chunks of labels is the network's own scoring."""

from __future__ import annotations

import pytest
import torch

from laha.network.laha import LAHANetwork
from laha.scoring import streaming


@pytest.fixture
def network() -> LAHANetwork:
    torch.manual_seed(3)
    return LAHANetwork(30, 6, 23, 4, units=5, attention_units=4).eval()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(4)
    return torch.randint(1, 30, (3, 9)), torch.tensor([9, 4, 3])


@pytest.mark.parametrize("budget", [1, 500, 2**20])
def test_chunks_change_no_score(
    network: LAHANetwork, batch: tuple[torch.Tensor, torch.Tensor], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(streaming.BUDGET, "cpu", budget)
    with torch.no_grad():
        expected = network(*batch).sigmoid()
    torch.testing.assert_close(streaming.score_all(network, *batch), expected, rtol=0, atol=1e-6)
    ids, scores = streaming.score_top(network, *batch, top=5)
    best = expected.sort(dim=1, descending=True)
    assert torch.equal(ids, best.indices[:, :5])
    torch.testing.assert_close(scores, best.values[:, :5], rtol=0, atol=1e-6)


def test_a_chunk_holds_no_more_than_the_budget(
    network: LAHANetwork, batch: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = 3 * network.numbers_per_label(9)  # three documents of nine words, one label
    monkeypatch.setitem(streaming.BUDGET, "cpu", 4 * one)
    sizes = [len(chunk) for chunk in streaming.label_chunks(network, batch[0])]
    assert sizes == [4, 4, 4, 4, 4, 3]


def test_asking_for_more_labels_than_there_are_fills_with_none(
    network: LAHANetwork, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    ids, scores = streaming.score_top(network, *batch, top=25)
    assert (ids[:, 23:] == -1).all()
    assert (scores[:, 23:] == 0).all()
    assert (ids[:, :23] >= 0).all()
