"""Result files: DIR/CORPUS/MODEL-SEED.json with every key that reports rely on."""

from __future__ import annotations

import json
import platform

import numpy as np
import pytest

import laha
from laha.errors import ModelError
from laha.evaluation import Report
from laha.results import model_bytes, record, versions
from laha.storage import atomic_folder, write_lines, write_manifest, write_tensors

KEYS = {
    "corpus",
    "corpus_sha256",
    "split",
    "model",
    "config",
    "seed",
    "device",
    "versions",
    "command",
    "train_seconds",
    "peak_memory_bytes",
    "milliseconds_per_document",
    "model_bytes",
    "metrics",
}
REPORT = Report({"P@1": 88.5}, {"F<=5": {"P@1": 40.0, "documents": 2}}, 10, 1, milliseconds_per_document=0.25)
TRAINING = {
    "seconds": 12.5,
    "device": "cpu",
    "versions": {"laha": "0.0.1"},
    "command": "laha train tiny",
    "peak_memory_bytes": 1000,
}


def save_model(path, training=TRAINING, **configuration):
    with atomic_folder(path) as folder:
        write_tensors(folder / "weights.safetensors", {"w": np.zeros(100, np.float32)})
        write_lines(folder / "vocabulary.txt", ["cat"])
        write_manifest(
            folder, "model", {"model": "laha-paper", "configuration": configuration, "training": dict(training)}
        )
    return path


def write(tmp_path, model):
    path = record(model, REPORT, "tiny", "abc123", "test", "laha evaluate model tiny", tmp_path / "results")
    return path, json.loads(path.read_text())


def test_a_result_holds_what_was_measured_on_what_with_what(tmp_path):
    path, result = write(tmp_path, save_model(tmp_path / "m", seed=3, units=8))
    assert path == tmp_path / "results" / "tiny" / "laha-paper-3.json"
    assert result.keys() >= KEYS
    files = [file for file in (tmp_path / "m").iterdir() if file.name != "manifest.json"]
    expected = {
        "corpus": "tiny",
        "corpus_sha256": "abc123",
        "split": "test",
        "model": "laha-paper",
        "config": {"seed": 3, "units": 8},
        "seed": 3,
        "device": "cpu",
        "versions": {"laha": "0.0.1"},
        "command": "laha train tiny && laha evaluate model tiny",
        "train_seconds": 12.5,
        "peak_memory_bytes": 1000,
        "milliseconds_per_document": 0.25,
        "model_bytes": sum(file.stat().st_size for file in files),
        "metrics": REPORT.as_json(),
    }
    assert {key: result[key] for key in KEYS} == expected


def test_the_metrics_are_those_of_evaluate(tmp_path):
    _, result = write(tmp_path, save_model(tmp_path / "m"))
    assert result["metrics"] == {
        "P@1": 88.5,
        "documents": 10,
        "documents_without_labels": 1,
        "groups": {"F<=5": {"P@1": 40.0, "documents": 2}},
    }


def test_what_training_did_not_tell_is_null_and_the_versions_are_todays(tmp_path):
    path, result = write(tmp_path, save_model(tmp_path / "m", training={}))
    assert path.name == "laha-paper-0.json"
    assert (result["train_seconds"], result["peak_memory_bytes"]) == (None, None)
    assert result["versions"] == versions()
    assert result["command"] == "laha evaluate model tiny"


def test_a_second_result_replaces_the_first_and_leaves_nothing_else(tmp_path):
    model = save_model(tmp_path / "m")
    first, _ = write(tmp_path, model)
    second, _ = write(tmp_path, model)
    assert first == second
    assert [file.name for file in first.parent.iterdir()] == ["laha-paper-0.json"]


def test_versions_name_python_laha_and_what_decides_results():
    found = versions()
    assert (found["python"], found["laha"], found["numpy"]) == (
        platform.python_version(),
        laha.__version__,
        np.__version__,
    )
    assert found.keys() >= {"torch", "scipy", "scikit-learn", "gensim", "safetensors"}


def test_the_size_is_that_of_all_files():
    assert model_bytes({"files": {"a": {"bytes": 3}, "b": {"bytes": 4}}}) == 7


def test_what_is_no_model_is_named(tmp_path):
    with pytest.raises(ModelError, match="there is no model at"):
        write(tmp_path, tmp_path / "nowhere")
