"""Files of documents: what each format holds, and readers that stream and name the line of an error.

Every format may be compressed (`.gz`); a byte order mark and Windows line ends are accepted.

jsonl     `{"text": …, "labels": [names], "id": …}` a line; blank lines are skipped; lone surrogates become U+FFFD.
csv, tsv  a header with `text` and optionally `labels` and `id`; labels are joined by `|`, or are a JSON list.
fasttext  `__label__NAME` words, then the text; whitespace and `%` in a name are percent-encoded (`data%20base`).
annif     the text, a tab, and subjects as `<uri> <uri>`; a label without an identifier is `<label:NAME>`, encoded.
sparse    the Extreme Classification Repository's `documents features labels` header, then `l1,l2 f1:v1 f2:v2 …`;
          feature 17 becomes the word `f17`, written as often as its value says if that is a whole number up to 1000.
parquet   the columns of csv, `labels` being a list of strings.
text      a document a line, blank ones included, labels not known: for tagging.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

from laha.corpus import Record, replace_surrogates
from laha.errors import CorpusError, nearest, nearest_file

ENDINGS = {
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".ft": "fasttext",
    ".txt": "text",
    ".parquet": "parquet",
}
PREFIX = "__label__"
LABEL_WORD = re.compile(r"\s*" + PREFIX + r"(\S*)(?:\s|$)")
PEEK = 1 << 16  # bytes looked at to tell apart the formats that share an ending
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
DAMAGED = "the gzip data is cut short or damaged: fetch the file again"
_SUBJECTS = re.compile(r"\s*(?:<[^<>]*>\s*)*")
_THREE_NUMBERS = re.compile(r"\d+\s+\d+\s+\d+\s*")


def read_records(path: str | Path, format: str | None = None) -> Iterator[Record]:
    """Yield the documents of a file; the format is the one given, or told from the ending and the first lines."""
    path = Path(path)
    if format is None:
        check_ending(path)
    with open_binary(path) as handle:
        empty = True
        for record in read_stream(handle, format or sniff_format(_peek(handle, path), path), path):
            empty = False
            yield record
    if empty:
        raise CorpusError("the file holds no documents: check that it was written in full", path)


def read_stream(handle: BinaryIO, format: str, path: str | Path = "<stdin>") -> Iterator[Record]:
    """Yield the documents of an open binary stream, holding one at a time."""
    if format not in READERS:
        raise CorpusError(f"unknown format '{format}': {nearest(format, list(READERS))}", path)
    return READERS[format](handle, path)


def sniff_format(first: bytes, path: str | Path | None = None) -> str:
    """Tell the format from a file's ending and first bytes; without a known ending it is jsonl or text.

    >>> sniff_format(b'{"text": "a"}'), sniff_format(b"a text"), sniff_format(b"a text", "corpus.csv.gz")
    ('jsonl', 'text', 'csv')
    """
    start = first.decode("utf-8", errors="replace").removeprefix("\ufeff")
    format = None if path is None else format_of_ending(path)
    if format is None:
        return "jsonl" if start.lstrip().startswith("{") else "text"
    lines = start.split("\n")
    if format == "text":
        if _THREE_NUMBERS.fullmatch(lines[0]):
            return "sparse"
        return "fasttext" if any(line.startswith(PREFIX) for line in lines) else "text"
    if format == "tsv" and "text" not in _header_names(lines[0].split("\t")):
        return "annif" if any(line.rpartition("\t")[2].startswith("<") for line in lines) else "tsv"
    return format


def format_of_ending(path: str | Path) -> str | None:
    """Return the format that a file's ending stands for, or None.

    >>> format_of_ending("train.jsonl.gz"), format_of_ending("train.docx")
    ('jsonl', None)
    """
    return ENDINGS.get(Path(str(path).removesuffix(".gz")).suffix.lower())


def check_ending(path: Path) -> None:
    """Refuse a file whose ending names no format."""
    if format_of_ending(path) is None:
        raise CorpusError(f"unknown ending: rename the file to one of {', '.join(ENDINGS)}, each also with .gz", path)


def open_binary(path: str | Path) -> io.BufferedReader:
    """Open a file for reading, unpacked where its name ends in `.gz`."""
    path = Path(path)
    try:
        if path.name.endswith(".gz"):
            return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), PEEK)
        return cast(io.BufferedReader, open(path, "rb", buffering=PEEK))
    except IsADirectoryError:
        raise CorpusError("this is a folder: name a file in it", path) from None
    except FileNotFoundError:
        raise CorpusError(f"no such file; {nearest_file(path)}", path) from None
    except OSError as error:
        raise CorpusError(f"cannot be read ({error.strerror}): check the file and its permissions", path) from None


def numbered_lines(handle: BinaryIO, path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield each line with its number, its line end kept; lines end at a line feed and nowhere else."""
    number = 0
    try:
        for number, line in enumerate(handle, start=1):
            text = line.decode("utf-8")
            yield number, text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise CorpusError(f"byte 0x{byte:02x} is not UTF-8: save the file as UTF-8", path, number) from None
    except DAMAGE:
        raise CorpusError(DAMAGED, path, number + 1) from None


