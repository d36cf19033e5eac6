"""peer:libpecos — PECOS XR-Linear (Yu et al., 2022) as it comes, through a second interpreter.

libpecos wants numpy 1, so it lives in an environment of its own, whose Python `LAHA_PECOS_PYTHON` names. A child
process there trains and scores; features and scores travel as files, about a millisecond each way.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, load_npz, save_npz

from laha.baselines.classical import Classical, ClassicalConfiguration, available_cores
from laha.baselines.peers.folder_files import gather, read_from, spread, write_into
from laha.configuration import check_choice, check_range
from laha.errors import LahaError

VARIABLE = "LAHA_PECOS_PYTHON"
REMEDY = (
    f"make it with 'python3 -m venv pecos && pecos/bin/pip install \"numpy<2\" libpecos' and set "
    f"{VARIABLE}=pecos/bin/python"
)

NEGATIVES = ("tfn", "man", "tfn+man")
RELEVANCE = ("disable", "induce")


@dataclass(frozen=True, kw_only=True)
class LibpecosConfiguration(ClassicalConfiguration):
    """The settings of the peer, each at PECOS's default; all else is there too."""

    cost: float = 1.0  # Cp and Cn, the price of an error
    prune: float = 0.1  # weights below it are dropped
    negatives: str = "tfn"  # of a label: its siblings' documents; "man": those that the level above leads to it
    relevance: str = "disable"  # "induce": a document counts for a cluster by how many of its labels lie there
    children: int = 16  # of a cluster
    leaf: int = 100  # labels in a cluster that is not split again, at most
    beam: int = 10
    candidates: int = 100  # the best labels a document gets scores for, as for our label trees
    workers: int | None = None  # threads; None: one a core

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "negatives", NEGATIVES)
        check_choice(self, "relevance", RELEVANCE)
        check_range(self, ("candidates", "workers", "beam"), 1)
        check_range(self, ("children", "leaf"), 2)
        check_range(self, ("cost",), 1e-9)
        check_range(self, ("prune",), 0)


class LibpecosPeer(Classical):
    """Recursive linear rankers over hierarchical k-means of labels."""

    Configuration = LibpecosConfiguration
    files_: dict[str, bytes]
    child_: Child

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "peer:libpecos"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Let PECOS index the labels and train its rankers."""
        child, configuration = Child(), self.configuration_
        clusters = {
            "nr_splits": configuration.children,
            "max_leaf_size": configuration.leaf,
            "seed": configuration.seed,
        }
        rankers = {
            "Cp": configuration.cost,
            "Cn": configuration.cost,
            "threshold": configuration.prune,
            "negative_sampling_scheme": configuration.negatives,
            "rel_mode": configuration.relevance,
            "rel_norm": "l1" if configuration.relevance == "induce" else "no-norm",
            "nr_splits": configuration.children,
        }
        with tempfile.TemporaryDirectory() as place:
            save_npz(Path(place) / "rows.npz", rows, compressed=False)
            save_npz(Path(place) / "labels.npz", labels.astype(np.float32), compressed=False)
            child.ask(do="train", place=place, clusters=clusters, rankers=rankers, workers=self._workers())
            self.files_ = gather(Path(place) / "model")
        self.child_ = child

    def memory_elsewhere(self) -> int:
        """Return what the child has held at most."""
        return self.child_.peak

    def _workers(self) -> int:
        return int(self.configuration_.workers or available_cores())

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Return the scores of each document's candidates."""
        with tempfile.TemporaryDirectory() as place:
            save_npz(Path(place) / "rows.npz", rows, compressed=False)
            count = min(self.configuration_.candidates, len(self.labels_))
            beam = self.configuration_.beam
            self.child_.ask(do="score", place=place, top=count, beam=beam, workers=self._workers())
            scores = csr_matrix(load_npz(Path(place) / "scores.npz"), dtype=np.float32)
        scores.data = np.clip(scores.data, 0, 1)
        scores.sort_indices()
        return scores

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the rankers are files."""
        return {}

    def write_files(self, folder: Path) -> None:
        """Write PECOS's files."""
        write_into(folder, self.files_)

    def restore(self, tensors: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Read PECOS's files, and let a child of its own load them."""
        self.files_ = read_from(folder)
        self.child_ = Child()
        with tempfile.TemporaryDirectory() as place:
            spread(self.files_, Path(place) / "model")
            self.child_.ask(do="load", place=place)


class Child:
    """A process of the second interpreter that answers a JSON line with a JSON line."""

    peak = 0  # bytes it has held at most

    def __init__(self) -> None:
        python = os.environ.get(VARIABLE)
        if not python:
            raise LahaError(f"peer:libpecos is not installed: it needs a Python of its own, with numpy 1; {REMEDY}")
        script = Path(__file__).with_name("libpecos_child.py")
        # Nothing of ours may be found there: that interpreter has other versions of everything.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                [python, str(script)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
            )
        except OSError as error:
            raise LahaError(f"{VARIABLE}={python} cannot be run ({error.strerror}): {REMEDY}") from error
        weakref.finalize(self, _stop, self._process)

    def ask(self, **request: Any) -> None:
        """Have something done, or say why it was not."""
        process = self._process
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        except (OSError, ValueError) as error:
            raise LahaError(f"the Python of {VARIABLE} ended without an answer: {REMEDY}") from error
        if "failed" in answer:
            raise LahaError(f"PECOS failed ({answer['failed']}); if it is not installed, {REMEDY}")
        self.peak = int(answer["peak"])


def _stop(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    process.wait()
