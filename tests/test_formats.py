"""Files of documents: what each format holds, and every error with its file and line."""

from __future__ import annotations

import gzip
import io
import sys

import pytest

from laha.corpus import Record
from laha.errors import CorpusError
from laha.formats import read_records, read_stream, sniff_format
from laha.writers import write_records


def read(folder, name: str, content: str | bytes, format: str | None = None) -> list[Record]:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return list(read_records(path, format))


def pairs(records: list[Record]) -> list[tuple[str, tuple[str, ...] | None]]:
    return [(record.text, record.labels) for record in records]


# What each format holds


def test_jsonl(tmp_path):
    content = '{"text": "a", "labels": ["x"], "id": 7}\n\n{"text": "b", "labels": [], "more": NaN}\n{"text": "c"}'
    assert read(tmp_path, "corpus.jsonl", content) == [
        Record("a", ("x",), "7", 1),
        Record("b", (), None, 3),
        Record("c", None, None, 4),
    ]


def test_jsonl_replaces_lone_surrogates(tmp_path):
    records = read(tmp_path, "corpus.jsonl", r'{"text": "\ud800 \ud83d\ude00", "labels": ["\udc00"]}')
    assert pairs(records) == [("\ufffd 😀", ("\ufffd",))]


@pytest.mark.parametrize(("name", "delimiter"), [("corpus.csv", ","), ("corpus.tsv", "\t"), ("corpus.csv.gz", ",")])
def test_columns_in_any_order_with_labels_joined_or_as_json(tmp_path, name, delimiter):
    rows = [
        ["id", "Labels", "text"],
        ["1", "x|y z", '"two\nlines"'],
        ["", '"[""a|b"", ""c""]"', "t"],
        ["", "[sic]", ""],
    ]
    content = "\r\n".join(delimiter.join(row) for row in rows)
    assert read(tmp_path, name, content) == [
        Record("two\nlines", ("x", "y z"), "1", 2),
        Record("t", ("a|b", "c"), None, 4),
        Record("", ("[sic]",), None, 5),
    ]


def test_csv_without_labels_says_nothing_of_them(tmp_path):
    assert read(tmp_path, "corpus.csv", "text\na\n\nb\n") == [Record("a", None, None, 2), Record("b", None, None, 4)]


def test_csv_takes_fields_over_pythons_limit_and_nul_bytes(tmp_path):
    long = "word " * 50_000
    assert pairs(read(tmp_path, "corpus.csv", f"text,labels\n{long},x\na\0b,x\n")) == [(long, ("x",)), ("a\0b", ("x",))]


@pytest.mark.parametrize("name", ["corpus.ft", "corpus.txt"])
def test_fasttext(tmp_path, name):
    content = "no label here\n__label__a_b __label__data%20base the text __label__c\n__label__50%\n"
    assert pairs(read(tmp_path, name, content)) == [
        ("no label here", ()),
        ("the text __label__c", ("a_b", "data base")),
        ("", ("50%",)),
    ]


def test_annif(tmp_path):
    content = "no subject\t\na text\t<http://a/p1> <label:data%20base>\n"
    assert pairs(read(tmp_path, "corpus.tsv", content)) == [
        ("no subject", ()),
        ("a text", ("http://a/p1", "data base")),
    ]


def test_sparse(tmp_path):
    content = "3 20 5\n0,4 1:0.5 17:3 2:2000\n 3:1.0\n2\n\n"
    assert pairs(read(tmp_path, "train.txt", content)) == [("f1 f17 f17 f17 f2", ("0", "4")), ("f3", ()), ("", ("2",))]


