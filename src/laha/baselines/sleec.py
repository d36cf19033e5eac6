"""SLEEC: local embeddings that keep near label sets near (Bhatia, Jain, Kar, Varma & Jain 2015).

Documents are clustered by their features. In each cluster, documents are embedded so that the inner products of each
document's label set with its nearest label sets are kept, and no others (singular value projection); regressors lead
from features to the embedding. A new document gets the labels of its nearest neighbours in the embedding of its
cluster, averaged over several clusterings.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.baselines.classical import Classical, ClassicalConfiguration, available_cores, sparse_matrix, sparse_tensors
from laha.configuration import check_range
from laha.features import scale_rows

Array = NDArray[Any]

CLUSTERING_STEPS = 20  # of k-means
PAIRS = 1 << 18  # inner products computed at once
DOCUMENTS = 1000  # rows of the similarity matrix computed at once


@dataclass(frozen=True, kw_only=True)
class SLEECConfiguration(ClassicalConfiguration):
    """The settings of SLEEC; each default with its reason."""

    learners: int = 5  # clusterings; the paper has 5 to 20, and gains little beyond 5
    cluster_documents: int = 6000  # a cluster of more is clustered again; the paper has n / 6000 clusters
    dimensions: int = 100  # of the embeddings; the paper, for small corpora
    similar: int = 50  # nearest label sets whose inner product with a document's own is kept
    projections: int = 10  # steps of singular value projection; 30 were no better on validation
    ridge: float = 1.0  # price of large regressors (the paper's lambda); chosen on validation
    sparsity: float = 0.001  # price of large embeddings in the regression (the paper's mu); chosen on validation
    penalty: float = 1.0  # rho of ADMM
    steps: int = 10  # of ADMM
    neighbours: int = 20  # whose labels a document gets; chosen on validation
    workers: int | None = None  # threads of training; None: one a core

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ("learners", "cluster_documents", "dimensions", "similar", "projections", "steps", "neighbours")
        check_range(self, (*counts, "workers"), 1)
        check_range(self, ("ridge", "penalty"), 1e-9)
        check_range(self, ("sparsity",), 0)


@dataclass(frozen=True)
class Cluster:
    """A cluster of one clustering."""

    documents: Array  # (members,)
    centre: Array  # (words,)
    words: Array  # those of its documents
    regressors: Array  # (its words, dimensions), half precision
    embeddings: Array  # (members, dimensions), half precision, each of length 1

    def embed(self, rows: csr_matrix) -> Array:
        """Embed documents: (documents, dimensions), each of length 1."""
        return unit(rows[:, self.words] @ self.regressors.astype(np.float32))

    def nearest(self, rows: csr_matrix, count: int) -> tuple[Array, Array]:
        """Return training documents nearest to each row, (documents, count), and how near each is, from 0 to 1."""
        cosines = self.embed(rows) @ self.embeddings.astype(np.float32).T  # (documents, members)
        count = min(count, len(self.documents))
        best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        near = np.take_along_axis(cosines, best, axis=1)
        return self.documents[best], np.clip(near, 1e-6, 1)


class SLEEC(Classical):
    """Nearest neighbours in local embeddings of label sets."""

    Configuration = SLEECConfiguration
    clusterings_: list[list[Cluster]]
    train_labels_: csr_matrix

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "sleec"

    def learn(self, rows: csr_matrix, labels: csr_matrix) -> None:
        """Cluster the documents several times and embed every cluster."""
        from threadpoolctl import threadpool_limits

        settings = self.configuration_
        rows, sets = scale_rows(rows.astype(np.float32)), scale_rows(labels.astype(np.float32))

        def one(learner: int) -> list[Cluster]:
            random = np.random.default_rng([settings.seed, learner])
            members = clusters_of(rows, settings.cluster_documents, random)
            return [embed_cluster(rows, sets, own, settings, random) for own in members]

        workers = min(settings.learners, settings.workers or available_cores())
        # One thread in each matrix product: its last bits must not depend on how many cores there are.
        with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
            self.clusterings_ = list(pool.map(one, range(settings.learners)))
        self.train_labels_ = labels.astype(np.float32)

    def score(self, rows: csr_matrix) -> csr_matrix:
        """Return how many of a document's neighbours have each label, the nearer counting more."""
        rows = scale_rows(rows)
        size = rows.shape[0], self.train_labels_.shape[0]
        weights = csr_matrix(size, dtype=np.float32)
        for clustering in self.clusterings_:
            owner = nearest_centre(rows, np.stack([cluster.centre for cluster in clustering]))
            for number, cluster in enumerate(clustering):
                mine = np.flatnonzero(owner == number)
                found, near = cluster.nearest(rows[mine], self.configuration_.neighbours)
                near /= near.sum(axis=1, keepdims=True) * len(self.clusterings_)
                entries = near.ravel(), (np.repeat(mine, found.shape[1]), found.ravel())
                weights = weights + csr_matrix(entries, shape=size, dtype=np.float32)
        scores = csr_matrix(weights @ self.train_labels_)
        np.minimum(scores.data, 1, out=scores.data)  # shares add up to 1 but for rounding
        scores.sort_indices()
        return scores

    def tensors(self) -> dict[str, Array]:
        """Return the labels of the training documents and the clusters."""
        named = {"clusterings": np.array([len(clustering) for clustering in self.clusterings_])}
        for number, cluster in enumerate(chain(*self.clusterings_)):
            named.update({f"cluster{number}.{name}": array for name, array in vars(cluster).items()})
        return {**named, **sparse_tensors("labels", self.train_labels_)}

    def restore(self, tensors: Mapping[str, Array], folder: Path) -> None:
        """Take over the labels of the training documents and the clusters."""
        names = [field.name for field in fields(Cluster)]
        ends = np.cumsum(tensors["clusterings"]).tolist()
        clusters = [Cluster(*(tensors[f"cluster{number}.{name}"] for name in names)) for number in range(ends[-1])]
        self.clusterings_ = [clusters[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        self.train_labels_ = sparse_matrix("labels", tensors)


def clusters_of(rows: csr_matrix, largest: int, random: np.random.Generator) -> list[Array]:
    """Cluster documents by k-means until no cluster has more than `largest`; return the documents of each."""
    waiting, done = [np.arange(rows.shape[0])], list[Array]()
    while waiting:
        own = waiting.pop()
        count = -(-len(own) // largest)
        owner = k_means(rows[own], count, random) if count > 1 else np.zeros(len(own), int)
        parts = [own[owner == number] for number in range(count)]
        if count > 1 and max(map(len, parts)) == len(own):  # documents that are all alike
            parts = np.array_split(own, count)
        (waiting if count > 1 else done).extend(part for part in parts if len(part))
    return done


def k_means(rows: csr_matrix, count: int, random: np.random.Generator) -> Array:
    """Return the cluster of each row, from so many rows drawn as first centres."""
    centres = rows[random.choice(rows.shape[0], count, replace=False)].toarray()
    for _ in range(CLUSTERING_STEPS):
        owner = nearest_centre(rows, centres)
        members = csr_matrix((np.ones(len(owner), rows.dtype), (owner, np.arange(len(owner)))), (count, len(owner)))
        sizes = np.bincount(owner, minlength=count)[:, None]
        centres = np.where(sizes > 0, (members @ rows).toarray() / np.maximum(sizes, 1), centres)
    return nearest_centre(rows, centres)


def nearest_centre(rows: csr_matrix, centres: Array) -> Array:
    """Return the number of the centre nearest to each row."""
    return np.asarray(((centres**2).sum(axis=1) - 2 * (rows @ centres.T)).argmin(axis=1))


def embed_cluster(
    rows: csr_matrix, sets: csr_matrix, own: Array, settings: SLEECConfiguration, random: np.random.Generator
) -> Cluster:
    """Embed the label sets of a cluster's documents, and learn to embed documents by their features."""
    words = np.unique(rows[own].indices)
    mine = rows[own][:, words]
    target = project(similarities(sets[own], settings.similar), settings.dimensions, settings.projections, random)
    regressors = regress(mine, target, settings).astype(np.float16)
    # Neighbours are looked for among documents embedded as a new one would be.
    embeddings = unit(mine @ regressors.astype(np.float32)).astype(np.float16)
    centre = np.asarray(rows[own].mean(axis=0), dtype=np.float32).ravel()
    return Cluster(own, centre, words, regressors, embeddings)


def similarities(sets: csr_matrix, nearest: int) -> csr_matrix:
    """Return the inner products of each label set with its nearest ones, symmetric; some of those stored are 0.

    >>> sets = csr_matrix([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> similarities(sets, 2).toarray().round(1).tolist()
    [[1.0, 0.8, 0.0], [0.8, 1.0, 0.6], [0.0, 0.6, 1.0]]
    """
    count, nearest = sets.shape[0], min(nearest, sets.shape[0])
    found, products, columns = [], [], csr_matrix(sets.T)
    for start in range(0, count, DOCUMENTS):
        dense = (sets[start : start + DOCUMENTS] @ columns).toarray()
        found.append(np.argpartition(-dense, nearest - 1, axis=1)[:, :nearest])
        products.append(np.take_along_axis(dense, found[-1], axis=1))
    # One more than the product, so that what is stored is above what is not.
    entries = np.concatenate(products).ravel() + 1, np.concatenate(found).ravel(), np.arange(count + 1) * nearest
    pairs = csr_matrix(entries, shape=(count, count))
    pairs = csr_matrix(pairs.maximum(pairs.T))
    pairs.sort_indices()
    pairs.data -= 1
    return pairs


def inner_products(vectors: Array, pairs: csr_matrix) -> Array:
    """Return the inner product of vectors i and j for every stored entry (i, j), in their order."""
    owner = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    products = np.empty(pairs.nnz, np.float32)
    for start in range(0, pairs.nnz, PAIRS):
        part = slice(start, start + PAIRS)
        np.einsum("ij,ij->i", vectors[owner[part]], vectors[pairs.indices[part]], out=products[part])
    return products


def project(wanted: csr_matrix, dimensions: int, steps: int, random: np.random.Generator) -> Array:
    """Embed so that inner products are as wanted where an entry is stored: (documents, dimensions).

    Singular value projection: a gradient step on the stored entries, then the nearest positive semidefinite matrix of
    that rank, found by subspace iteration from the last step's subspace. Matrices are kept as factors.
    """
    count = wanted.shape[0]
    embedding = np.zeros((count, min(dimensions, count)), np.float32)
    basis = np.linalg.qr(random.standard_normal(embedding.shape, np.float32))[0]
    missing = wanted.copy()
    for step in range(steps):
        missing.data = wanted.data - inner_products(embedding, wanted)
        for _ in range(1 if step else 4):  # nothing to start from at first
            basis = np.linalg.qr(embedding @ (embedding.T @ basis) + missing @ basis)[0]
        image = embedding @ (embedding.T @ basis) + missing @ basis
        values, rotation = np.linalg.eigh(basis.T @ image)
        basis = basis @ rotation
        embedding = basis * np.sqrt(np.maximum(values, 0))
    return embedding


def regress(rows: csr_matrix, target: Array, settings: SLEECConfiguration) -> Array:
    """Minimise |target - rows V|² + ridge |V|² + sparsity |rows V|₁ by ADMM: V is (words, dimensions)."""
    from scipy.linalg import cho_factor, cho_solve

    documents, words = rows.shape
    rho = settings.penalty
    gram = (rows.T @ rows if words <= documents else rows @ rows.T).toarray()  # the smaller of the two
    gram *= 1 + rho
    gram[np.diag_indices_from(gram)] += settings.ridge
    factor = cho_factor(gram, lower=True, overwrite_a=True)
    copy = dual = np.zeros_like(target)  # of the embedding rows V
    for _ in range(settings.steps):
        wanted = target + rho * (copy - dual)
        solution = cho_solve(factor, rows.T @ wanted if words <= documents else wanted)
        embedding = rows @ solution if words <= documents else (rows @ (rows.T @ solution))
        copy = np.sign(embedding + dual) * np.maximum(np.abs(embedding + dual) - settings.sparsity / rho, 0)
        dual = dual + embedding - copy
    return np.asarray(solution if words <= documents else rows.T @ solution)


def unit(vectors: Array) -> Array:
    """Scale each vector to length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1))
