"""Label trees by Omikuji, which Parabel and Bonsai share: labels clustered by their documents, a classifier a branch.

Omikuji is a kept library in Rust (extra `trees`) that trains the squared-hinge classifiers of all nodes with liblinear.
It was chosen over napkinXC by measurement (experiments/README.md): the same quality for balanced trees, better for
shallow ones, in less time. It draws its first cluster centres and the order of its solver itself and takes no seed, so
two trainings differ a little (napkinXC takes one, but its solver keeps drawing where it was). `seed` names a run.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.baselines.classical import Classical, ClassicalConfiguration, available_cores
from laha.configuration import check_range
from laha.errors import LahaError, ModelError


@dataclass(frozen=True, kw_only=True)
class LabelTreeConfiguration(ClassicalConfiguration):
    """The settings of all label trees; each default with its reason."""

    trees: int = 3  # Parabel's and Bonsai's papers
    cost: float = 1.0  # C of liblinear, the price of an error; both papers
    prune: float = 0.1  # weights below it are dropped; both papers
    tolerance: float = 0.1  # where liblinear stops; Omikuji's default
    iterations: int = 20  # of liblinear, at most; Omikuji's default
    beam: int = 10  # the best branches of a level that are followed down; both papers
    candidates: int = 100  # the best labels a document gets scores for: enough for rankings within label groups
    workers: int | None = None  # threads of training and prediction; None: one a core

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("trees", "iterations", "beam", "candidates", "workers"), 1)
        check_range(self, ("cost", "tolerance"), 1e-9)
        check_range(self, ("prune",), 0)


class LabelTrees(Classical):
    """An ensemble of label trees; a label's score is the product of its branches' scores, averaged over trees."""

    Configuration = LabelTreeConfiguration
    files_: dict[str, bytes]  # Omikuji's own, so that saving again gives the same bytes
    trees_: Any

    @property
    def repeatable(self) -> bool:
        """Omikuji takes no seed."""
        return False

    def clustering(self) -> dict[str, Any]:
        """Return Omikuji's settings of how labels are clustered."""
        return {}

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Let Omikuji cluster the labels and train every node."""
        configuration = self.configuration_
        given = {
            "n_trees": configuration.trees,
            "linear_c": configuration.cost,
            "linear_weight_threshold": configuration.prune,
            "linear_eps": configuration.tolerance,
            "linear_max_iter": configuration.iterations,
            **self.clustering(),
        }
        workers = configuration.workers or available_cores()
        self.files_ = train_trees(rows, labels, given, workers)
        self.trees_ = open_trees(self.files_, workers)

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Return the scores of each document's candidates."""
        configuration = self.configuration_
        labels, scores, ends = [], [], [0]
        for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
            pairs = list(zip(rows.indices[start:end].tolist(), rows.data[start:end].tolist(), strict=True))
            for label, score in self.trees_.predict(pairs, configuration.beam, configuration.candidates):
                labels.append(label)
                scores.append(score)
            ends.append(len(labels))
        data = np.clip(np.array(scores, dtype=np.float32), 0, 1)
        found = csr_matrix((data, np.array(labels, np.int32), ends), shape=(rows.shape[0], len(self.labels_)))
        found.sort_indices()
        return found

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the trees are files."""
        return {}

    def write_files(self, folder: Path) -> None:
        """Write Omikuji's files."""
        for name, content in self.files_.items():
            (folder / name).write_bytes(content)

    def restore(self, tensors: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Read Omikuji's files."""
        names = ["settings.json", *(f"tree{number}.cbor" for number in range(self.configuration_.trees))]
        try:
            self.files_ = {name: (folder / name).read_bytes() for name in names}
        except OSError as error:
            raise ModelError(f"{folder} is damaged ({error}): restore it from a copy") from error
        self.trees_ = open_trees(self.files_, self.configuration_.workers or available_cores())


def import_omikuji() -> Any:
    """Return the library, or say how to get it."""
    try:
        with silent_output():
            import omikuji
    except ImportError as error:
        raise LahaError("label trees need Omikuji: install it with pip install 'laha[trees]'") from error
    return omikuji


def train_trees(rows: csr_matrix, labels: csr_matrix, given: Mapping[str, Any], workers: int) -> dict[str, bytes]:
    """Let Omikuji grow trees with the given settings, the others its own; return its files."""
    omikuji = import_omikuji()
    settings = omikuji.Model.default_hyper_param()
    for name, value in given.items():
        setattr(settings, name, value)
    with tempfile.TemporaryDirectory() as place:
        write_examples(Path(place) / "train.txt", rows, labels)
        try:
            with silent_output():
                trained = omikuji.Model.train_on_data(str(Path(place) / "train.txt"), settings, workers)
                trained.save(str(Path(place) / "model"))
        except RuntimeError as error:
            raise LahaError(f"Omikuji could not train these trees ({error}): try other settings") from error
        return {file.name: file.read_bytes() for file in sorted((Path(place) / "model").iterdir())}


def open_trees(files: Mapping[str, bytes], workers: int) -> Any:
    """Let Omikuji read its files, written anew by name: it sums the trees in the order in which it finds them."""
    omikuji = import_omikuji()
    with tempfile.TemporaryDirectory() as place:
        for name, content in files.items():
            (Path(place) / name).write_bytes(content)
        try:
            with silent_output():
                trees = omikuji.Model.load(place)
        except RuntimeError as error:
            raise ModelError("Omikuji cannot read the model's trees: restore the model from a copy") from error
    trees.init_prediction_thread_pool(workers)
    return trees


def write_examples(path: Path, rows: csr_matrix, labels: csr_matrix) -> None:
    """Write the Extreme Classification Repository's format: counts, then `label,label word:weight …` a line."""
    with path.open("w", encoding="ascii") as handle:
        handle.write(f"{rows.shape[0]} {rows.shape[1]} {labels.shape[1]}\n")
        for row in range(rows.shape[0]):
            own = labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist()
            inside = slice(rows.indptr[row], rows.indptr[row + 1])
            pairs = zip(rows.indices[inside].tolist(), rows.data[inside].tolist(), strict=True)
            handle.write(",".join(map(str, own)) + "".join(f" {word}:{weight:.7g}" for word, weight in pairs) + "\n")


@contextmanager
def silent_output() -> Iterator[None]:
    """Keep off the terminal what another language's library logs: stdout is for results, progress is ours to draw."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    try:
        yield
    finally:
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)
        os.close(nowhere)
