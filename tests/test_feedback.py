"""Feedback: kept on disk before it is acknowledged, read by training, exported by conversion."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from laha.corpus import Corpus, Parts
from laha.datasets import convert, open_corpus, open_parts
from laha.errors import CorpusError
from laha.feedback import FeedbackStore, feedback_records, learn_from_feedback, read_feedback, text_sha256


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.feedback.sqlite"


def names(corpus: Corpus) -> dict[str, list[str]]:
    return {record.text: sorted(record.labels or ()) for record in corpus.records()}


def test_the_latest_decision_on_a_label_stands_and_a_withdrawn_one_does_not(path: Path) -> None:
    store = FeedbackStore(path)
    sha256 = store.add("a text", [("law", "accepted"), ("tax", "rejected")], who="ann")
    store.add("a text", [("law", "rejected"), ("tax", "withdrawn"), ("trade", "added")])
    assert sha256 == text_sha256("a text")
    assert store.standing(sha256) == {"law": "rejected", "trade": "added"}
    assert store.standing("0" * 64) == {}
    store.close()


def test_every_decision_is_exported_in_order(path: Path) -> None:
    store = FeedbackStore(path)
    for number in range(7):
        store.add(f"text {number}", [("law", "accepted"), ("tax", "rejected")], who="ann" if number else None)
    rows = list(store.rows(page=3))
    assert [(row["text"], row["label"]) for row in rows] == [
        (f"text {number}", label) for number in range(7) for label in ("law", "tax")
    ]
    assert rows[0]["who"] is None
    assert rows[-1]["who"] == "ann"
    assert rows[0]["at"].endswith("+00:00")
    assert store.count() == 14
    store.close()


def test_what_was_added_is_read_while_the_file_is_in_use_and_after(path: Path) -> None:
    store = FeedbackStore(path)
    store.add("a\0text \ud800", [("l\0w", "added")])
    (decided,) = read_feedback(path)
    assert decided.text == "a\0text \ufffd"
    assert decided.labels == ["l\0w"]
    store.close()
    assert read_feedback(path) == [decided]
    again = FeedbackStore(path)
    assert again.count() == 1
    again.close()


def test_decisions_of_one_request_are_kept_all_or_none(path: Path) -> None:
    store = FeedbackStore(path)
    with pytest.raises(sqlite3.IntegrityError):
        store.add("a text", [("law", "accepted"), ("tax", None)])  # type: ignore[list-item]
    assert store.count() == 0
    store.add("a text", [("law", "accepted")])
    assert store.count() == 1
    store.close()


def test_texts_may_be_left_out(path: Path) -> None:
    store = FeedbackStore(path, keep_texts=False)
    store.add("a secret", [("law", "accepted")])
    store.close()
    assert b"a secret" not in path.read_bytes()
    assert [decided.text for decided in read_feedback(path)] == [None]
    assert list(feedback_records(path)) == []


def test_training_documents_gain_and_lose_labels_and_new_texts_join(path: Path) -> None:
    train = Corpus.from_lists(["one", "two", "three"], [["law", "tax"], ["tax"], []])
    valid = Corpus.from_lists(["held out"], [["tax"]])
    store = FeedbackStore(path)
    store.add("one", [("law", "rejected"), ("trade", "added"), ("tax", "accepted")])
    store.add("four", [("law", "accepted"), ("tax", "rejected"), ("new", "added")])
    store.add("only rejected", [("law", "rejected")])
    store.add("held out", [("law", "added")])
    store.add("two", [("tax", "rejected"), ("tax", "withdrawn")])
    store.close()
    parts, counts = learn_from_feedback(Parts(train, valid, None, "given"), path)
    assert names(parts.train_part()) == {"one": ["tax", "trade"], "two": ["tax"], "three": [], "four": ["law", "new"]}
    assert parts.valid is valid
    assert counts == {"changed": 2, "added": 1, "held_out": 1, "without_use": 1}


def test_a_text_that_was_not_kept_still_corrects_the_training_document_it_is(path: Path) -> None:
    store = FeedbackStore(path, keep_texts=False)
    store.add("one", [("law", "rejected")])
    store.close()
    train = Corpus.from_lists(["one", "two"], [["law", "tax"], ["tax"]])
    parts, _ = learn_from_feedback(Parts(train, None, None, "given"), path)
    assert names(parts.train_part()) == {"one": ["tax"], "two": ["tax"]}


def test_feedback_is_a_corpus(path: Path, tmp_path: Path) -> None:
    store = FeedbackStore(path)
    store.add("a text", [("law", "accepted"), ("tax", "rejected"), ("trade", "added")])
    store.close()
    convert(open_parts(path), tmp_path / "exported.jsonl")
    row = json.loads((tmp_path / "exported.jsonl").read_text())
    assert (row["text"], row["labels"]) == ("a text", ["law", "trade"])
    assert names(open_corpus(path, "train")) == {"a text": ["law", "trade"]}


def test_what_is_no_feedback_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such feedback file"):
        read_feedback(tmp_path / "none.sqlite")
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at " * 9)
    with pytest.raises(CorpusError, match="not a sound feedback file"):
        read_feedback(tmp_path / "text.sqlite")
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    with pytest.raises(CorpusError, match="not a feedback file"):
        read_feedback(tmp_path / "other.sqlite")
    with pytest.raises(CorpusError, match="not a feedback file"):
        FeedbackStore(tmp_path / "other.sqlite")


def test_feedback_of_a_newer_format_is_refused(path: Path) -> None:
    FeedbackStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(CorpusError, match=r"format 9, newer .* upgrade laha"):
        read_feedback(path)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "laha", *arguments], capture_output=True, text=True, timeout=120)


def test_the_command_line_learns_from_feedback_and_exports_it(path: Path, tmp_path: Path) -> None:
    store = FeedbackStore(path)
    store.add("iron and tin", [("metal", "added")])
    store.close()
    rows = [{"text": f"apple {n}", "labels": ["fruit"]} for n in range(6)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "model"
    trained = run(*("train", str(corpus), "--model", "popular", "--out", str(out), "--feedback", str(path)))
    assert trained.returncode == 0, trained.stderr
    assert "feedback: 1 texts added to the training documents, 0 changed" in trained.stderr
    assert '"metal"' in (out / "labels.jsonl").read_text()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["training"]["feedback"] == {"changed": 0, "added": 1, "held_out": 0, "without_use": 0}
    exported = run("data", "convert", str(path), str(tmp_path / "exported.csv"))
    assert exported.returncode == 0, exported.stderr
    assert '"iron and tin","metal"' in (tmp_path / "exported.csv").read_text()


def test_a_prepared_folder_cannot_learn_from_feedback(path: Path, prepared: object, tmp_path: Path) -> None:
    from laha.prepared import Prepared

    assert isinstance(prepared, Prepared)
    prepared.save(tmp_path / "prepared")
    FeedbackStore(path).close()
    refused = run("train", str(tmp_path / "prepared"), "--out", str(tmp_path / "m"), "--feedback", str(path))
    assert refused.returncode == 1
    assert "has no texts for feedback to join" in refused.stderr
