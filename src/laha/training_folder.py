"""Train a model into a folder: work in MODEL.training beside it, resume from there, and leave only the model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laha.corpus import Parts
from laha.errors import LahaError
from laha.estimator import Estimator
from laha.prepared import Prepared
from laha.progress import Progress, silent
from laha.storage import atomic_file, check_replaceable


def work_folder(out: Path) -> Path:
    """Return where the training of a model keeps its checkpoint: beside the model, never inside it."""
    return out.with_name(out.name + ".training")


def holds_work(work: Path) -> bool:
    """Say whether a training has left there what a resumed one goes on from."""
    return any((work / name).exists() for name in ("prepared", "checkpoint.safetensors"))


def train_to_folder(
    model: Estimator,
    corpus: Prepared | Callable[[], Parts],
    out: Path,
    resume: bool = False,
    facts: dict[str, Any] | None = None,
    progress: Progress = silent,
    track: Path | None = None,
) -> None:
    """Fit the model and save it at `out`; `facts` join what the manifest says of training.

    The preparation of a corpus is kept too, so that a resumed run does not repeat it.
    """
    check_replaceable(out)
    work = work_folder(out)
    _claim(work, model, resume)
    log = work / "log.jsonl"

    def keep() -> None:
        model.trained_.update(facts or {})
        model.save(out, log=log)

    try:
        if model.resumable:
            how: dict[str, Any] = {"folder": work, "resume": resume, "progress": progress, "track": track, "keep": keep}
            model.fit(corpus, **how)  # type: ignore[arg-type]
        else:
            model.fit(corpus if isinstance(corpus, Prepared) else corpus())
        keep()
    finally:
        if not holds_work(work):  # nothing that a resumed run could go on from
            shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


def _claim(work: Path, model: Estimator, resume: bool) -> None:
    """Make the work folder this run's own, or check that the run lying there is this one."""
    mine = {"model": model.model_name, "settings": {k: v for k, v in model.get_params().items() if v is not None}}
    path = work / "run.json"
    if path.is_file() and holds_work(work):  # a run that failed before either has left nothing worth keeping
        if not resume:
            raise LahaError(f"an unfinished training lies in {work}: continue it with --resume, or remove that folder")
        lying = json.loads(path.read_text(encoding="utf-8"))
        if lying != mine:
            raise LahaError(
                f"the unfinished training in {work} has other settings ({json.dumps(lying)}): give the same, or "
                "remove that folder"
            )
        return
    work.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(mine), encoding="utf-8")
