"""Corpus: what it keeps of its documents, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from laha.corpus import Corpus, LabelDetail, Parts, Record
from laha.errors import CorpusError
from laha.statistics import describe


def corpus_of(*label_sets: list[str]) -> Corpus:
    return Corpus.from_lists([f"text {number}" for number in range(len(label_sets))], list(label_sets))


def test_labels_are_sorted_stripped_and_counted_once():
    records = [Record("a", ("tax", " law ", "tax", " "), None, 1), Record("", (), "x7", 4)]
    corpus = Corpus.from_records(records, "two")
    assert corpus.label_names == ["law", "tax"]
    assert corpus.labels.toarray().tolist() == [[1, 1], [0, 0]]
    assert corpus.labels.dtype == np.float32
    assert corpus.labels.has_sorted_indices
    assert corpus.texts == ["a", ""]
    assert corpus.ids == ["1", "x7"]
    assert len(corpus) == 2


def test_missing_labels_are_refused_by_line():
    records = [Record("a", (), None, 1), Record("b", None, None, 2)]
    with pytest.raises(CorpusError, match=r"^train\.jsonl, line 2: the document has no labels: give each"):
        Corpus.from_records(records, "one", "train.jsonl")


def test_records_are_streamed_not_collected():
    def endless():
        yield Record("a", ("x",), None, 1)
        yield Record("b", None, None, 2)
        raise AssertionError("read past the first bad record")

    with pytest.raises(CorpusError, match="line 2"):
        Corpus.from_records(endless(), "one")


def test_a_lone_surrogate_is_replaced():
    corpus = Corpus.from_lists(["a\ud800"], [["\udfff"]])
    assert corpus.texts == ["a\ufffd"]
    assert corpus.label_names == ["\ufffd"]


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix, sparse.coo_array])
def test_a_matrix_keeps_all_its_columns_in_order(kind):
    given = np.zeros((2, 12), dtype=int)
    given[0, [2, 11]] = 1
    corpus = Corpus.from_lists(["a", "b"], kind(given))
    assert corpus.label_names == [str(column) for column in range(12)]
    assert (corpus.labels.toarray() == given).all()


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "b"], [["x"]], "2 texts but 1 sets of labels"),
        (["a", "b"], np.ones((3, 2)), "2 texts but 3 sets of labels"),
        (["a"], ["x"], "labels of text 1 are 'x': give a list"),
        (["a"], [[1]], "labels of text 1 are not all strings"),
        (["a", None], [[], []], "text 2 is of type NoneType"),
        ("a text", [[]], "the texts are a single string"),
        (["a"], np.array([[2]]), "values other than 0 and 1"),
        (["a"], np.array([1]), "1 dimension"),
    ],
)
def test_lists_that_do_not_fit_are_refused(texts, labels, message):
    with pytest.raises(CorpusError, match=message):
        Corpus.from_lists(texts, labels)


def test_a_subset_drops_labels_that_no_longer_occur():
    corpus = corpus_of(["a", "b"], ["c"], ["b"])
    subset = corpus.subset([2, 0])
    assert subset.texts == ["text 2", "text 0"]
    assert subset.ids == ["3", "1"]
    assert subset.label_names == ["a", "b"]
    assert subset.labels.toarray().tolist() == [[0, 1], [1, 1]]


def test_labels_by_another_list_appends_what_it_lacks():
    corpus = corpus_of(["a", "c"], ["b"], [])
    matrix, lacking = corpus.labels_by(["c", "z", "b"])
    assert lacking == ["a"]
    assert matrix.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert matrix.has_sorted_indices
    assert corpus.labels.toarray().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


def test_split_follows_its_seed_and_loses_nothing():
    corpus = corpus_of(*[["a"]] * 20)
    train, held = corpus.split(0.25, seed=3)
    assert len(held) == 5
    assert sorted(train.texts + held.texts) == sorted(corpus.texts)
    assert corpus.split(0.25, seed=3)[1].texts == held.texts
    assert corpus.split(0.25, seed=4)[1].texts != held.texts


@pytest.mark.parametrize(("fraction", "held"), [(0.001, 1), (0.999, 2)])
def test_split_leaves_a_document_on_each_side(fraction, held):
    assert len(corpus_of([], [], []).split(fraction, seed=0)[1]) == held


def test_split_refuses_what_it_cannot_split():
    with pytest.raises(CorpusError, match="fewer than 2 documents"):
        corpus_of([]).split(0.5, seed=0)
    with pytest.raises(CorpusError, match=r"fraction of 1\.0: give one between 0 and 1"):
        corpus_of([], []).split(1.0, seed=0)


def test_the_hash_is_of_texts_and_labels_in_order():
    one = corpus_of(["a", "b"], [])
    assert one.sha256() == corpus_of(["b", "a"], []).sha256()
    others = [corpus_of(["a"], []), corpus_of([], ["a", "b"]), one.subset([0]), one.subset([1, 0])]
    assert len({one.sha256(), *(other.sha256() for other in others)}) == 5


def test_records_give_back_the_documents():
    corpus = Corpus.from_records([Record("a", ("x", "y"), "first", 1), Record("b", (), None, 2)], "two")
    assert list(corpus.records()) == [Record("a", ("x", "y"), "first", 1), Record("b", (), None, 2)]


def test_details_of_labels_follow_a_subset():
    detail = {"a": LabelDetail("id:1", ("first",))}
    corpus = Corpus.from_records([Record("t", ("a",), None, 1)], "one", label_details=detail)
    assert corpus.subset([0]).label_details == detail


def test_describe_counts_as_the_papers_table_1():
    train = Corpus.from_lists(["a b", "b c c", "", "d"], [["x", "y"], ["x"], ["x"], []])
    test = Corpus.from_lists(["e a a a"], [["x", "z"]])
    figures = describe(Parts(train, None, test, "toy"), str.split)
    histogram = {row["documents"]: row["labels"] for row in figures.pop("label_frequencies")}
    assert histogram == {"1": 1, "2-5": 1, "6-10": 0, "11-50": 0, "51-100": 0, "101-1000": 0, ">1000": 0}
    assert figures == {
        "name": "toy",
        "train_documents": 4,
        "valid_documents": 0,
        "test_documents": 1,
        "words": 5,
        "labels": 3,
        "labels_per_document": 1.0,
        "documents_per_label": 2.0,
        "words_per_train_document": 1.5,
        "words_per_valid_document": 0.0,
        "words_per_test_document": 4.0,
        "documents_without_labels": 1,
        "labels_unseen_in_train": 1,
    }


def test_describe_of_nothing_is_zeros():
    figures = describe(Parts(None, None, None, "none"), str.split)
    assert figures["labels"] == figures["labels_per_document"] == figures["documents_per_label"] == 0
