"""The tree expert: Bonsai's label trees over words and word pairs, taught by the labels' names too (extra `trees`).

Each label's name joins the training documents as a short document of its own. So a branch knows what its labels are
called before it has seen them in a text, and a label without any training document has a leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from laha.baselines.classical import available_cores
from laha.baselines.label_trees import open_trees, train_trees
from laha.experts.label_names import names_of
from laha.experts.proposals import DEPTH, Proposals
from laha.features import Features
from laha.prepared import Label
from laha.stems import Stems
from laha.vocabulary import RESERVED, UNKNOWN, WordIds

SHALLOW = {"cluster_k": 100, "cluster_balanced": False, "min_branch_size": 100, "max_depth": 3}  # Bonsai's trees
BALANCED: dict[str, Any] = {}  # Parabel's: a fifth of the time, a little less precise
BEAM = 20


def available() -> bool:
    """Tell whether the library that grows the trees is installed."""
    return find_spec("omikuji") is not None


class Tree:
    """Trees by Omikuji over the TF-IDF of stems."""

    def __init__(self, stems: Stems, features: Features, files: Mapping[str, bytes]):
        self.stems, self.features, self.files = stems, features, dict(files)
        self._trees = open_trees(self.files, available_cores()) if self.files else None

    @classmethod
    def fit(cls, stems: Stems, words: WordIds, truth: csr_matrix, labels: Sequence[Label], quick: bool = False) -> Self:
        """Grow trees from training documents and the labels' names; `quick` ones are balanced."""
        documents = stems.of(words)
        features = Features.fit(documents, len(stems) - RESERVED, "tfidf")
        names, owners = names_of(labels, stems)
        offsets = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int64)
        called = WordIds(np.concatenate([*names, np.array([UNKNOWN])])[: offsets[-1]].astype(np.int32), offsets)
        rows = csr_matrix(vstack([features.rows(documents), features.rows(called)], format="csr"))
        ones = np.ones(len(owners), np.float32)
        own = csr_matrix((ones, (np.arange(len(owners)), owners)), shape=(len(owners), len(labels)))
        targets = csr_matrix(vstack([truth[:, : len(labels)], own], format="csr"))
        filled = (np.diff(rows.indptr) > 0) & (np.diff(targets.indptr) > 0)
        settings = BALANCED if quick or len(labels) < SHALLOW["cluster_k"] else SHALLOW
        if not filled.any():  # no labelled document and no name has a known word: trees that propose nothing
            return cls(stems, features, {})
        return cls(stems, features, train_trees(rows[filled], targets[filled], settings, available_cores()))

    def top(self, words: WordIds, depth: int = DEPTH) -> Proposals:
        """Return the leaves that a beam search finds best, with their logits."""
        rows = self.features.rows(self.stems.of(words))
        ids = np.full((len(words), depth), -1, np.int64)
        scores = np.zeros((len(words), depth), np.float32)
        if self._trees is None:
            return Proposals(ids, scores)
        for row, (start, end) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True)):
            pairs = list(zip(rows.indices[start:end].tolist(), rows.data[start:end].tolist(), strict=True))
            found = self._trees.predict(pairs, BEAM, depth)[:depth]
            ids[row, : len(found)] = [label for label, _ in found]
            scores[row, : len(found)] = [score for _, score in found]
        sure = np.clip(scores, 1e-6, 1 - 1e-6)
        return Proposals(ids, np.where(ids >= 0, np.log(sure) - np.log1p(-sure), 0).astype(np.float32))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what is not in the trees' files: Omikuji's own are bytes of one each."""
        files = {f"file.{name}": np.frombuffer(content, np.uint8) for name, content in self.files.items()}
        return {"rarity": self.features.rarity, **files}

    @classmethod
    def restore(cls, stems: Stems, tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what `tensors` gave."""
        files = {name.removeprefix("file."): a.tobytes() for name, a in tensors.items() if name.startswith("file.")}
        return cls(stems, Features("tfidf", tensors["rarity"]), files)
