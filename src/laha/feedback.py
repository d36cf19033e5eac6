"""Feedback: what people decided on labels of texts, in SQLite; kept by the server, learned from by training."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from laha.corpus import Corpus, Parts, Record, replace_surrogates
from laha.errors import CorpusError

ENDING = ".sqlite"
# Added: by a person, where the model had not suggested it. Withdrawn: an earlier decision no longer stands.
DECISIONS = ("accepted", "rejected", "added", "withdrawn")
FOR = ("accepted", "added")
FORMAT = 1  # of the tables below
MARK = 0x4C414841  # "LAHA", by which SQLite knows whose file it is

_TABLES = """
CREATE TABLE texts (sha256 TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID;
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL REFERENCES texts,
    label TEXT NOT NULL,
    decision TEXT NOT NULL,
    who TEXT,
    at TEXT NOT NULL
);
CREATE INDEX decisions_of_text ON decisions (sha256, number);
"""
_ROWS = "SELECT number, sha256, text, label, decision, who, at FROM decisions JOIN texts USING (sha256)"


def text_sha256(text: str) -> str:
    """Return the hash by which feedback knows a text.

    >>> text_sha256("a text")[:12]
    '734194ede5b0'
    """
    return hashlib.sha256(replace_surrogates(text).encode()).hexdigest()


class FeedbackStore:
    """A file of decisions; one that `add` has returned from is on disk, whatever happens to the process."""

    def __init__(self, path: Path, keep_texts: bool = True):
        self.path, self.keep_texts = path, keep_texts
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            self._begin()
        except (sqlite3.Error, OSError) as error:
            raise CorpusError(f"cannot keep feedback there ({error}): name another file", path) from error

    def _begin(self) -> None:
        if _is_empty(self._connection):
            self._connection.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA application_id={MARK}; PRAGMA user_version={FORMAT}; BEGIN; "
                f"{_TABLES} COMMIT;"
            )
        _check(self._connection, self.path)
        self._connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;")

    def add(self, text: str, decisions: list[tuple[str, str]], who: str | None = None) -> str:
        """Keep decisions (label, decision) on a text, all or none; return the text's hash once they are on disk."""
        text = replace_surrogates(text)
        sha256, at = text_sha256(text), datetime.now(UTC).isoformat(timespec="milliseconds")
        rows = [(sha256, label, decision, who, at) for label, decision in decisions]
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(
                "INSERT INTO texts VALUES (?, ?) ON CONFLICT DO UPDATE SET text = coalesce(text, excluded.text)",
                (sha256, text if self.keep_texts else None),
            )
            self._connection.executemany(
                "INSERT INTO decisions (sha256, label, decision, who, at) VALUES (?, ?, ?, ?, ?)", rows
            )
        return sha256

    def standing(self, sha256: str) -> dict[str, str]:
        """Return the decisions that stand on a text, by label: the latest of each."""
        query = "SELECT label, decision FROM decisions WHERE sha256 = ? ORDER BY number"
        with self._lock:
            rows = self._connection.execute(query, (sha256,)).fetchall()
        return _standing(rows)

    def count(self) -> int:
        """Return how many decisions were ever made."""
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM decisions").fetchone()[0])

    def rows(self, page: int = 500) -> Iterator[dict[str, Any]]:
        """Yield every decision in the order in which they were made, holding a page of them at a time."""
        last = 0
        while True:
            with self._lock:
                query = f"{_ROWS} WHERE number > ? ORDER BY number LIMIT ?"
                found = self._connection.execute(query, (last, page)).fetchall()
            if not found:
                return
            for _, *row in found:
                yield dict(zip(("sha256", "text", "label", "decision", "who", "at"), row, strict=True))
            last = found[-1][0]

    def close(self) -> None:
        """Close the file; SQLite then folds its write-ahead log into it."""
        with self._lock:
            self._connection.close()


@dataclass
class Decided:
    """What stands on one text: its labels for and against. The text is None where only its hash was kept."""

    sha256: str
    text: str | None
    decisions: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> list[str]:
        """The labels that people gave the text."""
        return [label for label, decision in self.decisions.items() if decision in FOR]


def read_feedback(path: str | Path) -> list[Decided]:
    """Read what stands on each text, in the order in which the texts first came; the file may be in use."""
    path = Path(path)
    if not path.is_file():
        raise CorpusError("no such feedback file: 'laha serve' makes one beside the model", path)
    texts: dict[str, Decided] = {}
    rows: dict[str, list[tuple[str, str]]] = {}
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10)) as connection:
            _check(connection, path)
            for _, sha256, text, label, decision, *_ in connection.execute(f"{_ROWS} ORDER BY number"):
                texts.setdefault(sha256, Decided(sha256, text))
                rows.setdefault(sha256, []).append((label, decision))
    except sqlite3.Error as error:
        raise CorpusError(f"not a sound feedback file ({error}): name one that 'laha serve' wrote", path) from error
    for sha256, decided in texts.items():
        decided.decisions = _standing(rows[sha256])
    return list(texts.values())


def feedback_records(path: str | Path) -> Iterator[Record]:
    """Yield the texts that people gave labels, as documents; what was only rejected says nothing of what is right."""
    for number, decided in enumerate(read_feedback(path), start=1):
        if decided.text is not None and decided.labels:
            yield Record(decided.text, tuple(decided.labels), decided.sha256[:16], number)


def learn_from_feedback(parts: Parts, path: str | Path) -> tuple[Parts, dict[str, int]]:
    """Put feedback into the train part; return the parts and what was done with how many texts.

    A training document whose text was decided on gains the labels people gave it and loses those they rejected. Any
    other text with labels becomes a training document, unless it is one of the validation or test part.
    """
    train = parts.train_part()
    decided = {entry.sha256: entry for entry in read_feedback(path)}
    held_out = {text_sha256(text) for name, part in parts.present().items() if name != "train" for text in part.texts}
    counts = {"changed": 0, "added": 0, "held_out": 0, "without_use": 0}
    records = []
    for record in train.records():
        entry = decided.pop(text_sha256(record.text), None)
        counts["changed"] += entry is not None
        records.append(record if entry is None else replace(record, labels=_decided_labels(record.labels or (), entry)))
    for entry in decided.values():
        if entry.sha256 in held_out:
            counts["held_out"] += 1
        elif entry.text is None or not entry.labels:
            counts["without_use"] += 1
        else:
            counts["added"] += 1
            records.append(Record(entry.text, tuple(entry.labels), entry.sha256[:16], len(records) + 1))
    learned = Corpus.from_records(records, train.name, None, train.label_details)
    return replace(parts, train=learned), counts


def _decided_labels(labels: tuple[str, ...], decided: Decided) -> tuple[str, ...]:
    kept = [label for label in labels if decided.decisions.get(label) != "rejected"]
    return tuple(dict.fromkeys([*kept, *decided.labels]))


def _standing(rows: list[tuple[str, str]]) -> dict[str, str]:
    latest: dict[str, str] = {}
    for label, decision in rows:
        latest.pop(label, None)
        if decision != "withdrawn":
            latest[label] = decision
    return latest


def _is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone() != (MARK,):
        raise CorpusError("not a feedback file: name one that 'laha serve' wrote", path)
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > FORMAT:
        raise CorpusError(f"feedback of format {version}, newer than this laha reads ({FORMAT}): upgrade laha", path)
