"""The folder of another program's model as flat files of ours, whose sums the manifest holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from laha.errors import ModelError
from laha.storage import read_manifest

PREFIX = "peer~"  # before the names of the other program's files
SEPARATOR = "~"  # for the slash: a model folder holds no folders


def gather(place: Path) -> dict[str, bytes]:
    """Read every file below a folder: flat name -> content."""
    files = sorted(path for path in place.rglob("*") if path.is_file())
    return {PREFIX + SEPARATOR.join(path.relative_to(place).parts): path.read_bytes() for path in files}


def spread(files: Mapping[str, bytes], place: Path) -> None:
    """Write what `gather` read below another folder, in the same tree."""
    for name, content in files.items():
        parts = name.removeprefix(PREFIX).split(SEPARATOR)
        # A model may come from anyone: no name may lead out of the folder.
        if not all(parts) or any(part in (".", "..") or "/" in part or "\\" in part for part in parts):
            raise ModelError(f"the model has a file of a forbidden name, '{name}': restore it from a copy")
        path = place.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_from(folder: Path) -> dict[str, bytes]:
    """Read the other program's files from a model folder: those that the manifest lists."""
    listed = read_manifest(folder, "model", check=False)["files"]
    return {name: (folder / name).read_bytes() for name in listed if name.startswith(PREFIX)}


def write_into(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the other program's files into a model folder."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
