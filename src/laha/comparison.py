"""Several models, one corpus, one table: each trained in a process of its own, so that its memory is its own.

A model that is finished is not trained again, and one that fails is reported while the others go on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from laha.comparison_report import write_report
from laha.configuration import known_settings, parse_settings
from laha.corpus import Corpus
from laha.datasets import open_corpus, open_parts
from laha.errors import ConfigurationError, Interrupted, LahaError, nearest
from laha.evaluation import evaluate
from laha.prepared import Prepared, open_prepared
from laha.progress import Progress, silent
from laha.registry import create, estimator_class, load
from laha.results import record, resident_peak
from laha.storage import atomic_file, is_folder_of, read_manifest
from laha.training_folder import train_to_folder, work_folder
from laha.vocabulary import WordIds

Work = Callable[["Job", Progress], dict[str, Any]]
PATIENCE = 10.0  # seconds in which a training that Ctrl-C interrupted too is over
GRACE = 60.0  # seconds that any other gets to end its step and save its checkpoint
SINGLE = 100  # documents tagged one by one: enough for a mean, and seconds even for slow models


@dataclass(frozen=True)
class Job:
    """One model of a comparison, and all that its process needs to know."""

    name: str
    corpus: str
    settings: Mapping[str, Any]
    out: Path
    data: Path | None
    device: str
    shared: bool
    command: str
    corpus_sha256: str = ""

    @property
    def model(self) -> Path:
        """The folder of the trained model."""
        return self.out / "models" / self.name.replace(":", "-")

    @property
    def row(self) -> Path:
        """The file that says the model is finished, with its row of the table."""
        return self.out / "rows" / f"{self.name.replace(':', '-')}.json"

    @property
    def request(self) -> dict[str, Any]:
        """What a finished row must have been asked for to be this job's."""
        return {
            "model": self.name,
            "corpus": self.corpus,
            "corpus_sha256": self.corpus_sha256,
            "settings": dict(self.settings),
            "device": self.device,
        }


def compare(jobs: Sequence[Job], progress: Progress = silent, work: Work | None = None) -> list[dict[str, Any]]:
    """Train and test every model that is not finished; return a row a model, a failed one's saying why."""
    rows = []
    for job in jobs:
        row = finished_row(job)
        if row is None:
            row = run_apart(job, progress, work or train_and_test)
        else:
            progress(job.name, 1.0, "done before")
        rows.append(row)
        write_report(rows, job.corpus, job.out)  # after each model: a stopped comparison leaves what it has
    return rows


def plan(
    corpus: str,
    models: Sequence[str],
    out: Path,
    pairs: Sequence[str] = (),
    data: Path | None = None,
    device: str = "auto",
    seed: int = 0,
    shared: bool = False,
    command: str = "",
    corpus_sha256: str = "",
) -> list[Job]:
    """Turn names and `MODEL.key=value` settings into jobs; a mistake is told before anything is trained."""
    names = list(dict.fromkeys(models))
    if not names:
        raise ConfigurationError("no model is named: give --models popular,parabel,laha, or others")
    own: dict[str, list[str]] = {name: [] for name in names}
    for pair in pairs:
        name = pair.partition("=")[0].rpartition(".")[0]
        if name not in own:
            raise ConfigurationError(f"--set {pair}: write MODEL.key=value; {nearest(name, names)}")
        own[name].append(pair.removeprefix(f"{name}."))
    jobs = []
    for name in names:
        kind = estimator_class(name).Configuration
        given = {key: value for key, value in {"seed": seed, "device": device}.items() if key in known_settings(kind)}
        settings = given | parse_settings(kind, own[name])
        _ = create(name, **settings).configuration
        jobs.append(Job(name, corpus, settings, out, data, device, shared, command, corpus_sha256))
    return jobs


