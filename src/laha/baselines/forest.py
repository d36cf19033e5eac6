"""The forest of FastXML and PfastreXML: many trees, grown in threads, laid end to end in a few arrays."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.baselines.classical import ClassicalConfiguration, available_cores
from laha.configuration import check_range
from laha.errors import LahaError, ModelError

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class ForestConfiguration(ClassicalConfiguration):
    """The settings of a forest; each default with its reason."""

    trees: int = 50  # both papers
    leaf_documents: int = 10  # a node of at most so many documents is not split; both papers
    leaf_labels: int = 100  # the most frequent labels that a leaf keeps; both papers
    cost: float = 1.0  # the price of an error against the size of the weights (C of liblinear); both papers
    rounds: int = 1  # how often a node parts its documents and learns its separator in turn; the paper: one suffices
    workers: int | None = None  # threads of training; None: one a core. The trees do not depend on it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("trees", "leaf_documents", "leaf_labels", "rounds", "workers"), 1)
        check_range(self, ("cost",), 1e-9)


@dataclass(frozen=True)
class Forest:
    """Trees end to end: node i has two children and the weights of a separator, or it is a leaf and has labels."""

    roots: Array  # (trees,)
    children: Array  # (nodes, 2): for documents of negative margin, and for the others; -1 in a leaf
    weight_offsets: Array  # (nodes + 1,)
    features: Array
    weights: Array
    label_offsets: Array  # (nodes + 1,)
    labels: Array
    shares: Array  # how many of a leaf's documents have the label

    @classmethod
    def grow(cls, rows: csr_matrix, labels: csr_matrix, label_weights: Array, settings: ForestConfiguration) -> Self:
        """Grow trees; a label counts by its weight in the splits' nDCG, and as one in the leaves."""
        code = tree_growth()
        matrix = with_bias(rows)
        counts = np.diff(labels.indptr)
        weights = label_weights[labels.indices].astype(np.float64)
        gains = weights * np.repeat(ideal_shares(counts), counts)

        def one(seed: int) -> tuple[Array, ...]:
            grown: tuple[Array, ...] = code.grow_tree(
                *(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1]),
                *(labels.indptr.astype(np.int64), labels.indices.astype(np.int32), gains, labels.shape[1]),
                *(settings.leaf_documents, settings.leaf_labels, settings.cost, settings.rounds, seed),
            )
            return grown

        seeds = np.random.SeedSequence(settings.seed).generate_state(settings.trees)
        with ThreadPoolExecutor(settings.workers or available_cores()) as pool:  # compiled code holds no lock
            return cls.join(list(pool.map(one, seeds.tolist())))

    @classmethod
    def join(cls, trees: list[tuple[Array, ...]]) -> Self:
        """Lay trees end to end."""
        sizes = [len(tree[0]) for tree in trees]
        roots = np.cumsum([0, *sizes[:-1]])
        children = [np.where(tree[0] < 0, tree[0], tree[0] + root) for tree, root in zip(trees, roots, strict=True)]
        _, weight_counts, features, weights, label_counts, labels, shares = zip(*trees, strict=True)
        return cls(
            roots=roots.astype(np.int64),
            children=np.concatenate(children).astype(np.int32),
            weight_offsets=np.cumsum(np.concatenate([[0], *weight_counts])),
            features=np.concatenate(features),
            weights=np.concatenate(weights),
            label_offsets=np.cumsum(np.concatenate([[0], *label_counts])),
            labels=np.concatenate(labels),
            shares=np.concatenate(shares),
        )

    def scores(self, rows: csr_matrix, labels: int) -> csr_matrix:
        """Average the leaves that each document falls in: (documents, labels)."""
        matrix = with_bias(rows)
        found = tree_growth().score_documents(
            *(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], labels),
            *(self.roots, self.children, self.weight_offsets, self.features, self.weights),
            *(self.label_offsets, self.labels, self.shares),
        )
        scores = csr_matrix(found, shape=(rows.shape[0], labels))
        scores.sort_indices()
        return scores

    def tensors(self) -> dict[str, Array]:
        """Return what a model folder keeps."""
        return {f"forest.{name}": array for name, array in vars(self).items()}

    @classmethod
    def restore(cls, tensors: Mapping[str, Array], words: int, labels: int) -> Self:
        """Take over what `tensors` returned; compiled code follows it unchecked, so all of it is checked here."""
        forest = cls(**{name: tensors[f"forest.{name}"] for name in cls.__dataclass_fields__})
        nodes = len(forest.children)
        later = (forest.children > np.arange(nodes)[:, None]) & (forest.children < nodes)
        leaf = (forest.children == -1).all(axis=1)
        if not (
            (later.all(axis=1) | leaf).all()
            and within(forest.roots, nodes)
            and within(forest.features, words + 1)
            and within(forest.labels, labels)
            and are_offsets(forest.weight_offsets, nodes, len(forest.features), len(forest.weights))
            and are_offsets(forest.label_offsets, nodes, len(forest.labels), len(forest.shares))
        ):
            raise ModelError("the model's trees are damaged: restore the model from a copy")
        return forest


def within(numbers: Array, end: int) -> bool:
    """Say whether all numbers lie from 0 to below `end`."""
    return bool(((numbers >= 0) & (numbers < end)).all())


def are_offsets(offsets: Array, rows: int, *ends: int) -> bool:
    """Say whether these are the offsets of so many rows of arrays of these lengths."""
    inside = len(offsets) == rows + 1 and offsets[0] == 0 and (np.diff(offsets) >= 0).all()
    return bool(inside and all(offsets[-1] == end for end in ends))


def tree_growth() -> ModuleType:
    """Import the compiled code, or say what it needs."""
    try:
        from laha.baselines import tree_growth
    except ModuleNotFoundError as error:
        raise LahaError(
            f"this model's trees need {error.name}, which is not installed: pip install 'laha[trees]'"
        ) from error
    return tree_growth


def with_bias(features: csr_matrix) -> csr_matrix:
    """Append a feature that is 1 in every document."""
    documents, width = features.shape
    ends = features.indptr.astype(np.int64)
    return csr_matrix(
        (
            np.insert(features.data.astype(np.float32), ends[1:], 1),
            np.insert(features.indices.astype(np.int32), ends[1:], width),
            ends + np.arange(documents + 1),
        ),
        shape=(documents, width + 1),
    )


def ideal_shares(counts: Array) -> Array:
    """Return 1 / DCG of the best ranking for documents with so many labels.

    >>> ideal_shares(np.array([1, 2])).round(3).tolist()
    [1.0, 0.613]
    """
    best = np.cumsum(1 / np.log2(np.arange(2, max(2, counts.max(initial=0) + 2))))
    return np.asarray(1 / best[np.maximum(counts, 1) - 1])
