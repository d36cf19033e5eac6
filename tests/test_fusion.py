"""The fusion and the panel of experts: what the gates see, what they learn, and whom they hear."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from laha.calibration import calibration_error
from laha.experts import fusion
from laha.experts.fusion import OF_EXPERT, Fusion, as_matrix, join
from laha.experts.panel import Panel, worth_hearing
from laha.experts.proposals import Proposals, best_pairs
from laha.metrics import RankingMetrics, top_labels
from laha.vocabulary import WordIds

LABELS, DEPTH = 40, 10
FREQUENCY = np.arange(LABELS)
MANY, FEW = 1_600, 150  # held-out documents: enough for adaptive gates, and too few


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "STEPS", 150)


def make_truth(documents: int, seed: int) -> csr_matrix:
    return csr_matrix(np.random.default_rng(seed).random((documents, LABELS)) < 0.07, dtype=np.float32)


def propose(truth: csr_matrix, seed: int, signal: np.ndarray | float) -> Proposals:
    """Return an expert's best labels by the truth times `signal`, a number or one a label, in noise."""
    documents = truth.shape[0]
    scores = truth.toarray() * signal + np.random.default_rng(seed).normal(size=(documents, LABELS))
    rows, columns = np.indices((documents, LABELS))
    return best_pairs(rows.ravel(), columns.ravel(), scores.ravel(), documents, DEPTH)


def experts(truth: csr_matrix, seed: int) -> dict[str, Proposals]:
    """Return two experts that each know half of the labels, one that knows a little of all, and one of pure noise."""
    first = FREQUENCY < LABELS / 2
    signals = {"first": 4.0 * first, "second": 4.0 * ~first, "all": 1.5, "noise": 0.0}
    return {name: propose(truth, seed + number, signal) for number, (name, signal) in enumerate(signals.items())}


def ndcg(scores: csr_matrix, truth: csr_matrix) -> float:
    metrics = RankingMetrics(FREQUENCY, truth.shape[0])
    metrics.add(top_labels(scores, 5), truth)
    return metrics.metrics()["nDCG@5"]


@pytest.fixture(scope="module")
def learned() -> Fusion:
    truth = make_truth(MANY, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "STEPS", 300)
        return Fusion.fit(join(list(experts(truth, 100).values()), FREQUENCY), truth, FREQUENCY)


def test_join_is_the_hand_worked_example() -> None:
    one = Proposals(np.array([[2, 0, -1], [-1, -1, -1]]), np.array([[5.0, 3.0, 9.0], [0, 0, 0]], np.float32))
    other = Proposals(np.array([[1, 2, -1], [3, -1, -1]]), np.array([[-1.0, -4.0, -np.inf], [0.5, 0, 0]], np.float32))
    pairs = join([one, other], np.array([0, 1, 7, 2]))
    assert list(zip(pairs.documents.tolist(), pairs.labels.tolist(), strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 3)]
    np.testing.assert_allclose(pairs.above, [[0, 0], [0, 3], [2, 0], [0, 0]])
    expected = [
        # score, below the best, the best, proposed, 1/rank; where not proposed, the last proposal's score
        [*(3, -2, 5, 1, 1 / 2), *(-4, -3, -1, 0, 0), *(np.log(1), 1, 0, 1, 1 / 2)],
        [*(3, -2, 5, 0, 0), *(-1, 0, -1, 1, 1), *(np.log(2), 0, 1, 1, 1)],
        [*(5, 0, 5, 1, 1), *(-4, -3, -1, 1, 1 / 2), *(np.log(8), 0, 0, 2, 3 / 2)],
        [*(0, 0, 0, 0, 0), *(0.5, 0, 0.5, 1, 1), *(np.log(3), 0, 0, 1, 1)],
    ]
    np.testing.assert_allclose(pairs.looks, expected, rtol=1e-6)
    assert pairs.looks.shape[1] == 2 * OF_EXPERT + 5


def test_as_a_matrix_each_pair_has_its_place() -> None:
    proposals = Proposals(np.array([[2, 0], [-1, -1], [1, -1]]), np.array([[5.0, 3.0], [0, 0], [1, 0]], np.float32))
    pairs = join([proposals], np.ones(3))
    scores = as_matrix(pairs, np.array([0.1, 0.2, 0.3], np.float32), (3, 3))
    np.testing.assert_allclose(scores.toarray(), [[0.1, 0, 0.2], [0, 0, 0], [0, 0.3, 0]])


