"""Evaluation: the metrics of a known ranking, label groups, unseen labels, and prepared folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from tests.conftest import make_corpus

from laha.corpus import Corpus, Parts
from laha.evaluation import evaluate
from laha.metrics import METRICS
from laha.prepared import Label, PreparationConfiguration, Prepared, prepare
from laha.vocabulary import WordIds


class Alphabetical:
    """Ranks a, b, c … whatever the text."""

    labels_ = [Label("a", 100), Label("b", 20), Label("c", 3)]  # noqa: RUF012
    train_documents_ = 100

    def predict_scores(self, texts: Sequence[str] | WordIds) -> csr_matrix:
        return csr_matrix(np.tile([0.9, 0.5, 0.1], (len(texts), 1)))


def test_a_hand_worked_report() -> None:
    corpus = Corpus.from_lists(["x", "y", "z"], [["a"], ["b", "new"], []])
    report = evaluate(Alphabetical(), corpus, intervals=True)
    assert report.metrics["P@1"] == pytest.approx(50)  # a is right for x and wrong for y
    assert report.metrics["P@3"] == pytest.approx(100 * (1 / 3 + 1 / 3) / 2)
    assert report.metrics["R@3"] == pytest.approx(100 * (1 + 1 / 2) / 2)  # "new" was never seen: a miss
    assert (report.documents, report.documents_without_labels) == (2, 1)
    assert report.groups["F>50"]["P@1"] == 100  # only x has a label of the group, and a is the group's only one
    assert report.groups["F>50"]["documents"] == 1
    assert report.groups["5<F<=50"]["P@1"] == 100  # within the group, b is ranked first
    assert report.groups["F<=5"] == {"documents": 0}
    assert report.groups["unseen"]["P@1"] == 0
    assert report.intervals is not None
    assert report.intervals["P@1"][0] <= 50 <= report.intervals["P@1"][1]


def test_the_json_has_the_keys_others_rely_on() -> None:
    corpus = Corpus.from_lists(["x"], [["a"]])
    document = evaluate(Alphabetical(), corpus).as_json()
    assert list(document) == [*METRICS, "documents", "documents_without_labels", "groups"]
    assert list(document["groups"]) == ["F<=5", "5<F<=50", "F>50", "unseen"]


def test_a_prepared_part_evaluates_as_its_corpus(parts: Parts, prepared: Prepared, tmp_path: Path) -> None:

    from tests.conftest import PAPER

    from laha.tagger import LAHA

    model = LAHA(**PAPER).fit(prepared)
    prepared.save(tmp_path / "prepared")
    assert parts.test is not None
    from_texts = evaluate(model, parts.test)
    from_numbers = evaluate(model, Prepared.load(tmp_path / "prepared"))
    assert from_texts.metrics == pytest.approx(from_numbers.metrics)
    assert from_texts.groups == from_numbers.groups


def test_a_model_of_other_labels_is_measured_on_a_prepared_corpus_by_names() -> None:
    train = Corpus.from_lists(["one two", "two three"], [["b"], ["d"]])
    test = Corpus.from_lists(["one", "two"], [["b", "zz"], ["d"]])
    configuration = PreparationConfiguration(min_count=1, word_dimensions=2, label_dimensions=2)
    small = prepare(Parts(train=train, valid=train, test=test, name="other"), configuration)
    report = evaluate(Alphabetical(), small)
    expected = evaluate(Alphabetical(), test)
    assert report.metrics == pytest.approx(expected.metrics)
    assert report.groups == expected.groups


def test_batches_do_not_change_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make_corpus(30, 4)
    corpus.label_names[:3] = ["a", "b", "c"]
    whole = evaluate(Alphabetical(), corpus)
    monkeypatch.setattr("laha.evaluation.BATCH", 7)
    assert evaluate(Alphabetical(), corpus).metrics == pytest.approx(whole.metrics)
