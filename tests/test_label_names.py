"""The label-names expert: what counts as a name that is there, what is learned of it, and odd names."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from laha.experts.label_names import COVERED, PRIOR, LabelNames
from laha.prepared import Label
from laha.stems import Stems
from laha.vocabulary import Tokenizer, Vocabulary, WordIds

LABELS = [
    Label("Apple", 60),
    Label("Pears", 60),
    Label("plum", 60),
    Label("blue whale", 0, "Q42196", ("sea giant", "Balaenoptera")),
    Label("plum unknownword", 0, "Q1", ()),
]
FILLERS = ["blue", "sea", "giant", "whale", "balaenoptera", "of", "and", "the", "in", "with"]


def documents(count: int, seed: int) -> tuple[list[list[str]], csr_matrix]:
    """Return documents in which a fruit's name mostly means its label, and words of other names mean nothing."""
    random = np.random.default_rng(seed)
    texts, truth = [], np.zeros((count, len(LABELS)), np.float32)
    for row in range(count):
        words = random.choice(FILLERS, size=6).tolist()
        for label, fruit in enumerate(("apple", "pear", "plum")):
            if random.random() < 0.5:
                words.append(fruit)
                truth[row, label] = random.random() < 0.9
        texts.append(words)
    return texts, csr_matrix(truth)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.build(documents(200, 1)[0], 1, 1000)


@pytest.fixture(scope="module")
def expert(vocabulary: Vocabulary) -> LabelNames:
    texts, truth = documents(200, 1)
    return LabelNames.fit(Stems(vocabulary), LABELS, vocabulary.encode(texts), truth)


def proposed(expert: LabelNames, vocabulary: Vocabulary, *texts: str) -> list[list[str]]:
    """Return the names that the expert proposes of texts, best first."""
    words = vocabulary.encode(Tokenizer().words(text) for text in texts)
    return [[LABELS[label].name for label in row if label >= 0] for row in expert.top(words, 4).ids]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("the apple of the sea", "Apple"),
        ("with pear", "Pears"),
        ("blue whale", "blue whale"),
        ("of the sea giant", "blue whale"),
        ("in balaenoptera", "blue whale"),
    ],
)
def test_a_name_a_synonym_or_another_number_proposes_its_label(
    expert: LabelNames, vocabulary: Vocabulary, text: str, name: str
) -> None:
    assert proposed(expert, vocabulary, text)[0][0] == name


def test_a_plural_of_a_text_meets_the_singular_of_a_name() -> None:
    vocabulary = Vocabulary(["whales", "blue", "ship"])
    labels = [Label("blue whale", 1), Label("ship", 2)]
    words = vocabulary.encode([["blue", "whales"], ["ship"], ["ship", "blue"]])
    truth = csr_matrix(np.array([[1, 0], [0, 1], [0, 0]], np.float32))
    assert LabelNames.fit(Stems(vocabulary), labels, words, truth).top(words, 2).ids[0].tolist() == [0, -1]


def test_nothing_is_proposed_where_no_name_is(expert: LabelNames, vocabulary: Vocabulary) -> None:
    assert proposed(expert, vocabulary, "and of the", "", "zebra", "blue") == [[], [], [], []]


def test_a_name_counts_more_where_its_words_stand_together(expert: LabelNames, vocabulary: Vocabulary) -> None:
    words = vocabulary.encode([["blue", "whale"], ["whale", "in", "the", "blue"]])
    matches = expert.match(words)
    there = dict(zip(matches.documents.tolist(), matches.looks[:, 1:3].tolist(), strict=True))
    assert there == {0: [1.0, 1.0], 1: [1.0, 0.0]}  # all words in both, in order in the first alone


def test_a_name_with_a_word_that_no_document_has_is_never_all_there(expert: LabelNames, vocabulary: Vocabulary) -> None:
    matches = expert.match(vocabulary.encode([["plum"]]))
    looks = dict(zip(matches.labels.tolist(), matches.looks.tolist(), strict=True))
    assert looks[2][1] == 1
    assert 4 not in looks or (COVERED <= looks[4][0] < 1 and looks[4][1] == 0)
    total = expert.rarity[expert.stems.encode(["plum"])[0] - 2]
    (half,) = (share for name, share in zip(expert.names, expert._share.T.toarray(), strict=True) if 1 in name.tolist())
    assert half.sum() == pytest.approx(total / (total + expert.rarity.max()))