def test_learned_gates_rank_better_than_any_expert_and_than_constant_weights(learned: Fusion) -> None:
    truth = make_truth(500, 2)
    heard = experts(truth, 200)
    pairs = join(list(heard.values()), FREQUENCY)
    together = ndcg(as_matrix(pairs, learned.weigh(pairs)[0], truth.shape), truth)
    for own in heard.values():
        rows, columns = np.nonzero(own.ids >= 0)
        alone = csr_matrix((1 / (1 + columns), (rows, own.ids[rows, columns])), shape=truth.shape)
        assert together > ndcg(alone, truth) + 20
    assert learned.gates.adaptive
    own_truth = make_truth(MANY, 1)
    own_pairs = join(list(experts(own_truth, 100).values()), FREQUENCY)
    right = np.asarray(own_truth[own_pairs.documents, own_pairs.labels]).ravel()
    constant = Fusion(fusion._train(own_pairs, right, False, 0))
    assert together > ndcg(as_matrix(pairs, constant.weigh(pairs)[0], truth.shape), truth) + 1


def test_an_expert_of_pure_noise_counts_for_next_to_nothing(learned: Fusion) -> None:
    truth = make_truth(500, 2)
    pairs = join(list(experts(truth, 200).values()), FREQUENCY)
    probabilities, parts = learned.weigh(pairs)
    assert (parts >= 0).all()
    share = parts[probabilities > 0.5].sum(axis=0) / parts[probabilities > 0.5].sum()
    assert share[3] < 0.05
    assert share[:2].min() > 0.2


def test_an_expert_adds_nothing_to_what_it_does_not_propose(learned: Fusion) -> None:
    pairs = join(list(experts(make_truth(50, 4), 300).values()), FREQUENCY)
    parts = learned.weigh(pairs)[1]
    proposed = pairs.looks[:, 3 : 4 * OF_EXPERT : OF_EXPERT] > 0
    assert not proposed.all()
    assert (parts[~proposed] == 0).all()


def test_scores_are_probabilities_on_documents_not_seen(learned: Fusion) -> None:
    truth = make_truth(1000, 3)
    pairs = join(list(experts(truth, 400).values()), FREQUENCY)
    right = np.asarray(truth[pairs.documents, pairs.labels]).ravel()
    probabilities = learned.weigh(pairs)[0]
    assert calibration_error(probabilities, right) < 0.02
    for low, high in ((0.0, 0.1), (0.3, 0.7), (0.9, 1.0)):
        inside = (probabilities >= low) & (probabilities < high)
        assert right[inside].mean() == pytest.approx(probabilities[inside].mean(), abs=0.06)


def test_one_seed_gives_the_same_fusion_and_restored_it_weighs_the_same() -> None:
    truth = make_truth(FEW, 5)
    pairs = join(list(experts(truth, 500).values()), FREQUENCY)
    first, again, other = (Fusion.fit(pairs, truth, FREQUENCY, seed) for seed in (0, 0, 1))
    assert all(array.tobytes() == again.tensors()[name].tobytes() for name, array in first.tensors().items())
    assert first.tensors()["gates.bias"].tobytes() != other.tensors()["gates.bias"].tobytes()
    restored = Fusion.restore(first.tensors())
    assert restored.gates.adaptive == first.gates.adaptive
    for own, same in zip(first.weigh(pairs), restored.weigh(pairs), strict=True):
        np.testing.assert_array_equal(own, same)


def test_few_documents_keep_to_constant_weights() -> None:
    truth = make_truth(30, 6)
    fitted = Fusion.fit(join([propose(truth, 1, 3.0)], FREQUENCY), truth, FREQUENCY)
    assert not fitted.gates.adaptive
    assert not Fusion.restore(fitted.tensors()).gates.adaptive


def test_experts_that_propose_nothing_at_all_give_a_fusion_that_says_nothing() -> None:
    nothing = Proposals(np.full((4, DEPTH), -1), np.zeros((4, DEPTH), np.float32))
    truth = csr_matrix(np.eye(4, LABELS, dtype=np.float32))
    panel, facts = Panel.fit({"one": nothing, "other": nothing}, truth, FREQUENCY, 10)
    assert panel.weigh({"one": nothing, "other": nothing}).nnz == 0
    assert facts["together"]["P@1"] == 0
    assert panel.score_at_precision(0.5) == float("inf")
    some = propose(truth, 1, 3.0)
    assert np.isfinite(panel.weigh({"one": some, "other": nothing}).data).all()


def test_few_documents_leave_out_an_expert_that_does_harm() -> None:
    truth = make_truth(FEW, 7)
    harmful = propose(truth, 5, -2.0)
    heard = {"good": propose(truth, 3, 3.0), "harmful": harmful, "fair": propose(truth, 4, 2.0)}
    assert list(worth_hearing(heard, truth, FREQUENCY, 0)) == ["good", "fair"]
    panel, facts = Panel.fit(heard, truth, FREQUENCY, 300)
    assert panel.names == ("good", "fair")
    assert list(facts["alone"]) == ["good", "fair"]
    assert list(worth_hearing({"harmful": harmful}, truth, FREQUENCY, 0)) == ["harmful"]  # one must remain


