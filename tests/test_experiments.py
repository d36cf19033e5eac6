"""The scripts of experiments/: which trial wins, and that the README there holds what the result files say."""

from __future__ import annotations

import importlib.util
import json
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from laha.prepared import Prepared

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


def test_the_networks_run_writes_what_the_panel_reads(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared.save(tmp_path / "topics")
    settings = [word for pair in ("units=8", "epochs=2", "device=cpu", "batch=16") for word in ("--set", pair)]
    place = tmp_path / "runs" / "one"
    arguments = [str(tmp_path / "topics"), "--out", str(place), *settings, "--lexical", "epochs=2", "--depth", "5"]
    monkeypatch.setattr("sys.argv", ["best_network.py", *arguments, "--limit-seconds", "60", "--documents", "50"])
    script("best_network").main()
    assert "test mean" in capsys.readouterr().out
    facts = json.loads((place / "run.json").read_text())
    assert facts["metrics"]["test"].keys() == {"lexical", "attention", "document", "mean"}
    assert [row["epoch"] for row in facts["training"]["history"]] == [1, 2]
    for name in ("lexical", "attention", "document"):
        with np.load(place / f"{name}.npz") as arrays:
            assert arrays["valid_ids"].shape == arrays["valid_scores"].shape == (40, 5)
            assert arrays["test_ids"].shape == (50, 5)
            assert arrays["test_ids"].max() < prepared.train_labels
            assert (np.diff(arrays["test_scores"].astype(float), axis=1) <= 0).all()  # best first


def test_a_prepared_corpus_is_carried_in_one_file(prepared: Prepared, tmp_path: Path) -> None:
    prepared.save(tmp_path / "topics")
    carry = script("carry")
    carry.pack(tmp_path / "topics", tmp_path / "carry" / "topics.zip")
    carry.unpack(tmp_path / "carry" / "topics.zip", tmp_path / "again")
    again = Prepared.load(tmp_path / "again", check=False)
    lengths = np.linalg.norm(prepared.word_vectors, axis=1)
    errors = np.linalg.norm(again.word_vectors - prepared.word_vectors, axis=1)
    assert (errors <= 0.01 * lengths).all()
    np.testing.assert_array_equal(again.label_vectors, prepared.label_vectors)
    for name, part in prepared.parts.items():
        np.testing.assert_array_equal(again.part(name).words.ids, part.words.ids)
        assert (again.part(name).labels != part.labels).nnz == 0
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == sorted(
        path.name for path in (tmp_path / "topics").iterdir()
    )
