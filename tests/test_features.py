"""The features that classical models share, against hand-worked weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.conftest import make_corpus

from laha.errors import ConfigurationError
from laha.features import FeatureConfiguration, Features
from laha.vocabulary import Tokenizer, Vocabulary, WordIds

DOCUMENTS = [["cat", "cat", "dog"], ["dog"], ["dog", "owl"], ["fish"]]


def encoded() -> tuple[Vocabulary, WordIds]:
    vocabulary = Vocabulary(["dog", "cat", "owl"])  # fish is unknown
    return vocabulary, vocabulary.encode(DOCUMENTS)


def test_a_tfidf_row_is_log_count_times_rarity_scaled_to_length_1():
    vocabulary, words = encoded()
    rows = Features.fit(words, len(vocabulary.words), "tfidf").rows(words)
    # 4 documents; dog is in 3 of them, cat in 1
    dog, cat = 1 + math.log(5 / 4), 1 + math.log(5 / 2)
    weighed = np.array([1 * dog, (1 + math.log(2)) * cat, 0])
    np.testing.assert_allclose(rows[0].toarray()[0], weighed / np.linalg.norm(weighed), rtol=1e-6)
    np.testing.assert_allclose(rows[1].toarray()[0], [1, 0, 0], rtol=1e-6)
    assert rows.dtype == np.float32
    assert rows.shape == (4, 3)


def test_a_binary_row_says_which_words_are_there():
    vocabulary, words = encoded()
    rows = Features.fit(words, len(vocabulary.words), "binary").rows(words)
    assert rows.toarray().tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["tfidf", "binary"])
def test_a_document_of_unknown_words_and_no_documents_have_empty_rows(kind):
    vocabulary, words = encoded()
    features = Features.fit(words, len(vocabulary.words), kind)
    assert features.rows(words)[3].nnz == 0
    assert features.rows(vocabulary.encode([])).shape == (0, 3)


def test_rarity_is_that_of_train_whatever_is_weighed_later():
    vocabulary, words = encoded()
    features = Features.fit(words, len(vocabulary.words), "tfidf")
    alone = features.rows(vocabulary.encode([DOCUMENTS[0]]))
    np.testing.assert_array_equal(alone.toarray()[0], features.rows(words).toarray()[0])


def test_rows_agree_with_scikit_learns():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, tokenizer = make_corpus(50, 4).texts, Tokenizer()
    documents = [tokenizer.words(text) for text in texts]
    vocabulary = Vocabulary.build(documents)
    words = vocabulary.encode(documents)
    rows = Features.fit(words, len(vocabulary.words), "tfidf").rows(words)
    theirs = TfidfVectorizer(analyzer=tokenizer.words, sublinear_tf=True, vocabulary=vocabulary.words)
    np.testing.assert_allclose(rows.toarray(), theirs.fit_transform(texts).toarray(), rtol=1e-4)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigurationError, match="did you mean 'tfidf'"):
        FeatureConfiguration(features="tfid")
