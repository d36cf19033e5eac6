"""The model folder: manifest.json + safetensors + text files; written atomically, checked on loading, no pickle.

A folder is written beside its place and renamed into it, so a reader sees the old one or the new one. Loading reads
JSON, text and safetensors only: nothing in a model folder is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laha.errors import ModelError

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
KINDS = ("model", "prepared")  # what laha writes, and so may replace: other programs have manifests too


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` once everything is written and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes the place of `path` once it is complete.

    An existing model or prepared folder is replaced; any other non-empty folder is refused, lest files be lost.
    """
    check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.iterdir():
            _flush(file)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
            os.rename(path, old / path.name)
            os.rename(temporary, path)
            shutil.rmtree(old)
        else:
            os.rename(temporary, path)
        _flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_replaceable(path: Path) -> None:
    """Refuse to write over anything but an empty folder or a folder that laha wrote."""
    if path.is_file():
        raise ModelError(f"{path} is a file: name a folder that does not exist yet")
    if path.is_dir() and any(path.iterdir()) and not any(is_folder_of(path, kind) for kind in KINDS):
        raise ModelError(f"{path} holds other files and will not be overwritten: name a new folder or empty this one")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_manifest(folder: Path, kind: str, fields: Mapping[str, Any]) -> None:
    """Write manifest.json with the sha256 and size of every other file of the folder."""
    files = {
        file.name: {"sha256": sha256_file(file), "bytes": file.stat().st_size}
        for file in sorted(folder.iterdir())
        if file.name != MANIFEST
    }
    manifest = {"format": FORMAT_VERSION, "kind": kind, **fields, "files": files}
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path, kind: str, check: bool = True) -> dict[str, Any]:
    """Read manifest.json; refuse a newer format or another kind, and with `check` any file whose sum is not its own."""
    if not folder.exists():
        raise ModelError(f"there is no {kind} at {folder}: check the path")
    path = folder / MANIFEST
    if not path.is_file():
        raise ModelError(f"{folder} is not a {kind} folder: it has no {MANIFEST}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version = int(manifest["format"])
        if version > FORMAT_VERSION:  # asked first: all else may be otherwise in a newer format
            raise ModelError(
                f"{folder} has format {version}, newer than this laha reads ({FORMAT_VERSION}): upgrade with "
                "'pip install --upgrade laha'"
            )
        found = manifest["kind"]
        sums = {str(name): str(entry["sha256"]) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged ({error!r}): restore it from a copy or make the folder anew") from error
    if found != kind:
        raise ModelError(f"{folder} is a {found} folder, where a {kind} folder is needed")
    for name, expected in sums.items() if check else ():
        _check_sum(folder, name, expected)
    return dict(manifest)


def _check_sum(folder: Path, name: str, expected: str) -> None:
    # A name from the manifest must stay inside the folder: a manifest may come from anyone.
    if Path(name).name != name or not (folder / name).is_file():
        raise ModelError(f"{folder / name} is missing: restore the folder from a copy or make it anew")
    if sha256_file(folder / name) != expected:
        raise ModelError(f"{folder / name} does not match its sha256: it is damaged, restore it from a copy")


def is_folder_of(folder: Path, kind: str) -> bool:
    """Say whether a folder is one that laha wrote of that kind ("model" or "prepared")."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("kind")
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
    return bool(found == kind)


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays as safetensors, in the order of their names so that equal content gives equal bytes."""
    from safetensors.numpy import save_file

    ordered = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    # One entry that holds all: safetensors writes several in random order.
    save_file(ordered, path, metadata={"metadata": json.dumps(dict(metadata), sort_keys=True)} if metadata else None)
    path.chmod(0o644)  # as the other files: safetensors lets nobody else read it


def read_tensors(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read the arrays and the metadata of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as handle:
            metadata = json.loads((handle.metadata() or {}).get("metadata", "{}"))
            return {name: handle.get_tensor(name) for name in handle.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read ({error}): restore it from a copy") from error


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write one string a line; none may hold a line break."""
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        for line in lines:
            if "\n" in line or "\r" in line:
                raise ModelError(f"{path.name}: {line!r} holds a line break")
            handle.write(line + "\n")


def read_lines(path: Path) -> list[str]:
    """Read what write_lines wrote."""
    text = path.read_text(encoding="utf-8")
    return text.split("\n")[:-1]


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one JSON object a line."""
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        for row in rows:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read what write_jsonl wrote."""
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path}, line {number}: broken JSON: restore the file from a copy") from error
        if not isinstance(row, dict):
            raise ModelError(f"{path}, line {number}: not a JSON object: restore the file from a copy")
        rows.append(row)
    return rows
