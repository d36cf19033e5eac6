"""The shortlist: what the head proposes, what attention makes of it, and how much of the exact ranking it holds."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from laha.errors import LahaError
from laha.head_training import learn, train_head, unscale
from laha.network.document_head import DocumentHead, pool
from laha.network.laha import LAHANetwork
from laha.progress import silent
from laha.scoring.folded import FoldedScoring
from laha.scoring.label_index import LabelIndex, label_rows
from laha.scoring.scorer import Scorer
from laha.scoring.shortlist import Recall, Shortlist
from laha.scoring.streaming import score_all
from laha.training import Examples
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
    vectors = torch.tensor([[[5.0], [7.0], [99.0]]])
    mask = torch.tensor([[True, True, False]])
    assert pool(states, vectors, mask).tolist() == [[2.0, -3.0, 3.0, -2.0, 6.0]]


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


def test_a_head_learns_the_labels_and_changes_nothing_else_in_the_network() -> None:
    torch.manual_seed(3)
    network = LAHANetwork(30, 6, 20, 4, units=5, attention_units=4, state_dropout=0.5)
    random = np.random.default_rng(2)
    documents = [random.integers(2, 30, random.integers(3, 12)) for _ in range(400)]
    words = WordIds(np.concatenate(documents), np.cumsum([0, *map(len, documents)]))
    labels = csr_matrix([[float(label + 2 in document) for label in range(20)] for document in documents])
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    drawn = torch.get_rng_state()
    train_head(network, Examples(words, labels), width=16, max_words=50, seed=0)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(network.state_dict()[name], tensor) for name, tensor in before.items())
    assert network.document_head is not None
    first = [tensor.clone() for tensor in network.document_head.parameters()]
    train_head(network, Examples(words, labels), width=16, max_words=50, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(first, network.document_head.parameters(), strict=True))


def test_a_head_that_learned_from_scaled_documents_takes_them_as_they_are() -> None:
    torch.manual_seed(3)
    head, pooled = DocumentHead(2, 3, 8, 5).double(), torch.rand(30, 11).double() * 50 + 7
    expected = head((pooled - pooled.mean(0)) / pooled.std(0))
    unscale(head, pooled.mean(0), pooled.std(0))
    torch.testing.assert_close(head(pooled), expected)


def test_a_head_learns_to_tell_documents_apart() -> None:
    torch.manual_seed(3)
    head, right = DocumentHead(2, 3, 16, 5), np.arange(300) % 5
    pooled = torch.randn(300, 11) / 3
    pooled[np.arange(300), right] += 2
    train = Examples(WordIds(np.zeros(300, np.int32), np.arange(301)), csr_matrix(np.eye(5)[right]))
    learn(head, pooled, train, 0, silent, epochs=60)
    assert (head(pooled).argmax(dim=1).numpy() == right).mean() > 0.95


def test_a_network_without_a_head_has_no_shortlist() -> None:
    with pytest.raises(ValueError, match="no document head"):
        Shortlist(FoldedScoring(LAHANetwork(9, 2, 5, 2, units=2, attention_units=2)), 3)


def test_recall_counts_the_exact_best_that_are_proposed(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    scoring = FoldedScoring(network, frozen=True)
    recall = Recall(scoring, sizes=(2, 10, 40))
    truth = csr_matrix(np.random.default_rng(1).integers(0, 2, (3, 60)))  # with labels that the network does not know
    recall.add(*batch, truth)
    exact = score_all(network, *batch).topk(5, dim=1).indices.tolist()
    proposed = Shortlist(scoring, 40).score(*batch)[0].tolist()
    expected = {
        str(size): sum(len(set(best) & set(row[:size])) for best, row in zip(exact, proposed, strict=True)) / 15
        for size in (2, 10, 40)
    }
    facts = recall.facts()
    assert {size: row["recall@5"] for size, row in facts["measured"].items()} == pytest.approx(expected)
    assert facts["documents"] == 3
    assert recall.facts(10)["recall@5"] == pytest.approx(expected["10"])
    assert facts["exact P@5"] == pytest.approx(100 * truth[np.repeat(range(3), 5), np.ravel(exact)].sum() / 15)
    scores = score_all(network, *batch)
    best = [sorted(row[:10], key=lambda label, s=s: -s[label])[:5] for row, s in zip(proposed, scores, strict=True)]
    right = truth[np.repeat(range(3), 5), np.ravel(best)].sum()
    assert facts["measured"]["10"]["P@5"] == pytest.approx(100 * right / 15)


def test_the_smallest_size_that_holds_enough_is_chosen(network: LAHANetwork, batch: tuple[Tensor, Tensor]) -> None:
    recall = Recall(FoldedScoring(network, frozen=True), sizes=(2, 10, 40))
    recall.wanted, recall.documents = 5000, 1000
    recall.right = [900, 996, 1000, 1000]  # of 5,000 places: 18, 19.92 and 20 %
    assert recall.facts()["labels"] == 10
    recall.right = [900, 980, 990, 1000]
    assert recall.facts()["labels"] == 40


def test_where_labels_are_fewer_than_any_size_all_are_proposed(
    network: LAHANetwork, batch: tuple[Tensor, Tensor]
) -> None:
    recall = Recall(FoldedScoring(network, frozen=True), sizes=(64, 128))
    recall.add(*batch, csr_matrix((3, 50)))
    facts = recall.facts()
    assert (facts["labels"], facts["recall@5"], facts["P@5"], facts["exact P@5"]) == (50, 1.0, 0.0, 0.0)


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
        return DocumentHead(3, 2, 8, 400)

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
