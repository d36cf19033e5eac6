"""The shortlist: what the head proposes, what attention makes of it, and how much of the exact ranking it holds."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from laha.errors import LahaError
from laha.network.document_head import DocumentHead, pool
from laha.network.laha import LAHANetwork
from laha.scoring.folded import FoldedScoring
from laha.scoring.label_index import LabelIndex, label_rows
from laha.scoring.scorer import Scorer
from laha.scoring.shortlist import Recall, Shortlist
from laha.scoring.streaming import score_all
from laha.vocabulary import WordIds


@pytest.fixture
def network() -> LAHANetwork:
    torch.manual_seed(3)
    return LAHANetwork(30, 6, 50, 4, units=5, attention_units=4, document_units=6).eval()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(4)
    return torch.randint(1, 30, (3, 9)), torch.tensor([9, 4, 3])


@pytest.fixture
def words() -> WordIds:
    lengths = [3, 9, 0, 5]
    return WordIds(np.random.default_rng(0).integers(2, 30, sum(lengths)), np.cumsum([0, *lengths]))


def test_pooling_is_mean_and_maximum_over_the_words_alone() -> None:
    states = torch.tensor([[[1.0, -4.0], [3.0, -2.0], [99.0, 99.0]]])
    mask = torch.tensor([[True, True, False]])
    assert pool(states, mask).tolist() == [[2.0, -3.0, 3.0, -2.0]]


def test_proposed_are_the_heads_best_and_attention_scores_them(
    network: LAHANetwork, batch: tuple[Tensor, Tensor]
) -> None:
    scoring = FoldedScoring(network, frozen=True)
    ids, scores = Shortlist(scoring, 7).score(*batch)
    with torch.inference_mode():
        head = network.document_head(scoring.encode(*batch).pooled)  # type: ignore[misc]
        exact = score_all(network, *batch)
    assert torch.equal(ids, head.topk(7, dim=1).indices)
    torch.testing.assert_close(scores, exact.gather(1, ids), rtol=0, atol=1e-6)


def test_the_head_learns_beside_the_network_without_touching_it(
    network: LAHANetwork, batch: tuple[Tensor, Tensor]
) -> None:
    scoring = FoldedScoring(network)
    network.document_head(scoring.encode(*batch).pooled).sum().backward()  # type: ignore[misc]
    touched = {name for name, p in network.named_parameters() if p.grad is not None}
    assert touched
    assert all(name.startswith("document_head.") for name in touched)


def test_a_network_without_a_head_has_no_shortlist() -> None:
    with pytest.raises(ValueError, match="no document head"):
        Shortlist(FoldedScoring(LAHANetwork(9, 2, 5, 2, units=2, attention_units=2)), 3)


def test_recall_counts_the_exact_best_that_are_proposed(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    scoring = FoldedScoring(network, frozen=True)
    recall = Recall(scoring, sizes=(2, 10, 40))
    recall.add(*batch)
    exact = score_all(network, *batch).topk(5, dim=1).indices.tolist()
    proposed = Shortlist(scoring, 40).score(*batch)[0].tolist()
    expected = {
        str(size): sum(len(set(best) & set(row[:size])) for best, row in zip(exact, proposed, strict=True)) / 15
        for size in (2, 10, 40)
    }
    facts = recall.facts()
    assert facts["measured"] == pytest.approx(expected)
    assert (facts["labels"], facts["documents"]) == (40, 3)  # none holds 99.5 %: the longest
    assert recall.facts(10)["recall@5"] == pytest.approx(expected["10"])


def test_the_smallest_size_that_holds_enough_is_chosen(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    recall = Recall(FoldedScoring(network, frozen=True), sizes=(2, 10, 40))
    recall.found, recall.wanted = [900, 996, 1000], 1000
    assert recall.facts()["labels"] == 10


def test_where_labels_are_fewer_than_any_size_all_are_proposed(
    network: LAHANetwork, batch: tuple[Tensor, Tensor]
) -> None:
    recall = Recall(FoldedScoring(network, frozen=True), sizes=(64, 128))
    recall.add(*batch)
    assert recall.facts() == {"labels": 50, "recall@5": 1.0, "documents": 3, "measured": {"50": 1.0}}


def test_the_scorer_gives_the_shortlists_labels_in_order_of_documents(network: LAHANetwork, words: WordIds) -> None:
    short, whole = Scorer(network, 20, shortlist=7), Scorer(network, 20)
    found, exact = short.sparse(words), whole.sparse(words).toarray()
    assert found.has_canonical_format
    assert np.diff(found.indptr).tolist() == [7, 7, 7, 7]
    kept = found.toarray()
    np.testing.assert_allclose(kept[kept > 0], exact[kept > 0], atol=1e-6)
    ids, scores = short.top(words, 5)
    np.testing.assert_allclose(scores, -np.sort(-kept, axis=1)[:, :5], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(kept, ids, axis=1), scores, atol=1e-6)
    assert short.sparse(words, exact=True).nnz == 4 * 50
    np.testing.assert_array_equal(short.top(words, 5, exact=True)[0], whole.top(words, 5)[0])
    assert short.top(words, 9)[0].shape == (4, 9)  # more than the shortlist has: every label is scored
    assert short.sparse(WordIds(np.zeros(0, np.int32), np.zeros(1, np.int64))).shape == (0, 50)


class TestLabelIndex:
    """The index finds what the product finds, when it reads every cell."""

    @pytest.fixture(autouse=True)
    def _faiss(self) -> None:
        pytest.importorskip("faiss", reason="the extra ann is not installed")

    @pytest.fixture
    def head(self) -> DocumentHead:
        torch.manual_seed(5)
        return DocumentHead(3, 8, 400)

    def test_reading_all_cells_it_finds_the_best(self, head: DocumentHead) -> None:
        index = LabelIndex.build(head)
        index._index.nprobe = len(index.centres)
        documents = torch.rand(5, 8)
        best = head.labels(documents).topk(10, dim=1)
        found = index.search(documents, 10)
        logits = head.labels(documents).gather(1, found)
        torch.testing.assert_close(logits, best.values, rtol=0, atol=2e-3)  # stored in half precision

    def test_restored_it_finds_the_same(self, head: DocumentHead) -> None:
        index = LabelIndex.build(head)
        again = LabelIndex.restore(head, index.arrays())
        documents = torch.rand(5, 8)
        assert torch.equal(again.search(documents, 10), index.search(documents, 10))
        assert label_rows(head).shape == (400, 9)

    def test_places_it_cannot_fill_are_no_label(self, network: LAHANetwork, words: WordIds) -> None:
        index = LabelIndex.build(network.document_head)
        index._index.nprobe = 1
        scorer = Scorer(network, 20, shortlist=30, index=index)
        found = scorer.sparse(words)
        assert 0 < np.diff(found.indptr).max() < 30
        exact = scorer.sparse(words, exact=True).toarray()
        np.testing.assert_allclose(found.data, exact[found.nonzero()], atol=1e-6)
        ids, scores = scorer.top(words, 25)
        assert ((ids == -1) == (scores == 0)).all()
        assert (ids == -1).any()


def test_without_faiss_the_index_says_what_to_install(network: LAHANetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(LahaError, match=r"pip install laha\[ann\]"):
        LabelIndex.build(network.document_head)
