"""The prepared folder: everything training needs, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from laha.corpus import Corpus, LabelDetail, Parts
from laha.errors import CorpusError, ModelError
from laha.prepared import PreparationConfiguration, Prepared, open_prepared, prepare
from laha.vocabulary import Vocabulary

QUICK = PreparationConfiguration(min_count=1, word_dimensions=4, label_dimensions=3, walks_per_label=1, walk_length=3)


def test_saved_and_opened_it_is_the_same(prepared: Prepared, tmp_path: Path) -> None:
    prepared.save(tmp_path / "p")
    again = Prepared.load(tmp_path / "p")
    assert (again.name, again.seed, again.configuration) == (prepared.name, prepared.seed, prepared.configuration)
    assert again.labels == prepared.labels
    assert again.vocabulary.words == prepared.vocabulary.words
    np.testing.assert_array_equal(again.word_vectors, prepared.word_vectors)
    np.testing.assert_array_equal(again.label_vectors, prepared.label_vectors)
    for name, part in prepared.parts.items():
        other = again.part(name)
        np.testing.assert_array_equal(other.words.ids, part.words.ids)
        np.testing.assert_array_equal(other.words.offsets, part.words.offsets)
        assert (other.labels != part.labels).nnz == 0
        assert other.sha256 == part.sha256


def test_one_seed_gives_the_same_bytes(parts: Parts, tmp_path: Path) -> None:
    for place in ("one", "two"):
        prepare(parts, QUICK, seed=4).save(tmp_path / place)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_only_train_teaches_words_and_labels() -> None:
    train = Corpus.from_lists(["alpha beta", "beta gamma"], [["x"], ["y", "x"]])
    other = Corpus.from_lists(["delta beta"], [["z", "x"]])
    small = prepare(Parts(train=train, valid=other, test=other, name="n"), QUICK)
    assert small.vocabulary.words == ["beta", "alpha", "gamma"]
    assert [(label.name, label.frequency) for label in small.labels] == [("x", 2), ("y", 1), ("z", 0)]
    assert small.train_labels == len(small.label_vectors) == 2
    assert small.part("test").words.ids.tolist() == [1, 2]  # delta is unknown
    assert small.part("test").labels.toarray().tolist() == [[1, 0, 1]]


def test_label_details_are_kept(tmp_path: Path) -> None:
    train = Corpus.from_lists(["a b", "b c"], [["x"], ["y"]])
    train.label_details["x"] = LabelDetail("id:1", ("ex", "iks"))
    prepare(Parts(train=train, valid=train, test=None, name="n"), QUICK).save(tmp_path / "p")
    label = Prepared.load(tmp_path / "p").labels[0]
    assert (label.identifier, label.other_names) == ("id:1", ("ex", "iks"))


def test_small_corpora_are_read_more_often_for_word_vectors(parts: Parts) -> None:
    assert prepare(parts, QUICK).configuration.word_epochs == 20
    assert prepare(parts, replace(QUICK, word_epochs=2)).configuration.word_epochs == 2


def test_more_words_than_two_bytes_hold_are_kept(prepared: Prepared, tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(70_000)]
    part = prepared.part("train")
    ids = part.words.ids.astype(np.int32).copy()
    ids[0] = 70_001
    large = replace(
        prepared,
        vocabulary=Vocabulary(words),
        word_vectors=np.zeros((70_002, 2), np.float32),
        parts={"train": replace(part, words=replace(part.words, ids=ids))},
    )
    large.save(tmp_path / "p")
    assert Prepared.load(tmp_path / "p").part("train").words.ids[0] == 70_001


def test_a_missing_part_names_those_there_are(prepared: Prepared) -> None:
    with pytest.raises(CorpusError, match=r"without a dev part; it has: train, valid, test"):
        prepared.part("dev")


def test_a_corpus_whose_words_are_all_rare_says_what_to_do() -> None:
    train = Corpus.from_lists(["a b", "c d"], [["x"], ["y"]])
    with pytest.raises(CorpusError, match="set min_count=1"):
        prepare(Parts(train=train, valid=train, test=None, name="n"), replace(QUICK, min_count=5))


def test_a_damaged_folder_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    prepared.save(tmp_path / "p")
    (tmp_path / "p" / "train.words.npy").unlink()
    with pytest.raises(ModelError, match=r"train\.words\.npy is missing"):
        Prepared.load(tmp_path / "p")


def test_only_a_prepared_folder_is_opened_as_one(prepared: Prepared, tmp_path: Path) -> None:
    prepared.save(tmp_path / "p")
    opened = open_prepared(str(tmp_path / "p"))
    assert opened is not None
    assert opened.name == "topics"
    named = open_prepared("p", data=tmp_path)
    assert named is not None
    assert open_prepared(str(tmp_path)) is None
    assert open_prepared("builtin:pydocs") is None
