"""Corpora by path and by name: folders of parts, XMC folders, the data folder, the built-in corpus, conversion."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from laha import pydocs
from laha.corpus import Corpus, LabelDetail, Parts
from laha.datasets import (
    content_sha256,
    convert,
    find_corpus,
    open_corpus,
    open_parts,
    read_corpus,
    read_folder,
    read_label_details,
    read_parts,
)
from laha.errors import CorpusError


def write_jsonl(path, *texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text, "labels": ["x"]}) + "\n" for text in texts))


@pytest.fixture
def folder(tmp_path):
    write_jsonl(tmp_path / "news" / "train.jsonl", "a", "b")
    (tmp_path / "news" / "test.csv").write_text("text,labels\nc,x|y\n")
    return tmp_path / "news"


@pytest.fixture
def small_pydocs(monkeypatch, tmp_path):
    """A built-in corpus of one document a part, that counts how often it is made."""
    made = []

    def build():
        made.append(1)
        return Parts(*(Corpus.from_lists([text], [["json"]]) for text in "abc"), "pydocs")

    monkeypatch.setattr(pydocs, "build_parts", build)
    monkeypatch.setenv("LAHA_CACHE", str(tmp_path / "cache"))
    return made


# Folders


def test_a_folder_gives_its_parts_and_is_named_by_itself(folder):
    parts = read_parts(folder)
    assert {part: corpus.texts for part, corpus in parts.present().items()} == {"train": ["a", "b"], "test": ["c"]}
    assert parts.valid is None
    assert parts.name == parts.train.name == "news"


def test_only_the_parts_wanted_are_read(folder):
    (folder / "test.csv").write_text("broken")
    assert read_folder(folder, ["train", "valid"]).train.texts == ["a", "b"]
    with pytest.raises(CorpusError, match=r"test\.csv, line 1"):
        read_folder(folder, ["test"])


def test_a_file_serves_as_any_part(folder):
    assert read_corpus(folder / "train.jsonl", "test").texts == ["a", "b"]
    parts = read_parts(folder / "train.jsonl")
    assert parts.train.texts == ["a", "b"]
    assert parts.name == "train"
    assert parts.test is None


def test_a_missing_part_names_those_there_are(folder):
    with pytest.raises(CorpusError, match=r"news: the folder has no valid part, only train, test: add a file valid"):
        read_corpus(folder, "valid")
    with pytest.raises(CorpusError, match="no part 'tests': did you mean 'test'"):
        read_corpus(folder, "tests")


def test_two_files_for_a_part_are_both_named(folder):
    write_jsonl(folder / "train.jsonl.gz")
    with pytest.raises(CorpusError, match=r"two files for the train part, train\.jsonl and train\.jsonl\.gz"):
        read_folder(folder, ["test"])


def test_a_folder_without_parts_is_refused(tmp_path):
    (tmp_path / "train.md").touch()
    with pytest.raises(CorpusError, match=r"no train, valid or test part: add a file such as train\.jsonl"):
        read_parts(tmp_path)


def test_a_document_without_labels_is_refused_with_file_and_line(folder):
    (folder / "valid.jsonl").write_text('{"text": "a", "labels": []}\n{"text": "b"}\n')
    with pytest.raises(CorpusError, match=r"valid\.jsonl, line 2: the document has no labels"):
        read_corpus(folder, "valid")


def test_label_details(folder):
    lines = "label\tidentifier\tother names\nx\tid:1\tex|the x\ny\nz\t\tzed\tzet\n"
    (folder / "labels.tsv.gz").write_bytes(gzip.compress(lines.encode()))
    details = read_corpus(folder, "train").label_details
    assert details["x"] == LabelDetail("id:1", ("ex", "the x"))
    assert details["y"] == LabelDetail(None, ())
    assert details["z"] == LabelDetail(None, ("zed", "zet"))
    assert len(details) == 3


def test_label_details_need_a_label(tmp_path):
    (tmp_path / "labels.tsv").write_text("x\tid:1\n\n\tid:2\n")
    with pytest.raises(CorpusError, match=r"labels\.tsv, line 3: the first column, the label, is empty"):
        read_label_details(tmp_path)


def test_the_sum_of_a_corpus_follows_its_documents_and_not_their_compression(folder, tmp_path):
    before = content_sha256(folder)
    packed = tmp_path / "packed"
    shutil.copytree(folder, packed)
    for file in [*packed.glob("*.jsonl")]:
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    (packed / "README").write_text("not of the corpus")
    assert content_sha256(packed) == before
    (packed / "labels.tsv").write_text("x\tid:1\n")
    labelled = content_sha256(packed)
    assert labelled != before
    assert content_sha256("packed", tmp_path) == labelled
    assert len({content_sha256("builtin:pydocs"), before, labelled}) == 3


def test_the_sum_of_an_xmc_folder_is_of_texts_and_labels(tmp_path):
    (tmp_path / "train_texts.txt").write_text("a text\n")
    (tmp_path / "train_labels.txt").write_text("x\n")
    before = content_sha256(tmp_path)
    (tmp_path / "train_labels.txt").write_text("y\n")
    assert content_sha256(tmp_path) != before


# The XMC layout


def test_xmc_folder(tmp_path):
    (tmp_path / "train_texts.txt").write_text("a text\n\n")
    (tmp_path / "train_labels.txt").write_text("x data%20base\n\n")
    corpus = read_corpus(tmp_path, "train")
    assert corpus.texts == ["a text", ""]
    assert corpus.label_names == ["data base", "x"]
    assert corpus.labels.toarray().tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(("texts", "labels", "line"), [(3, 1, 2), (2, 5, 3), (0, 2, 1)])
def test_xmc_files_of_different_length_are_refused(tmp_path, texts, labels, line):
    (tmp_path / "train_texts.txt").write_text("a\n" * texts)
    (tmp_path / "train_labels.txt").write_text("x\n" * labels)
    message = rf"train_labels\.txt, line {line}: {labels} lines of labels for the {texts} texts in train_texts\.txt"
    with pytest.raises(CorpusError, match=message):
        read_corpus(tmp_path, "train")


def test_xmc_texts_need_labels_and_documents(tmp_path):
    (tmp_path / "train_texts.txt").touch()
    with pytest.raises(CorpusError, match=r"train_labels\.txt: no such file"):
        read_corpus(tmp_path, "train")
    (tmp_path / "train_labels.txt").touch()
    with pytest.raises(CorpusError, match=r"train_texts\.txt: the file holds no documents"):
        read_corpus(tmp_path, "train")


def test_the_repositorys_sparse_files_are_a_folder_too(tmp_path):
    (tmp_path / "train.txt").write_text("1 3 2\n1 0:2\n")
    assert read_corpus(tmp_path, "train").texts == ["f0 f0"]


# Names


def test_a_name_is_found_in_the_data_folder(folder, monkeypatch):
    assert open_corpus("news", "test", data=folder.parent).texts == ["c"]
    monkeypatch.setenv("LAHA_DATA", str(folder.parent))
    assert open_parts("news", wanted=("train",)).present().keys() == {"train"}


def test_a_path_comes_before_a_name(folder, tmp_path, monkeypatch):
    write_jsonl(tmp_path / "data" / "news" / "train.jsonl", "other")
    monkeypatch.chdir(tmp_path)
    assert open_corpus("news", "train", data=tmp_path / "data").texts == ["a", "b"]


def test_an_unknown_corpus_names_what_was_tried_and_the_nearest(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("LAHA_DATA", raising=False)
    with pytest.raises(CorpusError, match=r"no such file or folder; .*--data DIR or LAHA_DATA, or be builtin:pydocs"):
        find_corpus("nwes")
    with pytest.raises(
        CorpusError, match=rf"nwes: no such file or folder, nor is {tmp_path}/nwes; did you mean 'news'"
    ):
        find_corpus("nwes", tmp_path)


# The built-in corpus


def test_the_builtin_corpus_is_made_once_and_then_read_from_its_cache(small_pydocs, tmp_path):
    assert open_corpus("builtin:pydocs", "valid").texts == ["b"]
    again = open_parts("builtin:pydocs", wanted=["train"])
    assert again.train.texts == ["a"]
    assert again.test is None
    assert again.name == again.train.name == "pydocs"
    assert len(small_pydocs) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [pydocs.cache_key()]


def test_a_damaged_cache_is_made_again(small_pydocs, tmp_path):
    open_parts("builtin:pydocs")
    (tmp_path / "cache" / pydocs.cache_key() / "train.jsonl.gz").write_bytes(b"\x1f\x8b")
    assert open_corpus("builtin:pydocs", "train").texts == ["a"]
    assert open_corpus("builtin:pydocs", "train").texts == ["a"]
    assert len(small_pydocs) == 2


def test_a_cache_that_cannot_be_written_is_done_without(small_pydocs, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAHA_CACHE", str(tmp_path / "file"))
    assert open_corpus("builtin:pydocs", "test").texts == ["c"]


def test_an_unknown_builtin_corpus_names_the_nearest():
    with pytest.raises(CorpusError, match="no built-in corpus is called 'pydoc': did you mean 'pydocs'"):
        open_parts("builtin:pydoc")


# Conversion


@pytest.mark.parametrize("format", [None, "csv", "tsv", "fasttext", "parquet", "xmc"])
def test_parts_survive_conversion_to_a_folder(tmp_path, format):
    if format == "parquet":
        pytest.importorskip("pyarrow")
    details = {"x y": LabelDetail("id:1", ("ex", "why")), "z": LabelDetail(None, ())}
    train = Corpus.from_lists(["one", "two words"], [["x y", "z"], []])
    train.label_details = details
    parts = Parts(train, None, Corpus.from_lists(["three"], [["z"]]), "toy")
    convert(parts, tmp_path / "out", format)
    back = read_parts(tmp_path / "out")
    assert {part: corpus.sha256() for part, corpus in back.present().items()} == {
        part: corpus.sha256() for part, corpus in parts.present().items()
    }
    assert back.train.label_details == details


def test_annif_gets_identifiers(tmp_path):
    corpus = Corpus.from_lists(["one"], [["x"]])
    corpus.label_details = {"x": LabelDetail("http://a/1")}
    convert(corpus, tmp_path, "annif")
    assert read_corpus(tmp_path, "train").label_names == ["http://a/1"]


def test_a_file_gets_one_part(tmp_path):
    corpus = Corpus.from_lists(["one"], [["x"]])
    convert(corpus, tmp_path / "one.csv.gz")
    assert read_corpus(tmp_path / "one.csv.gz", "test").sha256() == corpus.sha256()
    with pytest.raises(CorpusError, match="a file holds one part, but there are train, test: choose one"):
        convert(Parts(corpus, None, corpus, "two"), tmp_path / "two.jsonl")