def finished_row(job: Job) -> dict[str, Any] | None:
    """Return the row of a model that was trained and tested before with the same settings on the same documents."""
    try:
        row = json.loads(job.row.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return dict(row) if row.get("request") == job.request else None


def run_apart(job: Job, progress: Progress, work: Work) -> dict[str, Any]:
    """Do a job in a fresh process; whatever kills it becomes a row that says so."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(work, job, sender))
    process.start()
    sender.close()
    outcome = None
    try:
        while True:
            message = receiver.recv()
            if isinstance(message, dict):
                outcome = message
            else:
                task, done, note = message
                progress(f"{job.name}: {task}", done, note)
    except EOFError:
        process.join()
    except KeyboardInterrupt as stop:
        with deaf():  # a second Ctrl-C is that process's to obey
            process.join(PATIENCE)  # it was interrupted too, and may be saving its checkpoint
            process.terminate()  # unless only this process was: now it is, and saves
            process.join(GRACE)
        process.kill()
        raise Interrupted("stopped; the same command goes on from here") from stop
    if outcome is None:
        outcome = {"failed": f"its process ended with code {process.exitcode} (out of memory?)"}
    return {"model": job.name, **outcome}


@contextmanager
def deaf() -> Iterator[None]:
    """Ignore Ctrl-C for a while."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _report(work: Work, job: Job, sender: Connection) -> None:
    last = 0.0
    threading.Thread(target=_follow_parent, daemon=True).start()

    def progress(task: str, done: float, note: str = "") -> None:
        nonlocal last
        if done >= 1 or time.monotonic() - last > 0.1:  # a pipe is slower than the loops that report
            last = time.monotonic()
            sender.send((task, done, note))

    try:
        sender.send(work(job, progress))
    except LahaError as error:
        sender.send({"failed": str(error)})
    except KeyboardInterrupt:  # the parent was interrupted as well, and says so
        return
    except Exception as error:  # one model's defect must not take the others down
        sender.send({"failed": f"{type(error).__name__}: {error}"})


def _follow_parent() -> None:
    """End this process when the one that began it is gone, however it went: nobody waits for the result any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def train_and_test(job: Job, progress: Progress) -> dict[str, Any]:
    """Train a model into its folder, unless it lies there, measure it on the test part, and write its files."""
    prepared = open_prepared(job.corpus, job.data)
    measured = {} if _is_trained(job) else _train(job, prepared, progress)
    test: Any = prepared if prepared is not None else open_corpus(job.corpus, "test", job.data)
    model = load(job.model, job.device)
    report = evaluate(model, test, progress=progress)
    sha256 = test.sha256() if prepared is None else prepared.part("test").sha256
    written = record(job.model, report, test.name, sha256, "test", "", job.out / "results")
    result = json.loads(written.read_text(encoding="utf-8"))
    # What a model says of its own training comes first for memory, which may be a GPU's, and last for time, which may
    # leave out the preparation.
    result["peak_memory_bytes"] = result["peak_memory_bytes"] or measured.get("peak_memory_bytes")
    result["train_seconds"] = measured.get("train_seconds", result["train_seconds"])
    single = milliseconds_single(model, test)
    row: dict[str, Any] = {**result, "model": job.name, "request": job.request, "milliseconds_single": single}
    with atomic_file(job.row) as temporary:
        temporary.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return row


def _train(job: Job, prepared: Prepared | None, progress: Progress) -> dict[str, Any]:
    """Train the model into its folder; return the time from reading the corpus to the saved model, and the memory."""
    resume = (work_folder(job.model) / "run.json").is_file()
    began = time.perf_counter()
    train_to_folder(
        create(job.name, **job.settings),
        prepared or (lambda: open_parts(job.corpus, job.data, ("train", "valid"))),
        job.model,
        resume,
        {"command": job.command, "request": job.request} | ({"seconds": None} if job.shared else {}),
        progress,
    )
    # Half of a resumed training was not seen, and beside other work its time says nothing.
    seconds = None if resume or job.shared else time.perf_counter() - began
    return {"train_seconds": seconds, "peak_memory_bytes": resident_peak()}


def _is_trained(job: Job) -> bool:
    """Say whether the model lies there, trained as asked: only its test was stopped or failed."""
    if not is_folder_of(job.model, "model"):
        return False
    training = read_manifest(job.model, "model", check=False)["training"]
    return bool(training.get("request") == job.request)


def milliseconds_single(model: Any, test: Corpus | Prepared) -> float:
    """Return the mean time of tagging a document alone."""
    documents: list[Any]
    if isinstance(test, Prepared):
        words = test.part("test").words
        documents = [WordIds(words[row], np.array([0, len(words[row])])) for row in range(min(SINGLE, len(words)))]
    else:
        documents = [[text] for text in test.texts[:SINGLE]]
    model.predict(documents[0])  # the first pays for what is loaded on use
    began = time.perf_counter()
    for document in documents:
        model.predict(document)
    return 1000 * (time.perf_counter() - began) / len(documents)
