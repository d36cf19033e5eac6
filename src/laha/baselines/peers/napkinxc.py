"""peer:napkinxc — napkinXC as it comes: a probabilistic label tree (Jasinska-Kobus et al., 2020), or one-vs-rest."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.baselines.classical import Classical, ClassicalConfiguration, available_cores
from laha.baselines.label_trees import silent_output
from laha.baselines.peers.folder_files import gather, read_from, spread, write_into
from laha.configuration import check_choice, check_range
from laha.errors import LahaError

KINDS = ("plt", "ovr")
LOSSES = ("log", "l2")


@dataclass(frozen=True, kw_only=True)
class NapkinXCConfiguration(ClassicalConfiguration):
    """The settings of the peer, each at napkinXC's default; all else is there too."""

    kind: str = "plt"  # a probabilistic label tree; "ovr": a classifier a label
    loss: str = "log"  # logistic; "l2": squared hinge
    cost: float = 10.0  # C of liblinear
    prune: float = 0.1  # weights below it are dropped
    children: int = 2  # of the clustering
    leaf: int = 100  # labels below a node that is not split again, at most
    trees: int = 1
    candidates: int = 100  # the best labels a document gets scores for, as for our label trees
    workers: int | None = None  # threads; None: one a core

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "kind", KINDS)
        check_choice(self, "loss", LOSSES)
        check_range(self, ("candidates", "workers", "trees"), 1)
        check_range(self, ("children", "leaf"), 2)
        check_range(self, ("cost",), 1e-9)
        check_range(self, ("prune",), 0)


class NapkinXCPeer(Classical):
    """By default a probabilistic label tree over hierarchical k-means, logistic loss, exact search."""

    Configuration = NapkinXCConfiguration
    files_: dict[str, bytes]
    model_: Any

    @property
    def repeatable(self) -> bool:
        """It takes a seed, but its solver's draws go on from wherever they were."""
        return False

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "peer:napkinxc"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Let napkinXC train its classifiers, and a tree of them grow first."""
        names = [labels.indices[s:e].tolist() for s, e in zip(labels.indptr[:-1], labels.indptr[1:], strict=True)]
        with tempfile.TemporaryDirectory() as place:
            with silent_output():
                self._classifiers(place).fit(rows, names)
            self.files_ = gather(Path(place))
        self._open()

    def _classifiers(self, place: str) -> Any:
        try:
            from napkinxc.models import OVR, PLT
        except ImportError as error:
            raise LahaError("peer:napkinxc is not installed: pip install 'laha[peers]'") from error
        configuration = self.configuration_
        settings = {
            "loss": configuration.loss,
            "liblinear_c": configuration.cost,
            "weights_threshold": configuration.prune,
            "threads": configuration.workers or available_cores(),
            "seed": configuration.seed,
        }
        if configuration.kind == "ovr":
            return OVR(place, **settings)
        tree = {"arity": configuration.children, "max_leaves": configuration.leaf}
        if configuration.trees > 1:
            tree["ensemble"] = configuration.trees  # an ensemble of one is stored in another way, for nothing
        return PLT(place, **settings, **tree)

    def _open(self) -> None:
        place = tempfile.mkdtemp()  # stays with this object: an ensemble reads its trees only when it predicts
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        with silent_output():
            spread(self.files_, Path(place))
            self.model_ = self._classifiers(place)
            self.model_.load()

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Return the probabilities of each document's candidates."""
        count = min(self.configuration_.candidates, len(self.labels_))
        found = self.model_.predict_proba(csr_matrix(rows), top_k=count) if rows.shape[0] else []
        ends = np.cumsum([0, *map(len, found)])
        labels = np.array([label for best in found for label, _ in best], dtype=np.int32)
        data = np.array([score for best in found for _, score in best], dtype=np.float32)
        scores = csr_matrix((np.clip(data, 0, 1), labels, ends), shape=(rows.shape[0], len(self.labels_)))
        scores.sort_indices()
        return scores

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return nothing: all of it is files."""
        return {}

    def write_files(self, folder: Path) -> None:
        """Write napkinXC's files."""
        write_into(folder, self.files_)

    def restore(self, tensors: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Read napkinXC's files."""
        self.files_ = read_from(folder)
        self._open()
