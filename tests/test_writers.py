"""Writing documents: round trips of any text, and no half file whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laha.corpus import LabelDetail, Record
from laha.errors import CorpusError
from laha.formats import read_records
from laha.writers import write_records


def pairs(records: list[Record]) -> list[tuple[str, tuple[str, ...] | None]]:
    return [(record.text, record.labels) for record in records]


# Neither line breaks nor a byte order mark first, which a format of one line a document cannot hold.
one_line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\ufeff"))
any_text = st.text(st.characters(codec="utf-8"))
label = any_text.map(str.strip).filter(bool)


def documents(texts):
    drawn = st.lists(st.tuples(texts, st.lists(label, max_size=3).map(tuple)), min_size=1, max_size=4)
    return drawn.map(lambda rows: [Record(text, labels, None, n) for n, (text, labels) in enumerate(rows, start=1)])


round_trip = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.tsv", "a.csv.gz"])
@round_trip
@given(records=documents(any_text))
def test_any_document_survives(tmp_path, name, records):
    write_records(records, tmp_path / name)
    assert pairs(list(read_records(tmp_path / name))) == pairs(records)


@pytest.mark.parametrize("name", ["a.ft", "a.ft.gz"])
@round_trip
@given(records=documents(one_line))
def test_any_document_of_one_line_survives_fasttext(tmp_path, name, records):
    write_records(records, tmp_path / name)
    assert pairs(list(read_records(tmp_path / name))) == pairs(records)


@round_trip
@given(records=documents(one_line.map(lambda text: text.replace("\t", " "))))
def test_any_document_of_one_line_survives_annif(tmp_path, records):
    write_records(records, tmp_path / "a.tsv", "annif")
    assert pairs(list(read_records(tmp_path / "a.tsv", "annif"))) == pairs(records)


def test_ids_survive(tmp_path):
    records = [Record("a", (), "x,1", 2), Record("b", (), None, 3)]
    write_records(records, tmp_path / "a.csv")
    assert list(read_records(tmp_path / "a.csv")) == records


def test_annif_writes_identifiers(tmp_path):
    details = {"tax": LabelDetail("http://a/1"), "data base": LabelDetail(None)}
    records = [Record("a\tb\nc", ("tax", "data base"), None, 1)]
    write_records(records, tmp_path / "a.tsv", "annif", details)
    assert (tmp_path / "a.tsv").read_text() == "a b c\t<http://a/1> <label:data%20base>\n"


def test_txt_is_written_with_its_labels(tmp_path):
    write_records([Record("a\r\nb", ("x y",), None, 1)], tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "__label__x%20y a b\n"


def test_a_text_that_fasttext_would_misread_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"document 3 begins with __label__.*: write jsonl instead"):
        write_records([Record(" __label__x", (), None, 3)], tmp_path / "a.ft")


def test_columns_need_all_labels_or_none(tmp_path):
    with pytest.raises(CorpusError, match="document 2 differs from the first in having labels"):
        write_records([Record("a", (), None, 1), Record("b", None, None, 2)], tmp_path / "a.csv")


def test_the_same_documents_give_the_same_bytes(tmp_path):
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_records([Record("a", ("x",), None, 1)], tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    def broken():
        yield Record("new", (), None, 1)
        raise RuntimeError("stopped")

    (tmp_path / "a.jsonl").write_text("old")
    with pytest.raises(RuntimeError, match="stopped"):
        write_records(broken(), tmp_path / "a.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    assert (tmp_path / "a.jsonl").read_text() == "old"


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=r"a\.jsonl: cannot be written \(.*\): choose another place"):
        write_records([], tmp_path / "file" / "a.jsonl")


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(CorpusError, match=r"cannot write the format 'fastext': did you mean 'fasttext'"):
        write_records([], tmp_path / "a.txt", "fastext")
    with pytest.raises(CorpusError, match="unknown ending"):
        write_records([], tmp_path / "a.docx")