@pytest.fixture(scope="module")
def panel_and_facts() -> tuple[Panel, dict[str, object]]:
    truth = make_truth(MANY, 1)
    return Panel.fit(experts(truth, 100), truth, FREQUENCY, 300)


def source(truth: csr_matrix, seed: int) -> object:
    """Return what answers for documents, each of one word that is its number."""
    heard = experts(truth, seed)

    def ask(words: WordIds) -> dict[str, Proposals]:
        return {name: Proposals(own.ids[words.ids], own.scores[words.ids]) for name, own in heard.items()}

    return ask


def test_shares_are_of_those_who_propose_and_sum_to_1(panel_and_facts: tuple[Panel, dict[str, object]]) -> None:
    panel, _ = panel_and_facts
    truth = make_truth(20, 8)
    heard = experts(truth, 600)
    scores = panel.weigh(heard).toarray()
    for document in range(20):
        one = WordIds(np.array([document]), np.array([0, 1]))
        shares = panel.shares(one, [source(truth, 600)], range(LABELS))  # type: ignore[list-item]
        for label, (score, own) in enumerate(shares):
            assert score == pytest.approx(scores[document, label], abs=1e-6)
            assert list(own) == list(panel.names)
            for name, share in own.items():
                assert share == 0 or label in heard[name].ids[document]
            named = any(label in heard[name].ids[document] for name in panel.names)
            assert sum(own.values()) == pytest.approx(1.0 if named else 0.0)


def test_what_an_expert_says_alone_is_its_own_evidence(panel_and_facts: tuple[Panel, dict[str, object]]) -> None:
    panel, _ = panel_and_facts
    nothing = Proposals(np.full((1, DEPTH), -1), np.zeros((1, DEPTH), np.float32))
    only = Proposals(np.array([[7] + [-1] * (DEPTH - 1)]), np.ones((1, DEPTH), np.float32))
    heard = {name: only if name == "second" else nothing for name in panel.names}
    ((score, shares),) = panel.shares(WordIds(np.array([2]), np.array([0, 1])), [lambda words: heard], [7])
    assert score > 0
    assert shares == {name: float(name == "second") for name in panel.names}


def test_batches_of_documents_are_weighed_as_all_at_once(
    panel_and_facts: tuple[Panel, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    panel, _ = panel_and_facts
    truth = make_truth(20, 8)
    words = WordIds(np.arange(20), np.arange(21))
    whole = panel.weigh(experts(truth, 600))
    monkeypatch.setattr("laha.experts.panel.BATCH", 7)
    parts = panel.scores(words, [source(truth, 600)])  # type: ignore[list-item]
    np.testing.assert_allclose(parts.toarray(), whole.toarray(), atol=1e-6)


def test_a_wanted_precision_holds_where_it_was_measured(panel_and_facts: tuple[Panel, dict[str, object]]) -> None:
    panel, _ = panel_and_facts
    truth = make_truth(MANY, 1)
    scores = panel.weigh(experts(truth, 100))
    ids = top_labels(scores, 5)
    rows = np.arange(MANY)[:, None]
    best = np.asarray(scores.todense())[rows, ids].ravel()
    right = np.asarray(truth.todense())[rows, ids].ravel()
    given = []
    for precision in (0.5, 0.8, 0.9, 0.95):
        kept = best >= panel.score_at_precision(precision)
        assert right[kept].mean() >= precision - 0.02  # the curve is of gates that did not learn from these documents
        given.append(int(kept.sum()))
    assert given == sorted(given, reverse=True)
    assert given[-1] > 100
    assert panel.score_at_precision(1.01) == float("inf")
    again = Panel.restore(panel.names, FREQUENCY, panel.tensors())
    assert again.score_at_precision(0.9) == panel.score_at_precision(0.9)
    assert (again.weigh(experts(truth, 100)) != scores).nnz == 0


def test_labels_that_nobody_can_propose_are_misses() -> None:
    truth = make_truth(FEW, 7)
    beyond = csr_matrix(np.hstack([truth.toarray(), np.ones((FEW, 3))]), dtype=np.float32)
    heard = {"good": propose(truth, 3, 3.0)}
    known, more = (Panel.fit(heard, each, FREQUENCY, 300)[1]["together"] for each in (truth, beyond))
    assert more["nDCG@5"] < known["nDCG@5"]
