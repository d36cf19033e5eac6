"""The JSON-lines log of every training step's figures, and TensorBoard beside it where it is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from laha.errors import LahaError

BUFFERED = 50  # steps: reading a loss off the GPU waits for it, so it is done rarely


class TrainingLog:
    """Collects figures and writes them in order; nothing is written without a path."""

    def __init__(self, path: Path | None, track: Path | None = None):
        self.path = path
        self._rows: list[dict[str, Any]] = []
        self._loss: float | None = None
        self._board = None if track is None else _open_board(track)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        if self._board is not None:
            self._board.close()

    def step(self, epoch: int, step: int, seconds: float, figures: dict[str, Tensor | float]) -> None:
        """Note one step."""
        self._rows.append({"epoch": epoch, "step": step, "seconds": seconds, **figures})
        if len(self._rows) >= BUFFERED:
            self.flush()

    def validation(self, epoch: int, seconds: float, figures: dict[str, float]) -> None:
        """Note one validation."""
        self._rows.append({"epoch": epoch, "seconds": seconds, **{f"valid {k}": v for k, v in figures.items()}})
        self.flush()

    def recent_loss(self) -> float | None:
        """Return the last loss written."""
        return self._loss

    def flush(self) -> int:
        """Write what is collected; return the log's size in bytes, for a checkpoint to come back to."""
        rows = [{key: _number(value) for key, value in row.items()} for row in self._rows]
        self._rows = []
        for row in rows:
            self._loss = row.get("loss", self._loss)
        if self._board is not None:
            self._board.add(rows)
        if self.path is None:
            return 0
        with self.path.open("a", encoding="utf-8") as handle:
            handle.writelines(json.dumps(row) + "\n" for row in rows)
            return handle.tell()

    def truncate(self, size: int) -> None:
        """Forget what was logged after a checkpoint."""
        if self.path is not None and self.path.exists():
            with self.path.open("r+b") as handle:
                handle.truncate(size)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


class _Board:
    def __init__(self, writer: Any):
        self.writer = writer
        self.steps = 0

    def add(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self.steps += "loss" in row
            for key in row.keys() - {"epoch", "step", "seconds"}:
                self.writer.add_scalar(key, row[key], self.steps)

    def close(self) -> None:
        self.writer.close()


def _open_board(folder: Path) -> _Board:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise LahaError("TensorBoard is not installed: 'pip install laha[track]'") from error
    return _Board(SummaryWriter(folder))
