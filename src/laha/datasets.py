"""Corpora by path or by name: files, folders of parts, XMC folders, a data folder, and the built-in one.

A folder holds `train.*`, `valid.*` and `test.*` in any format, or the XMC layout (`train_texts.txt` with a text a line,
`train_labels.txt` with its labels separated by spaces, percent-encoded as in the fastText format), and optionally
`labels.tsv`: label, identifier, and other names separated by `|`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from laha import pydocs
from laha.corpus import Corpus, LabelDetail, Parts, Record
from laha.errors import CorpusError, nearest, nearest_file
from laha.feedback import ENDING, feedback_records
from laha.formats import (
    decode_name,
    format_of_ending,
    numbered_lines,
    open_binary,
    read_records,
    without_line_end,
)
from laha.writers import encode_name, on_one_line, write_lines, write_records

PARTS = ("train", "valid", "test")
SCHEME = "builtin:"
BUILTIN = ("pydocs",)
ENDING_IN_FOLDER = {
    "jsonl": ".jsonl.gz",
    "csv": ".csv.gz",
    "tsv": ".tsv.gz",
    "fasttext": ".ft.gz",
    "annif": ".tsv.gz",
    "parquet": ".parquet",
}


# Names


def open_parts(corpus: str | Path, data: Path | None = None, wanted: Iterable[str] = PARTS) -> Parts:
    """Read the parts wanted of a corpus given by path, by its name in the data folder, or as `builtin:NAME`."""
    if str(corpus).startswith(SCHEME):
        return _open_builtin(str(corpus).removeprefix(SCHEME), wanted)
    return read_parts(find_corpus(corpus, data), wanted)


def open_corpus(corpus: str | Path, part: str, data: Path | None = None) -> Corpus:
    """Read one part of a corpus; a corpus that is a single file is taken for any part."""
    if str(corpus).startswith(SCHEME):
        return open_parts(corpus, data, [part]).present()[part]
    return read_corpus(find_corpus(corpus, data), part)


def find_corpus(corpus: str | Path, data: Path | None = None) -> Path:
    """Return the path of a corpus: its own, or that of its name in the data folder (else `LAHA_DATA`)."""
    path = Path(corpus)
    if path.exists():
        return path
    given = data or os.environ.get("LAHA_DATA")
    if not given:
        hint = f"{nearest_file(path)}; a corpus can also be named by --data DIR or LAHA_DATA, or be builtin:pydocs"
        raise CorpusError(f"no such file or folder; {hint}", path)
    named = Path(given) / corpus
    if named.exists():
        return named
    raise CorpusError(f"no such file or folder, nor is {named}; {nearest_file(named)}", path)


def content_sha256(corpus: str | Path, data: Path | None = None) -> str:
    """Return the sum of a corpus's content, found as `open_parts` finds it: of its files, or of Python's documentation.

    Whether a file is compressed does not count. A prepared folder is known by its manifest, which holds all other sums.
    """
    if str(corpus).startswith(SCHEME):
        return hashlib.sha256(pydocs.cache_key().encode()).hexdigest()
    path = find_corpus(corpus, data)
    manifest = path / "manifest.json"
    files = [path] if path.is_file() else [manifest] if manifest.is_file() else _files_of_folder(path)
    digest = hashlib.sha256()
    for file in files:
        with open_binary(file) as handle:
            digest.update(file.name.removesuffix(".gz").encode() + hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder for what can be made again: `LAHA_CACHE`, else `laha` in the user's cache folder."""
    if given := os.environ.get("LAHA_CACHE"):
        return Path(given)
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "laha"
    try:
        return Path.home() / ".cache" / "laha"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / "laha"


def _open_builtin(name: str, wanted: Iterable[str]) -> Parts:
    if name not in BUILTIN:
        raise CorpusError(f"no built-in corpus is called '{name}': {nearest(name, list(BUILTIN))}", SCHEME + name)
    wanted = _checked_wanted(wanted)
    folder = cache_folder() / pydocs.cache_key()
    try:
        parts = read_folder(folder, wanted)
    except CorpusError:  # not cached yet, or damaged: both are mended by making it again
        parts = pydocs.build_parts()
        _keep(parts, folder)
    corpora = {part: replace(corpus, name=name) for part, corpus in parts.present().items() if part in wanted}
    return _parts(corpora, name)


