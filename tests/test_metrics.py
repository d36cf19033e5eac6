"""The metrics against plain loops, a hand-worked example, and what must hold of any ranking."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from laha.errors import ModelError
from laha.metrics import GROUPS, METRICS, RankingMetrics, label_groups, propensities, top_labels


def naive_top(row: dict[int, float], k: int, among: set[int]) -> list[int]:
    ordered = sorted((-score, label) for label, score in row.items() if label in among)
    return [label for _, label in ordered[:k]]


def naive_metrics(
    ranked: list[list[int]], truth: list[set[int]], frequency: list[int], documents: int
) -> dict[str, float]:
    """Every metric by its definition, one document and one rank at a time."""

    def gain(label: int) -> float:
        count = frequency[label] if label < len(frequency) else 0
        c = max(math.log(documents) - 1, 0) * 2.5**0.55
        return 1 + c * (count + 1.5) ** -0.55

    pairs = [(r, t) for r, t in zip(ranked, truth, strict=True) if t]
    values = {}
    for k in (1, 3, 5):
        precision = ndcg = recall = psp = best_psp = psdcg = best_psdcg = 0.0
        for ranking, true in pairs:
            dcg = 0.0
            for rank, label in enumerate(ranking[:k], start=1):
                if label in true:
                    precision += 1 / k
                    recall += 1 / len(true)
                    dcg += 1 / math.log2(rank + 1)
                    psp += gain(label)
                    psdcg += gain(label) / math.log2(rank + 1)
            ndcg += dcg / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(true)) + 1))
            for rank, best in enumerate(sorted(map(gain, true), reverse=True)[:k], start=1):
                best_psp += best
                best_psdcg += best / math.log2(rank + 1)
        n = len(pairs)
        sums = {"P": precision / n, "nDCG": ndcg / n, "R": recall / n, "PSP": psp / best_psp}
        values |= {f"{name}@{k}": v for name, v in {**sums, "PSnDCG": psdcg / best_psdcg}.items()}
    hits = {(i, x) for i, (r, t) in enumerate(pairs) for x in r[:5] if x in t}
    given = {(i, x) for i, (r, _) in enumerate(pairs) for x in r[:5]}
    wanted = {(i, x) for i, (_, t) in enumerate(pairs) for x in t}
    values["microF1@5"] = 2 * len(hits) / (len(given) + len(wanted))
    f1 = []
    for label in {x for _, x in given | wanted}:
        tp, fp, fn = (sum(x == label for _, x in part) for part in (hits, given - hits, wanted - hits))
        f1.append(2 * tp / (2 * tp + fp + fn))
    values["macroF1@5"] = sum(f1) / len(f1)
    return {name: 100 * value for name, value in values.items()}


def matrix(rows: list[dict[int, float]], columns: int) -> csr_matrix:
    """A CSR whose stored entries are exactly these, zeros included."""
    ends = np.cumsum([0] + [len(row) for row in rows])
    labels = [label for row in rows for label in row]
    return csr_matrix(([v for row in rows for v in row.values()], labels, ends), shape=(len(rows), columns))


def truth_matrix(rows: list[set[int]], columns: int) -> csr_matrix:
    return matrix([dict.fromkeys(row, 1.0) for row in rows], columns)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[dict[int, float]], list[set[int]], list[int], int, set[int], int]:
    labels, unseen, documents = draw(st.integers(1, 12)), draw(st.integers(0, 3)), draw(st.integers(1, 8))
    score = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 2.0])  # few values, so that ties are common
    rows = draw(st.lists(st.dictionaries(st.integers(0, labels - 1), score), min_size=documents, max_size=documents))
    true = st.sets(st.integers(0, labels + unseen - 1), max_size=8)
    truth = draw(st.lists(true, min_size=documents, max_size=documents))
    frequency = draw(st.lists(st.integers(0, 60), min_size=labels, max_size=labels))
    among = draw(st.sets(st.integers(0, labels + unseen - 1)))
    return rows, truth, frequency, draw(st.integers(1, 100_000)), among, labels + unseen


@settings(max_examples=200, deadline=None)
@given(cases(), st.integers(0, 8), st.booleans())
def test_every_metric_equals_the_plain_loops(case, split, grouped):  # type: ignore[no-untyped-def]
    rows, truth, frequency, documents, group, columns = case
    among = group if grouped else set(range(columns))
    mask = np.isin(np.arange(columns), list(among)) if grouped else None
    quality = RankingMetrics(np.array(frequency), documents, mask)
    for part in (slice(0, split), slice(split, None)):
        ranked = top_labels(matrix(rows[part], len(frequency)), 6, mask)
        for got, row in zip(ranked, rows[part], strict=True):
            assert [x for x in got if x >= 0] == naive_top(row, 6, among)
        quality.add(ranked, truth_matrix(truth[part], columns))
    true = [t & among for t in truth]
    assert quality.documents == sum(bool(t) for t in true)
    assert quality.documents_without_labels == sum(not t for t in true)
    if not quality.documents:
        assert quality.metrics() == quality.intervals() == {}
        return
    expected = naive_metrics([naive_top(row, 6, among) for row in rows], true, frequency, documents)
    metrics = quality.metrics()
    assert metrics == pytest.approx(expected, abs=1e-9)
    assert list(metrics) == list(METRICS)
    assert metrics["P@1"] == metrics["nDCG@1"]


def test_worked_example() -> None:
    # Document 1 has labels 0 and 3, ranked 1 and 2; document 2 has label 1, not ranked, and a label unseen in train.
    quality = RankingMetrics(frequency=np.full(6, 4), train_documents=2)  # so few documents make all labels alike
    quality.add(np.array([[0, 3, 1, 2, 4], [0, 2, 3, 4, 5]]), truth_matrix([{0, 3}, {1, 6}], 7))
    metrics = quality.metrics()
    assert metrics["P@1"] == 50
    assert metrics["P@3"] == pytest.approx(100 / 3)
    assert metrics["P@5"] == pytest.approx(20)
    assert (metrics["nDCG@1"], metrics["nDCG@3"], metrics["nDCG@5"]) == (50, 50, 50)
    assert (metrics["R@1"], metrics["R@3"], metrics["R@5"]) == (25, 50, 50)
    assert (metrics["PSP@1"], metrics["PSP@3"], metrics["PSnDCG@3"]) == (50, 50, 50)
    assert metrics["microF1@5"] == pytest.approx(100 * 2 * 2 / (10 + 4))
    # F1: labels 0 and 3: one hit, one false (2/3 each); 1: false and missed; 2, 4, 5: false; 6: missed. Seven labels.
    assert metrics["macroF1@5"] == pytest.approx(100 * (2 / 3 + 2 / 3) / 7)


def random_case(documents: int = 40, labels: int = 30) -> tuple[np.ndarray, list[set[int]], np.ndarray]:
    random = np.random.default_rng(7)
    ranked = np.array([random.permutation(labels)[:5] for _ in range(documents)])
    truth = [set(random.permutation(labels)[: random.integers(1, 8)].tolist()) for _ in range(documents)]
    return ranked, truth, random.integers(0, 100, labels)


def measure(ranked: np.ndarray, truth: list[set[int]], frequency: np.ndarray, columns: int) -> dict[str, float]:
    quality = RankingMetrics(frequency, 1000)
    quality.add(ranked, truth_matrix(truth, columns))
    return quality.metrics()


def test_ranking_by_rarity_is_perfect() -> None:
    _, truth, frequency = random_case()
    rarest = [sorted(true, key=lambda label: frequency[label])[:5] for true in truth]
    ranked = np.array([best + [-1] * (5 - len(best)) for best in rarest])
    metrics = measure(ranked, truth, frequency, 30)
    assert [metrics[f"{m}@{k}"] for m in ("nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)] == pytest.approx([100] * 9)


def test_order_of_documents_does_not_matter() -> None:
    ranked, truth, frequency = random_case()
    order = np.random.default_rng(1).permutation(len(truth))
    permuted = measure(ranked[order], [truth[i] for i in order], frequency, 30)
    assert permuted == pytest.approx(measure(ranked, truth, frequency, 30))


def test_unseen_labels_are_misses() -> None:
    ranked, truth, frequency = random_case()
    without = measure(ranked, truth, frequency, 30)
    burdened = measure(ranked, [true | {30} for true in truth], frequency, 31)
    assert burdened["P@5"] == without["P@5"]
    assert all(burdened[name] < without[name] for name in ("R@5", "nDCG@5", "PSP@5", "microF1@5", "macroF1@5"))


def test_propensities_follow_jain() -> None:
    c = (math.log(1000) - 1) * 2.5**0.55
    assert propensities(np.array([0, 7]), 1000) == pytest.approx([1 / (1 + c * n**-0.55) for n in (1.5, 8.5)])
    assert propensities(np.array([0, 1]), 1).tolist() == propensities(np.array([0, 1]), 0).tolist() == [1, 1]


def test_groups_part_the_labels() -> None:
    groups = label_groups(np.array([0, 1, 5, 6, 50, 51]), total_labels=8)
    assert tuple(groups) == GROUPS
    assert [mask.nonzero()[0].tolist() for mask in groups.values()] == [[1, 2], [3, 4], [5], [0, 6, 7]]


def test_full_rows_with_ties_rank_by_label() -> None:
    scores = np.random.default_rng(0).integers(0, 50, (64, 3000)).astype(np.float32)
    full = csr_matrix((scores.ravel(), np.tile(np.arange(3000), 64), np.arange(65) * 3000), shape=scores.shape)
    assert (top_labels(full, 5) == np.argsort(-scores, axis=1, kind="stable")[:, :5]).all()


def test_unsorted_rows_rank_alike() -> None:
    shuffled = csr_matrix(([0.5, 0.5, 0.9], [4, 1, 0], [0, 3]), shape=(1, 5))
    assert top_labels(shuffled, 4).tolist() == [[0, 1, 4, -1]]
    assert shuffled.indices.tolist() == [4, 1, 0]  # the caller's matrix is left as it was


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ModelError, match="NaN"):
        top_labels(csr_matrix([[np.nan, 1.0]]), 1)


def test_short_rankings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5 columns"):
        RankingMetrics(np.ones(3), 3).add(np.zeros((1, 3), dtype=np.int64), truth_matrix([{0}], 3))


def test_intervals_cover_the_mean_as_theory_says() -> None:
    documents = 400
    ranked = np.tile(np.arange(5), (documents, 1))
    truth = truth_matrix([{0} if i % 4 else {9} for i in range(documents)], 10)
    quality = RankingMetrics(np.ones(10), 100)
    quality.add(ranked, truth)
    intervals = quality.intervals(resamples=4000, seed=3)
    assert list(intervals) == list(METRICS[:-1])
    spread = 1.96 * math.sqrt(0.75 * 0.25 / documents) * 100  # P@1 is 75, a mean of independent draws
    assert intervals["P@1"] == pytest.approx([75 - spread, 75 + spread], abs=0.3)
    assert quality.intervals(resamples=4000, seed=3) == intervals
    low, high = quality.intervals(level=0.5, resamples=4000)["P@1"]
    assert intervals["P@1"][0] < low < 75 < high < intervals["P@1"][1]


def test_a_million_documents_by_a_million_labels_stay_small() -> None:
    size = 1_000_000
    random = np.random.default_rng(0)
    tracemalloc.start()
    try:
        scores = csr_matrix(
            (random.random(6 * size, dtype=np.float32), random.integers(size, size=6 * size), np.arange(size + 1) * 6),
            shape=(size, size),
        )
        truth = csr_matrix((np.ones(size, dtype=bool), scores.indices[::6], np.arange(size + 1)), shape=(size, size))
        quality = RankingMetrics(np.ones(size), size)
        for begin in range(0, size, 100_000):
            part = slice(begin, begin + 100_000)
            quality.add(top_labels(scores[part], 5), truth[part])
        metrics = quality.metrics()
        assert quality.intervals(resamples=2)["P@1"] == pytest.approx([metrics["P@1"]] * 2, abs=1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 30
    finally:
        tracemalloc.stop()
    assert metrics["P@1"] == pytest.approx(100 / 6, abs=0.2)
