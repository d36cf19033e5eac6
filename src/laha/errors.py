"""What can go wrong, in few kinds; every message says what is wrong, where, and what to do."""

from __future__ import annotations

import textwrap
from difflib import get_close_matches
from pathlib import Path


class LahaError(Exception):
    """The parent of every error this package raises on purpose; the command line prints it as one line."""


class CorpusError(LahaError):
    """A corpus that cannot be read or used.

    >>> print(CorpusError("broken JSON: mend or remove the line", path="train.jsonl", line=3))
    train.jsonl, line 3: broken JSON: mend or remove the line
    """

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None):
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(where + message)
        self.path = path
        self.line = line


class ConfigurationError(LahaError):
    """A setting that does not exist or a value that does not fit it."""


class ModelError(LahaError):
    """A model folder, checkpoint or prepared folder that is missing, damaged, or of another kind than expected."""


class Interrupted(LahaError):
    """Work stopped by the user; what was done is saved and can be resumed."""


def nearest(word: str, known: list[str]) -> str:
    """Return a hint that names the known word nearest to an unknown one, or all of them.

    >>> nearest("unit", ["units", "batch"])
    "did you mean 'units'?"
    >>> nearest("zzz", ["units", "batch"])
    'known: batch, units'
    """
    close = get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(sorted(known))


def nearest_file(path: Path) -> str:
    """Return a hint that names the file or folder nearest to one that does not exist."""
    if not path.parent.is_dir():
        return f"neither is there a folder {path.parent}"
    names = [member.name for member in path.parent.iterdir() if not member.name.startswith(".")]
    return textwrap.shorten(nearest(path.name, names), 200, placeholder=" …") if names else "its folder is empty"