def _keep(parts: Parts, folder: Path) -> None:
    """Cache a corpus if the disk allows; whoever reads the folder meanwhile sees all of it or none."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        convert(parts, partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    except (CorpusError, OSError):
        shutil.rmtree(partial, ignore_errors=True)


# Files and folders


def read_parts(path: str | Path, wanted: Iterable[str] = PARTS) -> Parts:
    """Read the parts wanted of a folder, or a single file as the train part."""
    path = Path(path)
    if path.is_dir():
        return read_folder(path, wanted)
    corpus = _read_file(path)
    return Parts(corpus, None, None, corpus.name)


def read_corpus(path: str | Path, part: str) -> Corpus:
    """Read one part of a folder, or a single file whatever the part."""
    path = Path(path)
    if not path.is_dir():
        return _read_file(path)
    corpus = read_folder(path, [part]).present().get(part)
    if corpus is None:
        present = ", ".join(name for name in PARTS if _files_of_part(path, name))
        raise CorpusError(f"the folder has no {part} part, only {present}: add a file {part}.jsonl", path)
    return corpus


def read_folder(path: str | Path, wanted: Iterable[str] = PARTS) -> Parts:
    """Read the parts wanted of a folder, and nothing of the others."""
    path = Path(path)
    wanted = _checked_wanted(wanted)
    files = {part: _files_of_part(path, part) for part in PARTS}
    if not any(files.values()):
        raise CorpusError("the folder has no train, valid or test part: add a file such as train.jsonl", path)
    for part, found in files.items():
        if len(found) > 1:
            names = " and ".join(file.name for file in found)
            raise CorpusError(f"two files for the {part} part, {names}: keep one of them", path)
    details = read_label_details(path)
    name = path.resolve().name
    corpora = {}
    for part in wanted:
        for file in files[part]:
            records = _read_xmc(file) if _is_xmc(file) else read_records(file)
            corpora[part] = Corpus.from_records(records, name, file, details)
    return _parts(corpora, name)


def read_label_details(folder: Path) -> dict[str, LabelDetail]:
    """Read what a folder's `labels.tsv` knows of its labels; without that file, nothing."""
    details: dict[str, LabelDetail] = {}
    for path in (folder / "labels.tsv", folder / "labels.tsv.gz"):
        if not path.exists():
            continue
        with open_binary(path) as handle:
            for number, line in numbered_lines(handle, path):
                label, *rest = [cell.strip() for cell in without_line_end(line).split("\t")]
                if number == 1 and label.lower() == "label" and rest[:1] == ["identifier"]:
                    continue
                if label:
                    others = [name.strip() for cell in rest[1:] for name in cell.split("|")]
                    details[label] = LabelDetail((rest or [""])[0] or None, tuple(name for name in others if name))
                elif any(rest):
                    raise CorpusError("the first column, the label, is empty: fill it or remove the line", path, number)
    return details


def _parts(corpora: dict[str, Corpus], name: str) -> Parts:
    return Parts(corpora.get("train"), corpora.get("valid"), corpora.get("test"), name)


def _checked_wanted(wanted: Iterable[str]) -> list[str]:
    wanted = list(wanted)
    for part in wanted:
        if part not in PARTS:
            raise CorpusError(f"a corpus has no part '{part}': {nearest(part, list(PARTS))}")
    return wanted


def _read_file(path: Path) -> Corpus:
    stem = Path(path.name.removesuffix(".gz")).stem
    records = feedback_records(path) if path.suffix == ENDING else read_records(path)
    return Corpus.from_records(records, stem, path)


def _files_of_part(folder: Path, part: str) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [path for path in folder.glob(f"{part}.*") if path.name.split(".")[0] == part and format_of_ending(path)]
    found += [path for path in folder.glob(f"{part}_texts.txt*") if _is_xmc(path)]
    return sorted(found)


def _files_of_folder(folder: Path) -> list[Path]:
    files = [file for part in PARTS for file in _files_of_part(folder, part)]
    files += [file.with_name(file.name.replace("_texts.txt", "_labels.txt")) for file in files if _is_xmc(file)]
    return [file for file in [*files, *sorted(folder.glob("labels.tsv*"))] if file.is_file()]


def _is_xmc(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith("_texts.txt")


def _read_xmc(texts_path: Path) -> Iterator[Record]:
    labels_path = texts_path.with_name(texts_path.name.replace("_texts.txt", "_labels.txt"))
    with open_binary(texts_path) as texts, open_binary(labels_path) as labels:
        lines = zip_longest(numbered_lines(texts, texts_path), numbered_lines(labels, labels_path))
        counts = (0, 0)
        for text, names in lines:
            if text is None or names is None:
                # The rest is read only to tell both counts.
                longest = max(number for row in [(text, names), *lines] for number, _ in filter(None, row))
                counts = (counts[0], longest) if text is None else (longest, counts[1])
                message = f"{counts[1]} lines of labels for the {counts[0]} texts in {texts_path.name}"
                raise CorpusError(f"{message}: give each text one line", labels_path, min(counts) + 1)
            number = text[0]
            counts = (number, number)
            yield Record(without_line_end(text[1]), tuple(map(decode_name, names[1].split())), None, number)
    if counts == (0, 0):
        raise CorpusError("the file holds no documents: check that it was written in full", texts_path)


# Conversion


def convert(source: Parts | Corpus, destination: str | Path, format: str | None = None) -> None:
    """Write a corpus: one part to a file with a known ending, else its parts and label details to a folder.

    `format` is one that `write_records` knows, by default the file's ending's and in a folder jsonl; or `xmc`, which
    writes a folder of `train_texts.txt` and `train_labels.txt`, line breaks in texts becoming spaces.
    """
    destination = Path(destination)
    corpora = source.present() if isinstance(source, Parts) else {"train": source}
    if format != "xmc" and format_of_ending(destination):
        if len(corpora) != 1:
            message = f"a file holds one part, but there are {', '.join(corpora) or 'none'}"
            raise CorpusError(f"{message}: choose one, or give a folder", destination)
        corpus = next(iter(corpora.values()))
        return write_records(corpus.records(), destination, format, corpus.label_details)
    details: dict[str, LabelDetail] = {}
    for part, corpus in corpora.items():
        details.update(corpus.label_details)
        if format == "xmc":
            write_lines((on_one_line(text) for text in corpus.texts), destination / f"{part}_texts.txt")
            labels = (" ".join(map(encode_name, record.labels or ())) for record in corpus.records())
            write_lines(labels, destination / f"{part}_labels.txt")
        else:
            file = destination / (part + ENDING_IN_FOLDER.get(format or "jsonl", ""))
            write_records(corpus.records(), file, format or "jsonl", corpus.label_details)
    if details:
        write_lines(map(_detail_line, details, details.values()), destination / "labels.tsv.gz")


def _detail_line(label: str, detail: LabelDetail) -> str:
    cells = (label, detail.identifier or "", "|".join(detail.other_names))
    return "\t".join(" ".join(cell.split()) for cell in cells)
