"""Result files: what was measured, on what, with what, by which command; written by commands, never typed."""

from __future__ import annotations

import json
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from laha import __version__
from laha.evaluation import Report
from laha.storage import atomic_file, read_manifest

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "gensim", "safetensors", "triton", "omikuji", "napkinxc")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide results; those not installed are left out."""
    found = {"python": platform.python_version(), "laha": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def resident_peak() -> int:
    """Return the most memory this process has held, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the process that started this one held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def record(
    model: Path, report: Report, corpus: str, corpus_sha256: str, split: str, command: str, folder: Path
) -> Path:
    """Write FOLDER/CORPUS/MODEL-SEED.json for a saved model and its report."""
    manifest = read_manifest(model, "model", check=False)
    training, configuration = manifest["training"], manifest["configuration"]
    seed = configuration.get("seed", 0)
    result = {
        "corpus": corpus,
        "corpus_sha256": corpus_sha256,
        "split": split,
        "model": manifest["model"],
        "config": configuration,
        "seed": seed,
        "device": training.get("device", "cpu"),
        "versions": training.get("versions") or versions(),
        "command": " && ".join(filter(None, [training.get("command"), command])),
        "train_seconds": training.get("seconds"),
        "best_epoch": training.get("best_epoch"),
        "validation": training.get("validation"),
        "peak_memory_bytes": training.get("peak_memory_bytes"),
        "milliseconds_per_document": report.milliseconds_per_document,
        "model_bytes": model_bytes(manifest),
        "metrics": report.as_json(),
    }
    name = manifest["model"].replace(":", "-")  # no file name on every system has a colon
    path = folder / corpus / f"{name}-{seed}.json"
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def model_bytes(manifest: dict[str, Any]) -> int:
    """Return the size of a model folder's files."""
    return sum(int(entry["bytes"]) for entry in manifest["files"].values())