def test_text_keeps_blank_lines_so_that_numbers_agree(tmp_path):
    assert read(tmp_path, "corpus.txt", "a\r\n\nb\u2028c") == [
        Record("a", None, None, 1),
        Record("", None, None, 2),
        Record("b\u2028c", None, None, 3),
    ]


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path, name):
    assert pairs(read(tmp_path, name, b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b"}\r\n')) == [("a", None), ("b", None)]


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    records = [Record("a", ("x", "y"), "7", 1), Record("b", (), None, 2), Record("c", None, None, 3)]
    write_records(records, tmp_path / "corpus.parquet")
    assert list(read_records(tmp_path / "corpus.parquet")) == records


# Which format it is


@pytest.mark.parametrize(
    ("first", "path", "format"),
    [
        (b'  {"text": ""}', None, "jsonl"),
        (b'\xef\xbb\xbf{"text": ""}', "<stdin>", "jsonl"),
        (b"plain", None, "text"),
        (b"", None, "text"),
        (b"{}", "notes.md", "jsonl"),
        (b"{}", "corpus.txt", "text"),
        (b"1 2 3\n", "corpus.txt.gz", "sparse"),
        (b"1 2 3 4\n", "corpus.txt", "text"),
        (b"text\tlabels\n<b>\t<a>", "corpus.tsv", "tsv"),
        (b"a\t<x>", "corpus.tsv", "annif"),
        (b"a\tx", "corpus.tsv", "tsv"),
        (b"", "CORPUS.JSONL", "jsonl"),
    ],
)
def test_the_format_is_told_from_ending_and_first_bytes(first, path, format):
    assert sniff_format(first, path) == format


def test_a_stream_is_read_a_document_at_a_time():
    def lines():
        yield b'{"text": "a"}\n'
        raise AssertionError("read ahead")

    class Stream(io.RawIOBase):
        source = lines()

        def readable(self):
            return True

        def __iter__(self):
            return self.source

    assert next(read_stream(Stream(), "jsonl")).text == "a"


def test_an_empty_stream_holds_no_documents():
    assert list(read_stream(io.BytesIO(b""), "jsonl")) == []


# Errors


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"text": "b"', r"line 2: broken JSON \(.* at column 13\): mend or remove"),
        ("a.jsonl", '["a"]', "line 1: not a JSON object: write"),
        ("a.jsonl", '{"labels": []}', 'line 1: no "text": give'),
        ("a.jsonl", '\n{"text": 3}', 'line 2: "text" is not a string'),
        ("a.jsonl", '{"text": "a", "labels": "x"}', 'line 1: "labels" is not a list of strings'),
        ("a.jsonl", '{"text": "a", "labels": [1]}', 'line 1: "labels" is not a list of strings'),
        ("a.jsonl", '{"text": "a", "id": true}', 'line 1: "id" is neither a string nor a whole number'),
        ("a.jsonl", "[" * 100_000, r"line 1: JSON that cannot be read \(nesting too deep\)"),
        ("a.jsonl", '{"text": ' + "1" * 5000 + "}", r"line 1: JSON that cannot be read \(number too long\)"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "\xe9"}', "line 2: byte 0xe9 is not UTF-8: save"),
        ("a.jsonl", "\n \n", "the file holds no documents"),
        ("a.csv", "", "the file holds no documents"),
        ("a.csv", "text,labels\n", "the file holds no documents"),
        ("a.csv", "title,labels\na,b\n", "line 1: the header names 'title', 'labels' but not 'text'"),
        ("a.csv", "text,text\na,b\n", "line 1: the header names 'text' twice"),
        ("a.csv", 'text,labels\n"a\nb",x\na,b,c\n', "line 4: 3 columns where the header has 2: .* delimiter ','"),
        ("a.csv", 'text,labels\na,x\n"b,x\n', r"line 3: broken quoting"),
        ("a.csv", 'text,labels\n"a"b,x\n', r"line 2: broken quoting"),
        ("a.csv", 'text,labels\na,"[1]"\n', 'line 2: "labels" is not a list of strings'),
        ("a.csv", b"text\n\xff\n", "line 2: byte 0xff is not UTF-8"),
        ("a.tsv", "a text\tx\n", "line 1: the header names 'a text', 'x' but not 'text'"),
        ("a.tsv", "a\t<x>\nb\n", "line 2: 1 columns where Annif has 2"),
        ("a.tsv", "a\t<x>\nb\tx\n", "line 2: a subject is not in angle brackets"),
        ("a.txt", "2 5 5\n0 1:1\n", "1 documents where the header promises 2"),
        ("a.txt", "1 5 5\n0 1=1\n", "line 2: not of the form"),
        ("a.txt", "1 5 5\n5 1:1\n", "line 2: a label is not below 5"),
        ("a.docx", "a", r"unknown ending: rename the file to one of \.jsonl, \.csv"),
        ("a.parquet", "a", "not a sound parquet file"),
    ],
)
def test_an_error_names_file_line_and_remedy(tmp_path, name, content, message):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(CorpusError, match=rf"{name}(,|:) {message}"):
        read(tmp_path, name, content)


@pytest.mark.parametrize("kept", [5, 200])
def test_a_truncated_gzip_is_named(tmp_path, kept):
    lines = b"".join(b'{"text": "%d"}\n' % (number**9) for number in range(200))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines)[:kept])
    with pytest.raises(CorpusError, match=r"a\.jsonl\.gz, line \d+: the gzip data is cut short or damaged"):
        list(read_records(tmp_path / "a.jsonl.gz"))


def test_a_file_that_is_not_gzip_is_named(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(b"plain text")
    with pytest.raises(CorpusError, match="line 1: the gzip data is cut short or damaged"):
        list(read_records(tmp_path / "a.txt.gz"))


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "train.jsonl").touch()
    with pytest.raises(CorpusError, match=r"trian\.jsonl: no such file; did you mean 'train\.jsonl'"):
        list(read_records(tmp_path / "trian.jsonl"))
    with pytest.raises(CorpusError, match=r"neither is there a folder .*elsewhere"):
        list(read_records(tmp_path / "elsewhere" / "train.jsonl"))


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(CorpusError, match="this is a folder: name a file in it"):
        list(read_records(tmp_path, "jsonl"))


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(CorpusError, match="unknown format 'json': did you mean 'jsonl'"):
        read_stream(io.BytesIO(), "json")


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CorpusError, match=r"parquet needs pyarrow: pip install 'laha\[parquet\]'"):
        read(tmp_path, "a.parquet", "")


def test_parquet_without_a_text_column_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"title": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=r"a\.parquet, line 1: no \"text\""):
        list(read_records(tmp_path / "a.parquet"))
