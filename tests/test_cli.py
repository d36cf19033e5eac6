"""The command line: each verb, each exit code, and that nothing is lost when it is stopped."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.conftest import PAPER, SMALL

from laha import cli
from laha.corpus import Parts
from laha.datasets import convert
from laha.prepared import Prepared
from laha.registry import estimator_class
from laha.tagger import LAHA

SETTINGS = [item for key, value in SMALL.items() if key != "device" for item in ("--set", f"{key}={value}")]


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Call the program in this process, as the shell would."""

    def call(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["laha", *map(str, arguments)])
        capfd.readouterr()
        try:
            cli.main()
            code: Any = 0
        except SystemExit as stop:
            code = stop.code or 0
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="module")
def corpus(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "topics"
    convert(parts, folder)
    return folder


@pytest.fixture(scope="module")
def model(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model"
    LAHA(**PAPER).fit(prepared).save(path)
    return path


def test_train_evaluate_tag_explain_info(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    trained = run("train", corpus, "--out", out, "--seed", 3, *SETTINGS)
    assert trained.code == 0, trained.err
    assert trained.out == ""
    assert not (tmp_path / "model.training").exists()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["configuration"]["seed"] == 3
    assert manifest["training"]["command"].startswith("laha train ")
    assert (out / "training.jsonl").read_text().count("\n") > 10

    metrics = run("evaluate", out, corpus, "--json", "--record", tmp_path / "results").json()
    assert metrics["P@1"] == metrics["nDCG@1"]
    assert metrics["documents"] == 60
    result = json.loads((tmp_path / "results" / "topics" / "laha-best-3.json").read_text())
    assert result["metrics"] == metrics
    assert result["split"] == "test"

    table = run("evaluate", out, corpus, "--intervals").out
    assert "95 % interval" in table
    assert "F<=5" in table
    info = run("info", out).out
    assert "laha-best" in info
    assert "validation nDCG@5" in info


def test_a_prepared_folder_trains_the_same_model(run: Run, corpus: Path, tmp_path: Path) -> None:
    preparation = ["min_count=1", "word_dimensions=12", "label_dimensions=6", "walks_per_label=2", "walk_length=5"]
    pairs = [item for pair in [*preparation, "word_epochs=2"] for item in ("--set", pair)]
    assert run("prepare", corpus, "--out", tmp_path / "prepared", *pairs).code == 0
    assert run("train", tmp_path / "prepared", "--out", tmp_path / "one", *SETTINGS).code == 0
    assert run("train", corpus, "--out", tmp_path / "two", *SETTINGS).code == 0
    files = [tmp_path / place / "weights.safetensors" for place in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    evaluated = [run("evaluate", tmp_path / "one", place, "--json").json() for place in (corpus, tmp_path / "prepared")]
    assert evaluated[0] == evaluated[1]
    refused = run("train", tmp_path / "prepared", "--out", tmp_path / "three", "--valid", corpus)
    assert refused.code == 1
    assert "leave out --valid" in refused.err


def test_tag_reads_json_lines_text_files_and_stdin(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"id": "x1", "text": "apple"}\n{"text": "owl"}\n')
    rows = [json.loads(line) for line in run("tag", model, lines, "--top", 2).out.splitlines()]
    assert [row["id"] for row in rows] == ["x1", 2]
    assert all(len(row["labels"]) == 2 for row in rows)
    assert rows[0]["labels"][0]["score"] >= rows[0]["labels"][1]["score"]

    plain = tmp_path / "in"
    plain.write_text("apple\n\nowl\n")
    assert [json.loads(line)["id"] for line in run("tag", model, plain).out.splitlines()] == [1, 2, 3]
    assert all(not json.loads(line)["labels"] for line in run("tag", model, plain, "--min-score", 1).out.splitlines())

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b'{"text": "apple"}\n'))))  # type: ignore[arg-type]
    assert json.loads(run("tag", model).out)["id"] == 1


