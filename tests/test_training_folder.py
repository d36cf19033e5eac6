"""Training into a folder: what is kept of a run that stops, and what a second run makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import SMALL

from laha.corpus import Parts
from laha.errors import CorpusError, LahaError, ModelError
from laha.registry import create
from laha.tagger import LAHA
from laha.training_folder import train_to_folder, work_folder

QUICK = {"preset": "paper", **SMALL, "epochs": 1}


def fail() -> Parts:
    raise CorpusError("unreadable")


def stop_in_training(task: str, done: float, note: str = "") -> None:
    if task == "training":
        raise KeyboardInterrupt


def test_a_run_that_failed_before_it_began_leaves_no_obstacle(parts: Parts, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(CorpusError, match="unreadable"):
        train_to_folder(LAHA(**QUICK), fail, out)
    train_to_folder(LAHA(**{**QUICK, "units": 5}), lambda: parts, out)
    assert out.is_dir()


def test_a_resumed_run_does_not_prepare_again(parts: Parts, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train_to_folder(LAHA(**QUICK), lambda: parts, out, progress=stop_in_training)
    with pytest.raises(LahaError, match="continue it with --resume"):
        train_to_folder(LAHA(**QUICK), fail, out)
    with pytest.raises(LahaError, match="has other settings"):
        train_to_folder(LAHA(**{**QUICK, "units": 5}), fail, out, resume=True)
    train_to_folder(LAHA(**QUICK), fail, out, resume=True)  # the corpus is not read again
    assert not work_folder(out).exists()


def test_an_interrupted_classical_model_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt() -> Parts:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_to_folder(create("popular"), interrupt, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_resume_with_nothing_to_resume_starts_from_the_beginning(parts: Parts, tmp_path: Path) -> None:
    train_to_folder(LAHA(**QUICK), lambda: parts, tmp_path / "model", resume=True)
    assert (tmp_path / "model" / "weights.safetensors").is_file()


def test_an_older_model_is_replaced_and_anything_else_is_not(parts: Parts, tmp_path: Path) -> None:
    out = tmp_path / "model"
    for units in (4, 5):
        train_to_folder(LAHA(**{**QUICK, "units": units}), lambda: parts, out)
    assert LAHA.load(out).units == 5
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(ModelError, match="will not be overwritten"):
        train_to_folder(LAHA(**QUICK), lambda: parts, tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").read_text() == "years of work"
