"""How long work says how far it is: a callback that the command line draws as a bar and everyone else may ignore."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with a task's name, the fraction done (0 to 1) and a few figures worth seeing."""

    def __call__(self, task: str, done: float, note: str = "") -> None:
        """Show how far a task is."""


def silent(task: str, done: float, note: str = "") -> None:
    """Show nothing."""