def without_line_end(line: str) -> str:
    r"""Drop the line end, of either kind.

    >>> without_line_end("a \r\n")
    'a '
    """
    return line.removesuffix("\n").removesuffix("\r")


def _peek(handle: io.BufferedReader, path: Path) -> bytes:
    try:
        return handle.peek(PEEK)
    except DAMAGE:
        raise CorpusError(DAMAGED, path, 1) from None


def _header_names(cells: list[str]) -> list[str]:
    return [cell.strip().strip('"').lower() for cell in cells]


def _read_jsonl(handle: BinaryIO, path: str | Path) -> Iterator[Record]:
    for number, line in numbered_lines(handle, path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            message = f"broken JSON ({error.msg} at column {error.colno}): mend or remove the line"
            raise CorpusError(message, path, number) from None
        except (RecursionError, ValueError) as error:
            problem = "nesting too deep" if isinstance(error, RecursionError) else "number too long"
            raise CorpusError(f"JSON that cannot be read ({problem}): mend or remove the line", path, number) from None
        if not isinstance(value, dict):
            raise CorpusError('not a JSON object: write {"text": …, "labels": […]}', path, number)
        yield _record(value, path, number)


def _record(value: dict[str, Any], path: str | Path, line: int) -> Record:
    text, labels, identifier = value.get("text"), value.get("labels"), value.get("id")
    if "text" not in value:
        raise CorpusError('no "text": give the document\'s text under that name', path, line)
    if not isinstance(text, str):
        raise CorpusError('"text" is not a string: put the text in quotes', path, line)
    if labels is not None:
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise CorpusError('"labels" is not a list of strings: write ["one", "another"]', path, line)
        labels = tuple(replace_surrogates(label) for label in labels)
    if identifier is not None:
        if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
            raise CorpusError('"id" is neither a string nor a whole number: change or remove it', path, line)
        identifier = replace_surrogates(str(identifier))
    return Record(replace_surrogates(text), labels, identifier, line)


def _read_delimited(handle: BinaryIO, path: str | Path, delimiter: str) -> Iterator[Record]:
    csv.field_size_limit(2**31 - 1)  # Python's own limit, 128 KiB, is shorter than many documents
    rows = csv.reader((line for _, line in numbered_lines(handle, path)), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    line = 1
    try:
        for cells in rows:
            if header is None:
                header = _checked_header(cells, path)
            elif cells:
                if len(cells) != len(header):
                    message = f"{len(cells)} columns where the header has {len(header)}: quote a cell that holds"
                    raise CorpusError(f"{message} the delimiter {delimiter!r}", path, line)
                row = dict(zip(header, cells, strict=True))
                labels = _labels_of_cell(row["labels"], path, line) if "labels" in row else None
                yield Record(row["text"], labels, row.get("id") or None, line)
            line = rows.line_num + 1
    except csv.Error as error:
        message = f"broken quoting ({error}): quote the cell, and double the quotes in it"
        raise CorpusError(message, path, line) from None


def _checked_header(cells: list[str], path: str | Path) -> list[str]:
    header = _header_names(cells)
    if "text" not in header:
        message = f"the header names {', '.join(map(repr, cells)) or 'no columns'} but not 'text'"
        raise CorpusError(f"{message}: start the file with a row such as text, labels, id", path, 1)
    for name in ("text", "labels", "id"):
        if header.count(name) > 1:
            raise CorpusError(f"the header names '{name}' twice: rename one of the columns", path, 1)
    return header


def _labels_of_cell(cell: str, path: str | Path, line: int) -> tuple[str, ...]:
    if cell.startswith("["):
        try:
            names = json.loads(cell)
        except (ValueError, RecursionError):
            names = None  # a name such as [sic] begins with a bracket too
        if names is not None:
            return _record({"text": "", "labels": names}, path, line).labels or ()
    return tuple(name for name in cell.split("|") if name.strip())


def _read_fasttext(handle: BinaryIO, path: str | Path) -> Iterator[Record]:
    for number, line in numbered_lines(handle, path):
        rest = without_line_end(line)
        labels = []
        while match := LABEL_WORD.match(rest):
            labels.append(decode_name(match[1]))
            rest = rest[match.end() :]
        yield Record(rest, tuple(labels), None, number)


def decode_name(name: str) -> str:
    """Undo the percent-encoding of a label's name; a name that was never encoded stays as it is.

    >>> decode_name("data%20base"), decode_name("100%")
    ('data base', '100%')
    """
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        return name


def _read_annif(handle: BinaryIO, path: str | Path) -> Iterator[Record]:
    for number, line in numbered_lines(handle, path):
        cells = without_line_end(line).split("\t")
        if len(cells) != 2:
            message = f"{len(cells)} columns where Annif has 2: write the text, one tab, and the subjects"
            raise CorpusError(message, path, number)
        text, subjects = cells
        if not _SUBJECTS.fullmatch(subjects):
            raise CorpusError("a subject is not in angle brackets: write <uri> <uri>", path, number)
        yield Record(text, tuple(map(_label_of_subject, re.findall("<([^<>]*)>", subjects))), None, number)


def _label_of_subject(subject: str) -> str:
    return decode_name(subject.removeprefix("label:")) if subject.startswith("label:") else subject


def _read_sparse(handle: BinaryIO, path: str | Path) -> Iterator[Record]:
    promised = found = labels = 0
    for number, line in numbered_lines(handle, path):
        if number == 1:
            if not _THREE_NUMBERS.fullmatch(line):
                raise CorpusError("the header is not three whole numbers: write documents features labels", path, 1)
            promised, _, labels = map(int, line.split())
            continue
        if found == promised and not line.strip():
            continue
        names, _, features = without_line_end(line).partition(" ")
        try:
            ids = [int(name) for name in names.split(",") if name]
            words = [word for pair in features.split() for word in _words_of_feature(pair)]
        except ValueError:
            raise CorpusError("not of the form l1,l2 f1:v1 f2:v2: mend the line", path, number) from None
        if any(not 0 <= label < labels for label in ids):
            raise CorpusError(f"a label is not below {labels}, the header's number: mend either", path, number)
        found += 1
        yield Record(" ".join(words), tuple(map(str, ids)), None, number)
    if found != promised:
        raise CorpusError(f"{found} documents where the header promises {promised}: fetch the file again", path)


def _words_of_feature(pair: str) -> list[str]:
    feature, _, number = pair.partition(":")
    value = float(number)
    count = int(value) if value.is_integer() and 2 <= value <= 1000 else 1
    return [f"f{int(feature)}"] * count


def _read_text(handle: BinaryIO, path: str | Path) -> Iterator[Record]:
    for number, line in numbered_lines(handle, path):
        yield Record(without_line_end(line), None, None, number)


def _read_parquet(handle: BinaryIO, path: str | Path) -> Iterator[Record]:
    pyarrow, parquet = import_pyarrow(path)
    number = 0
    try:
        file = parquet.ParquetFile(handle if handle.seekable() else io.BytesIO(handle.read()))
        columns = [name for name in file.schema_arrow.names if name in ("text", "labels", "id")]
        for batch in file.iter_batches(batch_size=1024, columns=columns):
            for value in batch.to_pylist():
                number += 1
                yield _record(value, path, number)
    except (pyarrow.ArrowException, *DAMAGE) as error:
        raise CorpusError(f"not a sound parquet file ({error}): write it again", path) from None


def import_pyarrow(path: str | Path) -> tuple[Any, Any]:
    """Return pyarrow and its parquet module, or name the extra that brings them."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise CorpusError("parquet needs pyarrow: pip install 'laha[parquet]'", path) from None
    return pyarrow, parquet


READERS: dict[str, Callable[[BinaryIO, str | Path], Iterator[Record]]] = {
    "jsonl": _read_jsonl,
    "csv": lambda handle, path: _read_delimited(handle, path, ","),
    "tsv": lambda handle, path: _read_delimited(handle, path, "\t"),
    "fasttext": _read_fasttext,
    "annif": _read_annif,
    "sparse": _read_sparse,
    "parquet": _read_parquet,
    "text": _read_text,
}
