"""The neighbours expert: against a naive loop, restored, and where there is nothing to compare."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from laha.experts import neighbours
from laha.experts.neighbours import POWER, Neighbours
from laha.prepared import Prepared
from laha.stems import Stems
from laha.vocabulary import RESERVED, Vocabulary, WordIds

WORDS = 40


def random_documents(count: int, seed: int) -> WordIds:
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 15, size=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return WordIds(random.integers(1, WORDS + RESERVED, size=offsets[-1]).astype(np.int32), offsets)


@pytest.fixture
def expert() -> Neighbours:
    vocabulary = Vocabulary([f"word{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(WORDS)])
    truth = csr_matrix(np.random.default_rng(5).random((30, 6)) < 0.3, dtype=np.float32)
    return Neighbours.fit(Stems(vocabulary), random_documents(30, 1), truth)


def naive_votes(expert: Neighbours, query: np.ndarray, count: int) -> dict[int, float]:
    """Return the share of each label among the nearest documents, by loops."""
    cosines = []
    for document in range(expert.rows.shape[0]):
        row = expert.rows[document].toarray().ravel()
        cosines.append((sum(float(a) * float(b) for a, b in zip(query, row, strict=True)), document))
    cosines.sort(reverse=True)
    assert cosines[count - 1][0] > cosines[count][0] + 1e-5  # no tie between in and out
    weights = {document: cosine**POWER for cosine, document in cosines[:count]}
    votes: dict[int, float] = {}
    for document, weight in weights.items():
        for label in expert.labels[document].indices:
            votes[int(label)] = votes.get(int(label), 0.0) + weight / sum(weights.values())
    return votes


@pytest.mark.parametrize("cells", [1, 2**24])  # a query at a time, and all at once
def test_votes_are_those_of_a_naive_loop(expert: Neighbours, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "NEIGHBOURS", 7)
    monkeypatch.setattr(neighbours, "CELLS", cells)
    queries = random_documents(9, 2)
    found = expert.top(queries, 6)
    rows = expert.features.rows(queries).toarray()
    for number, query in enumerate(rows):
        votes = naive_votes(expert, query, 7)
        own = {label: score for label, score in zip(found.ids[number], found.scores[number], strict=True) if label >= 0}
        assert own == {label: pytest.approx(math.log(share), abs=1e-4) for label, share in votes.items()}
        assert list(own) == sorted(own, key=lambda label: (-own[label], label))


def test_a_document_of_the_training_part_finds_its_own_labels(prepared: Prepared) -> None:
    train = prepared.part("train")
    expert = Neighbours.fit(Stems(prepared.vocabulary), train.words, train.labels)
    first = expert.top(train.words, 1).ids[:, 0]
    assert np.asarray(train.labels[np.arange(len(train)), first]).mean() > 0.95


def test_restored_it_proposes_the_same_and_saves_the_same(expert: Neighbours) -> None:
    queries, tensors = random_documents(9, 2), expert.tensors()
    again = Neighbours.restore(expert.stems, 6, tensors)
    for own, restored in zip(expert.top(queries), again.top(queries), strict=True):
        np.testing.assert_array_equal(own, restored)
    for name, array in again.tensors().items():
        assert (array.dtype, array.tobytes()) == (tensors[name].dtype, tensors[name].tobytes()), name


def test_no_document_and_documents_without_known_words(expert: Neighbours) -> None:
    assert expert.top(WordIds(np.zeros(0, np.int32), np.zeros(1, np.int64)), 4).ids.shape == (0, 4)
    found = expert.top(WordIds(np.array([1, 1], np.int32), np.array([0, 0, 2])), 4)
    assert (found.ids == -1).all()
    assert (found.scores == 0).all()


def test_one_training_document_is_enough() -> None:
    stems = Stems(Vocabulary(["apple"]))
    words = WordIds(np.array([2], np.int32), np.array([0, 1]))
    assert Neighbours.fit(stems, words, csr_matrix(np.ones((1, 1), np.float32))).top(words, 2).ids.tolist() == [[0, -1]]
