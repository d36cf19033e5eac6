"""A shallow and wide tree over labels, by balanced k-means of their documents' words (You et al. 2019, section 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.preprocessing import normalize

from laha.vocabulary import UNKNOWN, WordIds

SETTLED = 1e-4  # gain in mean similarity below which 2-means stops
PASSES = 20  # of 2-means at most; a handful suffice


@dataclass(frozen=True)
class LabelTree:
    """Levels of nodes below the root; the last level's nodes are the labels themselves, by their ids."""

    first: int  # nodes of the first level
    parents: list[NDArray[np.int64]]  # of every level below it: each node's parent

    @property
    def nodes(self) -> list[int]:
        """How many nodes each level has."""
        return [self.first, *(len(parents) for parents in self.parents)]

    def truth(self, labels: csr_matrix, level: int) -> csr_matrix:
        """Return which nodes of a level (documents, nodes) have a label of the document below them.

        Columns beyond the tree's labels are labels it does not know; they remain on the last level.
        """
        if level == len(self.parents):
            return labels
        ancestors = np.arange(self.nodes[-1])
        for parents in reversed(self.parents[level:]):
            ancestors = parents[ancestors]
        ones = np.ones(len(ancestors), np.float32)
        shape = (len(ancestors), self.nodes[level])
        below = csr_matrix((ones, ancestors, np.arange(len(ancestors) + 1)), shape=shape)
        found = csr_matrix(labels[:, : len(ancestors)] @ below)
        found.data[:] = 1
        found.sort_indices()
        return found


def build_label_tree(features: csr_matrix, splits: int, first: int, seed: int = 0) -> LabelTree:
    """Halve the labels until at most `2**splits` are together; keep every `splits`-th level.

    The first level has at most `first` nodes. Each half is as large as the other, so clusters of one level differ by
    one label at most.
    """
    depths = level_depths(features.shape[0], splits, first)
    rng = np.random.default_rng(seed)
    clusters = [np.arange(features.shape[0])]
    for _ in range(depths[-1]):
        clusters = [half for cluster in clusters for half in halve(features[cluster], cluster, rng)]
    parents = [np.arange(2**below) >> (below - above) for above, below in pairwise(depths)]
    of_labels = np.empty(features.shape[0], np.int64)
    for number, cluster in enumerate(clusters):
        of_labels[cluster] = number
    return LabelTree(2 ** depths[0], [*parents, of_labels])


def level_depths(labels: int, splits: int, first: int) -> list[int]:
    """Return how often the labels of each level but the last have been halved.

    >>> level_depths(670_000, splits=3, first=2048)  # 2,048 nodes, 16,384, 131,072 and the labels
    [11, 14, 17]
    """
    depths = [max(1, math.ceil(math.log2(labels / 2**splits)))]
    while 2 ** depths[0] > first and depths[0] > splits:
        depths.insert(0, depths[0] - splits)
    return depths


def halve(
    features: csr_matrix, labels: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split labels into two halves by balanced, spherical 2-means of their features."""
    if len(labels) < 2:
        return labels, labels[:0]
    columns, indices = np.unique(features.indices, return_inverse=True)  # a small cluster has few words
    features = csr_matrix((features.data, indices, features.indptr), shape=(len(labels), len(columns)))
    centres = features[rng.choice(len(labels), 2, replace=False)].toarray()  # (2, words)
    middle, before = (len(labels) + 1) // 2, -math.inf
    for _ in range(PASSES):
        similarity = features @ centres.T  # (labels, 2)
        order = np.argsort(similarity[:, 1] - similarity[:, 0], kind="stable")
        left, right = order[:middle], order[middle:]
        now = (similarity[left, 0].sum() + similarity[right, 1].sum()) / len(labels)
        if now - before < SETTLED:
            break
        before = now
        centres = normalize(np.vstack([np.asarray(features[half].sum(axis=0)) for half in (left, right)]))
    return labels[np.sort(left)], labels[np.sort(right)]


def label_features(words: WordIds, labels: csr_matrix, vocabulary: int) -> csr_matrix:
    """Return for each label the mean of its documents' normalised TF-IDF vectors, normalised: (labels, words)."""
    ones = np.ones(len(words.ids), np.float32)
    counts = csr_matrix((ones, np.asarray(words.ids, np.int64), words.offsets), shape=(len(words), vocabulary))
    counts.sum_duplicates()
    documents = np.bincount(counts.indices, minlength=vocabulary)
    weight = np.log(max(1, len(words)) / np.maximum(1, documents))
    weight[: UNKNOWN + 1] = 0
    return csr_matrix(normalize(labels.T.tocsr() @ normalize(counts @ diags(weight))), dtype=np.float32)
