"""peer:napkinxc — a probabilistic label tree (Jasinska-Kobus et al., 2020) by napkinXC, with the library's defaults."""

from __future__ import annotations

import tempfile
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
from laha.configuration import check_range
from laha.errors import LahaError


@dataclass(frozen=True, kw_only=True)
class NapkinXCConfiguration(ClassicalConfiguration):
    """The settings of the peer; all else is at napkinXC's defaults."""

    candidates: int = 100  # the best labels a document gets scores for, as for our label trees
    workers: int | None = None  # threads; None: one a core

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("candidates", "workers"), 1)


class NapkinXCPeer(Classical):
    """A probabilistic label tree over hierarchical k-means, logistic loss, exact search."""

    Configuration = NapkinXCConfiguration
    repeatable = False  # it takes a seed, but its solver's draws go on from wherever they were
    files_: dict[str, bytes]
    tree_: Any

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "peer:napkinxc"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Let napkinXC grow and train its tree."""
        names = [labels.indices[s:e].tolist() for s, e in zip(labels.indptr[:-1], labels.indptr[1:], strict=True)]
        with tempfile.TemporaryDirectory() as place:
            with silent_output():
                self._tree(place).fit(rows, names)
            self.files_ = gather(Path(place))
        self._open()

    def _tree(self, place: str) -> Any:
        try:
            from napkinxc.models import PLT
        except ImportError as error:
            raise LahaError("peer:napkinxc is not installed: pip install 'laha[peers]'") from error
        configuration = self.configuration_
        return PLT(place, seed=configuration.seed, threads=configuration.workers or available_cores())

    def _open(self) -> None:
        with tempfile.TemporaryDirectory() as place, silent_output():
            spread(self.files_, Path(place))
            self.tree_ = self._tree(place)
            self.tree_.load()

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Return the probabilities of each document's candidates."""
        count = min(self.configuration_.candidates, len(self.labels_))
        found = self.tree_.predict_proba(csr_matrix(rows), top_k=count) if rows.shape[0] else []
        ends = np.cumsum([0, *map(len, found)])
        labels = np.array([label for best in found for label, _ in best], dtype=np.int32)
        data = np.array([score for best in found for _, score in best], dtype=np.float32)
        scores = csr_matrix((np.clip(data, 0, 1), labels, ends), shape=(rows.shape[0], len(self.labels_)))
        scores.sort_indices()
        return scores

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return nothing: the tree is files."""
        return {}

    def write_files(self, folder: Path) -> None:
        """Write napkinXC's files."""
        write_into(folder, self.files_)

    def restore(self, tensors: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Read napkinXC's files."""
        self.files_ = read_from(folder)
        self._open()
