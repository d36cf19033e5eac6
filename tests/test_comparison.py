"""Comparisons: each model in its own process, finished ones left alone, failing ones told."""

from __future__ import annotations

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import make_corpus
from typer.testing import CliRunner

from laha import comparison_report
from laha.cli import app, main
from laha.comparison import Job, compare, finished_row, plan
from laha.comparison_report import HEADER, METRICS, cells, draw_bars, draw_plots, markdown
from laha.corpus import Parts
from laha.datasets import content_sha256, convert
from laha.errors import ConfigurationError, LahaError
from laha.progress import Progress
from laha.terminal import table


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora") / "topics"
    convert(Parts(make_corpus(80, 1), make_corpus(20, 2), make_corpus(30, 3), "topics"), folder)
    return folder


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("comparison")
    pairs = ["one-vs-all.min_count=1", "one-vs-all.workers=1"]
    jobs = plan(str(corpus), ["popular", "one-vs-all"], out, pairs, command="laha compare topics")
    return out, compare(jobs)


# Stand-ins for training, at the top of the module so that another process finds them.


def work_well(job: Job, progress: Progress) -> dict[str, Any]:
    progress("training", 1.0, str(os.getpid()))
    row = {"model": job.name, "request": job.request, "metrics": {"P@1": 50.0}, "process": os.getpid()}
    job.row.parent.mkdir(parents=True, exist_ok=True)
    job.row.write_text(json.dumps(row))
    return row


def work_or_fail(job: Job, progress: Progress) -> dict[str, Any]:
    if job.name == "popular":
        raise LahaError("the corpus is empty: add documents")
    if job.name == "parabel":
        raise KeyError("a defect")
    if job.name == "bonsai":
        os._exit(9)
    return work_well(job, progress)


def test_a_row_holds_quality_time_memory_latency_and_size(finished):
    _, rows = finished
    assert [row["model"] for row in rows] == ["popular", "one-vs-all"]
    for row in rows:
        assert set(METRICS) <= row["metrics"].keys()
        assert row["train_seconds"] > 0
        assert row["peak_memory_bytes"] > 1e6
        assert row["milliseconds_per_document"] > 0
        assert row["milliseconds_single"] > 0
        assert row["model_bytes"] > 100
    assert rows[1]["metrics"]["P@1"] > rows[0]["metrics"]["P@1"] + 10
    assert rows[1]["config"]["min_count"] == 1


def test_the_table_and_the_result_files_lie_in_the_folder(finished):
    out, rows = finished
    table = (out / "comparison.md").read_text()
    assert "| model | P@1 | P@3 | P@5 | nDCG@3 | nDCG@5 | PSP@1 | PSP@3 | PSP@5 | training s | peak GiB |" in table
    assert f"| one-vs-all | {rows[1]['metrics']['P@1']:.1f} |" in table
    assert json.loads((out / "comparison.json").read_text())["models"] == rows
    result = json.loads((out / "results" / "topics" / "one-vs-all-0.json").read_text())
    assert result["metrics"]["P@1"] == rows[1]["metrics"]["P@1"]
    assert result["command"] == "laha compare topics"


def test_a_finished_model_is_not_trained_again(finished, corpus):
    out, rows = finished
    pairs = ["one-vs-all.min_count=1", "one-vs-all.workers=1"]
    seen = []
    again = compare(
        plan(str(corpus), ["popular", "one-vs-all"], out, pairs),
        lambda task, done, note="": seen.append((task, note)),
        work_or_fail,
    )
    assert again == rows
    assert seen == [("popular", "done before"), ("one-vs-all", "done before")]


def test_a_model_whose_test_was_stopped_is_tested_without_training_it_again(finished, corpus):
    out, rows = finished
    (job,) = plan(str(corpus), ["popular"], out)
    trained = (job.model / "manifest.json").stat().st_mtime_ns
    job.row.unlink()
    (again,) = compare([job])
    assert again["metrics"] == rows[0]["metrics"]
    assert (job.model / "manifest.json").stat().st_mtime_ns == trained


def test_other_settings_are_another_model(finished, corpus):
    out, _ = finished
    (job,) = plan(str(corpus), ["one-vs-all"], out, ["one-vs-all.min_count=2"])
    assert finished_row(job) is None


def test_other_documents_under_the_same_name_are_another_corpus(tmp_path, monkeypatch):
    folder, out = tmp_path / "topics", tmp_path / "out"
    convert(Parts(make_corpus(80, 1), None, make_corpus(30, 3), "topics"), folder)

    def job() -> Job:
        return plan(str(folder), ["popular"], out, corpus_sha256=content_sha256(folder))[0]

    compare([job()], work=work_well)
    assert finished_row(job()) is not None
    convert(Parts(make_corpus(81, 1), None, make_corpus(30, 3), "topics"), folder)
    assert finished_row(job()) is None


def test_each_model_has_a_process_of_its_own_and_reports_from_it(tmp_path):
    seen = []
    rows = compare(plan("c", ["popular", "bonsai"], tmp_path), lambda *call: seen.append(call), work_well)
    processes = {row["process"] for row in rows}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert seen[0] == ("popular: training", 1.0, str(rows[0]["process"]))


