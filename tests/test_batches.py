"""Batches: every document once, documents of like length together, padding at the end only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laha.batches import pad, shuffled_batches, sorted_batches
from laha.vocabulary import PADDING, RESERVED, UNKNOWN, WordIds

lengths_of_documents = st.lists(st.integers(0, 500), max_size=300).map(lambda drawn: np.array(drawn, np.int64))


def word_ids(documents: list[list[int]]) -> WordIds:
    offsets = np.cumsum([0, *map(len, documents)])
    return WordIds(np.array([word for document in documents for word in document], np.int32), offsets)


def padding_share(batches, lengths) -> float:
    cells = sum(len(batch) * lengths[batch].max() for batch in batches)
    return 1 - lengths.sum() / cells


@given(lengths_of_documents, st.integers(1, 64), st.integers(0, 9))
def test_every_document_is_in_exactly_one_batch(lengths, batch, seed):
    batches = shuffled_batches(lengths, batch, np.random.default_rng(seed))
    assert sorted(document for documents in batches for document in documents) == list(range(len(lengths)))
    assert all(1 <= len(documents) <= batch for documents in batches)
    assert len(batches) == -(-len(lengths) // batch)


@given(lengths_of_documents, st.integers(1, 5000), st.integers(1, 600))
def test_sorted_batches_hold_every_document_and_no_more_words_than_allowed(lengths, words, max_words):
    batches = list(sorted_batches(lengths, words, max_words))
    assert sorted(document for documents in batches for document in documents) == list(range(len(lengths)))
    for documents in batches:
        padded = len(documents) * min(max(1, lengths[documents].max()), max_words)
        assert padded <= words or len(documents) == 1


def test_hardly_anything_is_padding():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 500, 8000)
    drawn = np.array_split(rng.permutation(8000), 8000 // 64)
    assert padding_share(drawn, lengths) > 0.4
    assert padding_share(shuffled_batches(lengths, 64, rng), lengths) < 0.05
    assert padding_share(list(sorted_batches(lengths, 2**14, 500)), lengths) < 0.02


def test_epochs_differ_and_follow_the_seed():
    lengths = np.random.default_rng(0).integers(1, 500, 1000)
    rng = np.random.default_rng(7)
    first, second = (np.concatenate(shuffled_batches(lengths, 10, rng)) for _ in range(2))
    again = np.concatenate(shuffled_batches(lengths, 10, np.random.default_rng(7)))
    assert first.tolist() == again.tolist()
    assert first.tolist() != second.tolist()


def test_short_documents_do_not_come_first_in_an_epoch():
    lengths = np.arange(1000)
    means = [lengths[batch].mean() for batch in shuffled_batches(lengths, 10, np.random.default_rng(0))]
    assert abs(np.corrcoef(means, np.arange(100))[0, 1]) < 0.3


def test_the_longest_documents_come_first_when_sorted():
    assert [batch.tolist() for batch in sorted_batches(np.array([1, 9, 5, 9]), 18, 9)] == [[1, 3], [2, 0]]


@given(st.lists(st.lists(st.integers(RESERVED, 99), max_size=8), min_size=1, max_size=6), st.integers(1, 10), st.data())
def test_padding_follows_the_words_of_each_document(documents, max_words, data):
    chosen = data.draw(st.lists(st.integers(0, len(documents) - 1), min_size=1))
    padded, lengths = pad(word_ids(documents), np.array(chosen), max_words)
    expected = [documents[document][:max_words] or [UNKNOWN] for document in chosen]
    longest = max(map(len, expected))
    assert padded.tolist() == [words + [PADDING] * (longest - len(words)) for words in expected]
    assert lengths.tolist() == [len(words) for words in expected]


@pytest.mark.parametrize("documents", [[[]], [[], []]])
def test_a_blank_document_becomes_one_unknown_word(documents):
    padded, lengths = pad(word_ids(documents), np.arange(len(documents)), 5)
    assert padded.tolist() == [[UNKNOWN]] * len(documents)
    assert lengths.tolist() == [1] * len(documents)


def test_no_documents_make_no_rows():
    padded, lengths = pad(word_ids([[5]]), np.array([], np.int64), 5)
    assert (padded.shape, lengths.shape) == ((0, 1), (0,))