def test_a_document_does_not_tell_of_itself(expert: LabelNames, vocabulary: Vocabulary) -> None:
    matches = expert.match(vocabulary.encode([["apple"], ["apple"]]))
    named, right = (int(side[0]) for side in expert.given)
    average = (expert.given[1].sum() + 1) / (expert.given[0].sum() + 2)
    evidence = expert._evidence(matches, np.array([1.0, 0.0], np.float32))
    for row, own in zip(evidence, (1, 0), strict=True):
        precision = (right - own + PRIOR * average) / (named - 1 + PRIOR)
        odds = np.log(precision / (1 - precision))
        others = LABELS[0].frequency - own
        np.testing.assert_allclose(row[7:], [odds, np.log(named), np.log1p(others), odds, 0], rtol=1e-5)
    of_others = expert._evidence(matches)
    precision = (right + PRIOR * average) / (named + PRIOR)
    assert of_others[0, 7] == pytest.approx(np.log(precision / (1 - precision)), rel=1e-5)


def test_what_is_given_counts_names_and_labels(expert: LabelNames) -> None:
    texts, truth = documents(200, 1)
    has = np.array([["apple" in words, "pear" in words, "plum" in words] for words in texts])
    np.testing.assert_array_equal(expert.given[0, :3], has.sum(axis=0))
    np.testing.assert_array_equal(expert.given[1, :3], np.asarray(truth.sum(axis=0)).ravel()[:3])


def test_scores_are_the_log_odds_of_matches(expert: LabelNames, vocabulary: Vocabulary) -> None:
    texts, truth = documents(400, 2)
    found = expert.top(vocabulary.encode(texts), 4)
    own = found.ids < 3
    named = (found.ids >= 0) & own
    rows, columns = np.nonzero(named)
    right = np.asarray(truth[rows, found.ids[named]]).ravel()
    likely = 1 / (1 + np.exp(-found.scores[rows, columns]))
    assert likely.mean() == pytest.approx(right.mean(), abs=0.05)


def test_restored_it_proposes_the_same(expert: LabelNames, vocabulary: Vocabulary) -> None:
    words = vocabulary.encode(documents(30, 3)[0])
    again = LabelNames.restore(Stems(vocabulary), LABELS, expert.tensors())
    for own, restored in zip(expert.top(words), again.top(words), strict=True):
        np.testing.assert_array_equal(own, restored)


@pytest.mark.parametrize(
    "names",
    [[""], ["?!", " ", "()"], ["zebra", "yak gnu"], ["apple", "apple"], [f"apple {number}" for number in range(50)]],
)
def test_odd_names_and_documents_do_no_harm(names: list[str]) -> None:
    vocabulary = Vocabulary(["apple"])
    labels = [Label(name, 1) for name in names]
    words = vocabulary.encode([[], ["apple"], ["zebra"]])
    truth = csr_matrix((np.ones(1, np.float32), ([1], [0])), shape=(3, len(names)))
    expert = LabelNames.fit(Stems(vocabulary), labels, words, truth)
    found = expert.top(words, 100)
    assert found.ids.shape == (3, 100)
    assert (found.ids[[0, 2]] == -1).all()
    assert np.isfinite(found.scores).all()
    nothing = WordIds(np.zeros(0, np.int32), np.zeros(1, np.int64))
    assert expert.top(nothing, 3).ids.shape == (0, 3)
    again = LabelNames.restore(expert.stems, labels, expert.tensors())
    np.testing.assert_array_equal(again.top(words, 100).scores, found.scores)


def test_where_every_match_is_right_it_still_speaks() -> None:
    vocabulary = Vocabulary(["apple", "pear", "whale"])
    labels = [Label("apple", 2), Label("pear", 1), Label("whale", 0, "Q1")]
    words = vocabulary.encode([["apple"], ["apple"], ["pear"]])
    truth = csr_matrix(np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]], np.float32))
    expert = LabelNames.fit(Stems(vocabulary), labels, words, truth)
    assert expert.top(vocabulary.encode([["whale"], ["pear", "apple"]]), 2).ids.tolist() == [[2, -1], [0, 1]]


def test_where_no_match_is_right_it_is_silent() -> None:
    vocabulary = Vocabulary(["apple", "pear"])
    labels, words = [Label("apple", 1), Label("pear", 1)], vocabulary.encode([["apple"], ["pear"]])
    truth = csr_matrix(np.array([[0, 1], [1, 0]], np.float32))
    expert = LabelNames.fit(Stems(vocabulary), labels, words, truth)
    assert (expert.top(words, 2).ids == -1).all()
