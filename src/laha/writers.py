"""Write documents to files of any format, so that a file appears whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from laha.corpus import LabelDetail, Record, replace_surrogates
from laha.errors import CorpusError, nearest
from laha.formats import LABEL_WORD, PREFIX, check_ending, format_of_ending, import_pyarrow

WRITTEN_AS = {"text": "fasttext"}  # a `.txt` file of bare texts would lose their labels
_LINE_BREAK = re.compile(r"\r\n?|\n")


def write_records(
    records: Iterable[Record],
    path: str | Path,
    format: str | None = None,
    label_details: Mapping[str, LabelDetail] | None = None,
) -> None:
    """Write documents to a file in a format, by default its ending's; identifiers of labels serve Annif's only.

    A line break within a text becomes a space in fastText's and Annif's formats, and so does a tab in Annif's.
    """
    path = Path(path)
    if format is None:
        check_ending(path)
        format = WRITTEN_AS.get(ending := format_of_ending(path) or "", ending)
    if format == "parquet":
        return _write_parquet(records, path)
    if format == "annif":
        return write_lines(_annif_lines(records, label_details or {}), path)
    if format not in WRITERS:
        known = [*WRITERS, "annif", "parquet"]
        raise CorpusError(f"cannot write the format '{format}': {nearest(format, known)}", path)
    write_lines(WRITERS[format](records), path)


def write_lines(lines: Iterable[str], path: Path) -> None:
    """Write lines as UTF-8, packed where the file's name ends in `.gz`; the file appears whole or not at all."""
    with _replacing(path) as handle:
        for line in lines:
            handle.write(replace_surrogates(line).encode() + b"\n")


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as raw:
            if path.name.endswith(".gz"):
                # No name and no time in the header: the same documents give the same bytes.
                with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                    yield cast(BinaryIO, packed)
            else:
                yield raw
        os.replace(partial, path)
    except OSError as error:
        raise CorpusError(f"cannot be written ({error.strerror}): choose another place", path) from None
    finally:
        with suppress(OSError):  # gone already where all went well
            partial.unlink()


def encode_name(name: str) -> str:
    """Percent-encode what would break a label's name apart: whitespace, angle brackets and the percent sign.

    >>> encode_name("100% data base")
    '100%25%20data%20base'
    """
    return "".join(quote(sign, safe="") if sign.isspace() or sign in "%<>\0" else sign for sign in name)


def on_one_line(text: str) -> str:
    r"""Turn line breaks into spaces.

    >>> on_one_line("a\r\nb")
    'a b'
    """
    return _LINE_BREAK.sub(" ", text)


def _jsonl_lines(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        value = {"id": record.id, "text": record.text, "labels": record.labels}
        yield json.dumps({key: part for key, part in value.items() if part is not None}, ensure_ascii=False)


def _delimited_lines(records: Iterable[Record], delimiter: str) -> Iterator[str]:
    header: list[str] = []
    for record in records:
        row = {"text": record.text}
        if record.labels is not None:
            row["labels"] = _cell_of_labels(record.labels)
        row["id"] = record.id or ""
        if not header:
            header = list(row)
            yield delimiter.join(header)
        if list(row) != header:
            raise CorpusError(f"document {record.line} differs from the first in having labels: give all or none")
        # Every cell is quoted, so that line breaks, delimiters and quotes in a text survive any reader.
        yield delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row.values())


def _cell_of_labels(labels: tuple[str, ...]) -> str:
    joined = "|".join(labels)
    plain = not joined.startswith("[") and not any("|" in label for label in labels)
    return joined if plain else json.dumps(labels, ensure_ascii=False)


def _fasttext_lines(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        text = on_one_line(record.text)
        if LABEL_WORD.match(text):
            message = f"the text of document {record.line} begins with {PREFIX}, which fastText takes for a label"
            raise CorpusError(f"{message}: write jsonl instead")
        yield " ".join([*(PREFIX + encode_name(label) for label in record.labels or ()), text])


def _annif_lines(records: Iterable[Record], details: Mapping[str, LabelDetail]) -> Iterator[str]:
    for record in records:
        subjects = []
        for label in record.labels or ():
            identifier = details[label].identifier if label in details else None
            subjects.append(f"<{encode_name(identifier) if identifier else 'label:' + encode_name(label)}>")
        yield on_one_line(record.text).replace("\t", " ") + "\t" + " ".join(subjects)


def _write_parquet(records: Iterable[Record], path: Path) -> None:
    pyarrow, parquet = import_pyarrow(path)
    fields = [("text", pyarrow.string()), ("labels", pyarrow.list_(pyarrow.string())), ("id", pyarrow.string())]
    schema = pyarrow.schema(fields)
    with _replacing(path) as handle, parquet.ParquetWriter(handle, schema) as writer:
        rows: list[dict[str, Any]] = []
        for record in records:
            rows.append({"text": record.text, "labels": record.labels, "id": record.id})
            if len(rows) == 1024:
                writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema=schema))
                rows = []
        writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema=schema))


WRITERS: dict[str, Callable[[Iterable[Record]], Iterator[str]]] = {
    "jsonl": _jsonl_lines,
    "csv": lambda records: _delimited_lines(records, ","),
    "tsv": lambda records: _delimited_lines(records, "\t"),
    "fasttext": _fasttext_lines,
}