def test_tag_stops_at_a_broken_line_with_its_number(run: Run, model: Path, tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"text": "apple"}\n{"text": \n')
    ran = run("tag", model, lines)
    assert ran.code == 1
    assert "in.jsonl, line 2" in ran.err
    assert "Traceback" not in ran.err


def test_explain_in_the_terminal_as_json_and_as_a_page(run: Run, model: Path, tmp_path: Path) -> None:
    document = run("explain", model, "--text", "red apple", "--label", "fruit", "--label", "bird", "--json").json()
    assert {entry["label"] for entry in document["labels"]} == {"fruit", "bird"}
    assert "words:" in run("explain", model, "--text", "red apple").out
    assert run("explain", model, "--text", "red <b>apple", "--html", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text()
    assert "<b>" not in page
    assert "&lt;" in page


def test_data_describe_and_convert(run: Run, corpus: Path, tmp_path: Path) -> None:
    figures = run("data", "describe", corpus, "--json").json()
    assert (figures["train_documents"], figures["test_documents"], figures["labels"]) == (160, 60, 6)
    assert "█" in run("data", "describe", corpus).out
    assert run("data", "convert", corpus, tmp_path / "out.csv", "--part", "test").code == 0
    assert run("data", "describe", tmp_path / "out.csv", "--json").json()["train_documents"] == 60


def test_names_in_a_data_folder(run: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("data", "describe", "topics", "--data", corpus.parent, "--json").code == 0
    monkeypatch.setenv("LAHA_DATA", str(corpus.parent))
    assert run("data", "describe", "topics", "--json").code == 0
    missing = run("data", "describe", "topicz", "--json")
    assert missing.code == 1
    assert "topics" in missing.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "{corpus}", "--out", "{tmp}/m", "--set", "epoch=3"], 1, "did you mean 'epochs'"),
        (["train", "{corpus}", "--out", "{tmp}/m", "--set", "epochs"], 1, "write key=value"),
        (["train", "{corpus}", "--out", "{tmp}/m", "--model", "lahaa"], 1, "there is no model 'lahaa'"),
        (["train", "{corpus}", "--out", "{corpus}"], 1, "will not be overwritten"),
        (["train", "{corpus}", "--out", "{tmp}/m", "--device", "tpu"], 1, "device=tpu"),
        (["train", "{tmp}/none", "--out", "{tmp}/m"], 1, "none"),
        (["evaluate", "{tmp}/none", "{corpus}"], 1, "there is no model at"),
        (["evaluate", "{corpus}", "{corpus}"], 1, "is not a model folder"),
        (["tag", "{model}", "{tmp}/none.jsonl"], 1, "none.jsonl"),
        (["explain", "{model}", "--text", "a", "--label", "fruitt"], 1, "did you mean 'fruit'"),
        (["train"], 2, "Missing"),
        (["tag", "{model}", "--top", "0"], 2, "--top"),
        (["no-such-verb"], 2, "no-such-verb"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    run: Run, corpus: Path, model: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    ran = run(*[part.format(corpus=corpus, model=model, tmp=tmp_path) for part in arguments])
    assert ran.code == code, ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    if code == 1:
        assert len(ran.err.strip().splitlines()) == 1


def test_a_corpus_without_labels_is_refused_in_training(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text('{"text": "a", "labels": ["x"]}\n{"text": "b"}\n')
    ran = run("train", path, "--out", tmp_path / "m")
    assert ran.code == 1
    assert "train.jsonl, line 2" in ran.err


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "laha", *map(str, arguments)]
    # A shell lets what it starts in the background ignore Ctrl-C, and these tests with it.
    listen = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, preexec_fn=listen, **options)


LONG = [
    *SETTINGS,
    "--set",
    "preset=paper",
    "--set",
    "epochs=60",
    "--set",
    "patience=60",
    "--set",
    "checkpoint_seconds=0",
]


@pytest.fixture(scope="module")
def prepared_folder(prepared: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prepared") / "topics"
    prepared.save(path)
    return path


@pytest.fixture(scope="module")
def uninterrupted(prepared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("whole") / "model"
    process = start("train", prepared_folder, "--out", out, *LONG)
    assert process.communicate()[1] is not None
    assert process.returncode == 0
    return (out / "weights.safetensors").read_bytes()


def stop_training(prepared_folder: Path, out: Path, number: int, delay: float) -> tuple[int, bytes]:
    process = start("train", prepared_folder, "--out", out, *LONG)
    checkpoint = out.with_name(out.name + ".training") / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(number)
    error = process.communicate()[1]
    return process.returncode, error


def test_killed_at_a_random_step_and_resumed_it_ends_with_the_same_bytes(
    prepared_folder: Path, uninterrupted: bytes, tmp_path: Path
) -> None:
    out, delay = tmp_path / "model", random.SystemRandom().uniform(0, 1.5)
    code, _ = stop_training(prepared_folder, out, signal.SIGKILL, delay)
    assert code == -signal.SIGKILL
    assert not out.exists()
    refused = start("train", prepared_folder, "--out", out, *LONG)
    assert b"continue it with --resume" in refused.communicate()[1]
    assert refused.returncode == 1
    other = start("train", prepared_folder, "--out", out, "--resume", *LONG, "--seed", 5)
    assert b"has other settings" in other.communicate()[1]
    resumed = start("train", prepared_folder, "--out", out, "--resume", *LONG)
    error = resumed.communicate()[1]
    assert resumed.returncode == 0, error
    assert (out / "weights.safetensors").read_bytes() == uninterrupted, f"killed after {delay} s"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_exits_130_and_says_how_to_continue(prepared_folder: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "model"
    code, error = stop_training(prepared_folder, out, number, 0.2)
    assert code == 130, error
    assert b"--resume" in error
    assert b"Traceback" not in error


def test_an_impatient_second_interrupt_of_a_comparison_spoils_nothing(prepared_folder: Path, tmp_path: Path) -> None:
    settings = [f"laha.{item}" if "=" in item else item for item in LONG]
    process = start(
        "compare", prepared_folder, "--models", "laha", "--out", tmp_path, *settings, start_new_session=True
    )
    checkpoint = tmp_path / "models" / "laha.training" / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)  # to the parent alone, which waits for the model
    error = process.communicate()[1]
    assert process.returncode == 130, error
    assert b"the same command goes on from here" in error
    assert b"Traceback" not in error
    assert checkpoint.exists()


@pytest.mark.parametrize(("model", "told"), [("popular", "nothing of it is kept"), ("laha", "continue with --resume")])
def test_only_what_is_kept_is_said_to_be_kept(
    run: Run, prepared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, told: str
) -> None:
    def stop(self: Any, *_: Any, folder: Path | None = None, **__: Any) -> None:
        if folder is not None:
            (folder / "checkpoint.safetensors").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator_class(model), "fit", stop)
    stopped = run("train", prepared_folder, "--out", tmp_path / "model", "--model", model)
    assert stopped.code == 130
    assert f"laha: stopped; {told}" in stopped.err


def test_a_reader_that_goes_away_is_no_error(model: Path, tmp_path: Path) -> None:
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"text": "apple"}\n' * 5000)
    process = start("tag", model, lines, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    error = process.stderr.read() if process.stderr else b""
    assert process.wait() == 0, error
    assert b"Traceback" not in error
    if process.stderr:
        process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tag", "--precision", "bfloat"], "--precision bfloat: did you mean 'bfloat16'?"),
        (["tag", "--device", "gpu"], "device=gpu"),
        (["explain", "--text", "apple", "--html", "nowhere/at/all.html"], "all.html cannot be written"),
    ],
)
def test_a_wrong_option_is_told_in_its_own_words(run: Run, model: Path, arguments: list[str], message: str) -> None:
    verb, *options = arguments
    told = run(verb, model, *options)
    assert told.code == 1
    assert message in told.err


