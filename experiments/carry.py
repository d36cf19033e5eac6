"""A prepared corpus in one small file, to be taken to a machine that gets few MiB: word vectors in 8 bits a number.

    python experiments/carry.py pack PREPARED FILE.zip
    python experiments/carry.py unpack FILE.zip PREPARED

Each word vector is rounded to 255 steps of its largest number (an error of about 1 % of its length; training goes on
from there anyway); all else stays as it is, only compressed. Sums in the manifest then no longer fit the word vectors:
open it with `Prepared.load(folder, check=False)`.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import numpy as np

VECTORS = "word_vectors.npy"


def pack(folder: Path, file: Path) -> None:
    """Write the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    vectors = np.load(folder / VECTORS).astype(np.float32)
    steps = np.abs(vectors).max(axis=1, keepdims=True) / 127
    small = np.rint(vectors / np.maximum(steps, 1e-30)).astype(np.int8)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            if path.name != VECTORS:
                archive.write(path, path.name)
        for name, array in (("vectors.npy", small), ("steps.npy", steps)):
            with archive.open(name, "w") as handle:
                np.save(handle, array)


def unpack(file: Path, folder: Path) -> None:
    """Write the prepared folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    small, steps = (folder / name for name in ("vectors.npy", "steps.npy"))
    np.save(folder / VECTORS, (np.load(small) * np.load(steps)).astype(np.float16))
    small.unlink()
    steps.unlink()


if __name__ == "__main__":
    {"pack": pack, "unpack": unpack}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