def test_a_failing_model_is_told_and_the_others_go_on(tmp_path, capfd):
    names = ["popular", "parabel", "bonsai", "one-vs-all"]
    rows = compare(plan("c", names, tmp_path), work=work_or_fail)
    assert [row.get("failed") for row in rows] == [
        "the corpus is empty: add documents",
        "KeyError: 'a defect'",
        "its process ended with code 9 (out of memory?)",
        None,
    ]
    table = (tmp_path / "comparison.md").read_text()
    assert "- popular failed: the corpus is empty: add documents" in table
    assert "| one-vs-all | 50.0 |" in table
    # Only what failed is tried again.
    again = compare(plan("c", names, tmp_path), work=work_well)
    assert not any("failed" in row for row in again)
    assert again[3]["process"] == rows[3]["process"]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("epochs=3", "--set epochs=3: write MODEL.key=value; known: one-vs-all, popular"),
        ("one-vs-al.cost=1", "did you mean 'one-vs-all'"),
        ("one-vs-all.kost=1", "there is no setting 'kost': did you mean 'cost'"),
        ("one-vs-all.cost=-1", "cost=-1.0: the value must be at least"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_is_trained(tmp_path, pair, message):
    with pytest.raises(ConfigurationError, match=message):
        plan("c", ["popular", "one-vs-all"], tmp_path, [pair])


def test_a_peers_settings_are_named_like_any_others(tmp_path):
    (job,) = plan("c", ["peer:omikuji"], tmp_path, ["peer:omikuji.trees=1"])
    assert job.settings["trees"] == 1
    assert ":" not in job.model.name


def test_a_failed_row_is_dashes_with_its_reason_below():
    row = {"model": "bonsai", "failed": "no trees"}
    assert set(cells(row)[1:]) == {"–"}
    assert markdown([row], "c").endswith("\n- bonsai failed: no trees\n")


def test_plots_are_drawn_where_matplotlib_is(finished, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    _, rows = finished
    written = draw_plots(rows, "topics", tmp_path)
    assert [path.name for path in written] == ["quality.png", "costs.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    forbid(monkeypatch, "matplotlib")
    assert draw_plots(rows, "topics", tmp_path) == []


def test_what_was_not_measured_has_no_bar(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(
        comparison_report, "draw_bars", lambda axis, names, values, *rest: drawn.append((rest[0], values))
    )
    rows = [
        {"model": "one", "metrics": {"P@1": 5.0}, "train_seconds": None, "model_bytes": 3e6},
        {"model": "two", "metrics": {"P@1": 6.0}, "train_seconds": None, "milliseconds_per_document": 2.0},
    ]
    draw_plots(rows, "topics", tmp_path)
    assert drawn[0] == ("P@1 (%)", [5.0, 6.0])
    assert drawn[1] == ("P@5 (%)", [None, None])
    assert drawn[4:] == [("ms/document, batch", [None, 2.0]), ("model MB", [3.0, None])]  # no panel of training times
    monkeypatch.undo()
    from matplotlib.figure import Figure

    axis = Figure().subplots()
    draw_bars(axis, ["one", "two"], [None, 2.0], "title", "{:.1f}")
    assert [bar.get_y() + bar.get_height() / 2 for bar in axis.patches] == [1.0]
    assert [text.get_text() for text in axis.texts] == ["2.0"]


def test_a_narrow_terminal_gets_a_folded_table(finished):
    _, rows = finished
    folded = table(HEADER, [cells(row) for row in rows], width=80)
    assert max(map(len, folded.splitlines())) <= 80
    blocks = folded.split("\n\n")
    assert len(blocks) == 2
    assert all(block.splitlines()[2].startswith("one-vs-all") for block in blocks)
    assert sorted(folded.split()) == sorted(
        [*table(HEADER, [cells(row) for row in rows]).split(), "model", "popular", "one-vs-all"]
    )


def test_the_command_line_prints_the_table_and_fails_at_the_end(corpus, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("LAHA_PECOS_PYTHON", raising=False)
    arguments = ["compare", str(corpus), "--models", "peer:libpecos,popular", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["laha", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    printed = capsys.readouterr()
    assert "popular" in printed.out
    assert "peer:libpecos failed: peer:libpecos is not installed: it needs a Python of its own" in printed.err
    assert "1 of 2 models failed; the same command tries them again" in printed.err


def test_compare_has_a_help():
    assert "--models" in CliRunner().invoke(app, ["compare", "--help"]).output


def forbid(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    real = builtins.__import__

    def fake(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", fake)


def test_a_wrong_corpus_or_no_model_is_told_before_anything_is_begun(tmp_path: Path) -> None:
    with pytest.raises(LahaError, match="no such file or folder"):
        content_sha256("nowhere-at-all")
    with pytest.raises(LahaError, match="no model is named"):
        plan("builtin:pydocs", [], tmp_path / "out")
    assert not (tmp_path / "out").exists()
