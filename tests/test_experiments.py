"""The scripts of experiments/: which trial wins, and that the README there holds what the result files say."""

from __future__ import annotations

import importlib.util
import json
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent / "experiments"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder: Path, name: str, score: float, corpus: str = "news", file: str = "exam-0.json") -> None:
    path = folder / f"{name}.results" / corpus / file
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"validation": {"nDCG@5": score}, "name": name}))


def test_the_best_on_validation_wins_and_the_others_are_kept_as_trials(tmp_path: Path) -> None:
    write(tmp_path / "runs", "paper", 60.0)
    write(tmp_path / "runs", "cycle", 62.0)
    write(tmp_path / "runs", "other", 50.0, corpus="laws")
    lines = script("choose").choose(tmp_path / "runs", tmp_path / "results")
    kept = {
        path.relative_to(tmp_path / "results").as_posix(): json.loads(path.read_text())["name"]
        for path in sorted((tmp_path / "results").rglob("*.json"))
    }
    assert kept == {"laws/exam-0.json": "other", "news/exam-0.json": "cycle", "news/trials/paper.json": "paper"}
    assert "news cycle: validation nDCG@5 62.00 -> news/exam-0.json" in lines


def test_the_choice_reads_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "paper", 60.0)
    with tarfile.open(tmp_path / "deep.tgz", "w:gz") as archive:
        archive.add(tmp_path / "paper.results", "paper.results")
    monkeypatch.setattr("sys.argv", ["choose.py", str(tmp_path / "deep.tgz"), "--results", str(tmp_path / "results")])
    script("choose").main()
    assert "news paper: validation nDCG@5 60.00 -> news/exam-0.json" in capsys.readouterr().out


@pytest.mark.parametrize("table", ["peers", "trials"])
def test_the_readme_has_the_tables_of_the_peers(table: str) -> None:
    made = getattr(script("table"), table)()
    command = f"python experiments/table.py --{table}"
    assert made in (ROOT / "README.md").read_text(encoding="utf-8"), f"put the output of '{command}' into the README"