def test_a_budget_trains_what_fits_and_says_so(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laha.experts.fusion.STEPS", 60)
    out = tmp_path / "model"
    pairs = [item for pair in ["min_count=1", "experts=neighbours,names"] for item in ("--set", pair)]
    few = run("train", corpus, "--out", out, "--device", "cpu", "--budget", "0.01s", *pairs)
    assert few.code == 0, few.err
    assert "the network was left out" in few.err
    assert "with a longer --budget" in few.err
    assert json.loads((out / "manifest.json").read_text())["configuration"]["budget"] == 0.01
    assert not (tmp_path / "model.training").exists()
    assert run("evaluate", out, corpus, "--json").json()["P@1"] > 80
    info = run("info", out).out
    assert "laha-best" in info
    assert "validation nDCG@5" in info
    (tmp_path / "in.txt").write_text("iron owl\n")
    assert run("tag", out, tmp_path / "in.txt", "--top", 1).json()["labels"]
    more = run("train", corpus, "--out", out, "--device", "cpu", "--budget", "20s", *pairs, *SETTINGS)
    assert more.code == 0, more.err
    assert 0 < json.loads((out / "manifest.json").read_text())["configuration"]["limit_seconds"] < 20
    assert "left out" not in more.err
    assert run("explain", out, "--text", "iron owl", "--json").json()["labels"][0]["experts"]


@pytest.mark.parametrize("budget", ["soon", "0", "-5m", "nan", "inf", "5d", ""])
def test_a_budget_that_is_no_time_is_told(run: Run, corpus: Path, tmp_path: Path, budget: str) -> None:
    ran = run("train", corpus, "--out", tmp_path / "m", f"--budget={budget}")
    assert ran.code == 1
    assert ran.err == f"laha: --budget {budget}: give a time such as 90s, 10m or 2h\n"
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_keep_a_budget_says_so(run: Run, corpus: Path, tmp_path: Path) -> None:
    ran = run("train", corpus, "--model", "popular", "--out", tmp_path / "m", "--budget", "10m")
    assert (ran.code, ran.err) == (1, "laha: popular cannot keep a --budget: only laha can\n")


def test_a_wanted_precision_gives_what_was_right_so_often_or_nothing(
    run: Run, model: Path, prepared: Prepared, tmp_path: Path
) -> None:
    calibrated = LAHA(**SMALL, experts="neighbours", budget=0.001).fit(prepared)
    assert calibrated.panel_ is not None
    calibrated.panel_.curve = np.array([[0.5, 0.95], [0.2, 0.6], [0.0, 0.1]], np.float32)
    calibrated.save(tmp_path / "calibrated")
    (tmp_path / "in.txt").write_text("iron apple\n")

    def scores(*options: object) -> list[float]:
        ran = run("tag", tmp_path / "calibrated", tmp_path / "in.txt", "--top", 6, *options)
        assert ran.code == 0, ran.err
        return [label["score"] for label in ran.json()["labels"]]

    whole = scores()
    for precision, least in ((0.9, 0.5), (0.5, 0.2), (0, 0.0)):
        assert scores("--min-precision", precision) == [score for score in whole if score >= least]
    assert scores("--min-precision", 0.96) == []
    assert scores("--min-precision", 0.5, "--min-score", 0.6) == [score for score in whole if score >= 0.6]
    refused = run("tag", model, tmp_path / "in.txt", "--min-precision", 0.9)
    assert refused.code == 1
    assert "laha-paper is not calibrated and can promise no precision" in refused.err
    assert run("tag", model, tmp_path / "in.txt", "--min-precision", 1.5).code == 2
