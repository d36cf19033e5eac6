"""SLEEC: its projection against exact answers, its regression against the closed form, toys, seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from laha.baselines.sleec import SLEEC, SLEECConfiguration, clusters_of, inner_products, project, regress, similarities


def test_the_projection_keeps_the_inner_products_that_are_stored() -> None:
    random = np.random.default_rng(0)
    vectors = random.standard_normal((40, 3)).astype(np.float32)
    gram = vectors @ vectors.T
    mask = np.triu(random.random((40, 40)) < 0.6)
    wanted = csr_matrix(np.where(mask | mask.T, gram, 0))
    found = project(wanted, dimensions=3, steps=200, random=random)
    np.testing.assert_allclose(inner_products(found, wanted), wanted.data, atol=0.05)
    np.testing.assert_allclose(found @ found.T, gram, atol=0.2)  # three dimensions leave no other choice


def test_stored_products_may_be_zero_and_still_be_wanted() -> None:
    sets = csr_matrix(np.eye(3, dtype=np.float32))
    pairs = similarities(sets, 3)
    assert pairs.nnz == 9
    np.testing.assert_allclose(pairs.toarray(), np.eye(3), atol=1e-6)


def test_the_regression_without_sparsity_is_ridge_in_both_its_forms() -> None:
    random = np.random.default_rng(1)
    for documents, words in ((30, 8), (8, 30)):
        rows = random.random((documents, words)).astype(np.float32)
        target = random.standard_normal((documents, 2)).astype(np.float32)
        settings = SLEECConfiguration(sparsity=0, ridge=2.0, steps=300)
        expected = np.linalg.solve(rows.T @ rows + 2 * np.eye(words), rows.T @ target)
        np.testing.assert_allclose(regress(csr_matrix(rows), target, settings), expected, atol=5e-3)


def test_sparsity_shrinks_embeddings() -> None:
    random = np.random.default_rng(1)
    rows, target = np.eye(20, dtype=np.float32), random.standard_normal((20, 3)).astype(np.float32)
    sizes = [
        np.abs(regress(csr_matrix(rows), target, SLEECConfiguration(sparsity=price, ridge=0.01, steps=100))).sum()
        for price in (0.0, 0.3, 1.0)
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_no_cluster_is_too_large() -> None:
    random = np.random.default_rng(0)
    rows = csr_matrix(random.random((50, 5)).astype(np.float32))
    for documents in (rows, csr_matrix(np.ones((50, 5), np.float32))):  # the second are all alike
        found = clusters_of(documents, 12, random)
        assert max(map(len, found)) <= 12
        assert sorted(np.concatenate(found).tolist()) == list(range(50))


def toy() -> tuple[list[str], list[list[str]]]:
    random = np.random.default_rng(0)
    topics = random.integers(0, 8, 160)
    texts = [f"topic{topic} noise{noise}" for topic, noise in zip(topics, random.integers(0, 5, 160), strict=True)]
    return texts, [[f"topic{topic}"] for topic in topics]


def test_separable_topics_are_learned_in_one_cluster_and_in_several() -> None:
    texts, labels = toy()
    for largest in (1000, 60):
        model = SLEEC(learners=2, cluster_documents=largest, neighbours=3, similar=10, dimensions=8).fit(texts, labels)
        assert [row[0][0] for row in model.predict(texts, top=1).named()] == [own[0] for own in labels]


def test_each_seed_has_its_own_bytes(tmp_path: Path) -> None:
    texts, labels = toy()
    written = []
    for number, (seed, workers) in enumerate([(1, 1), (1, 2), (2, 1)]):
        model = SLEEC(learners=2, cluster_documents=60, dimensions=8, seed=seed, workers=workers).fit(texts, labels)
        model.save(tmp_path / str(number))
        written.append((tmp_path / str(number) / "weights.safetensors").read_bytes())
    assert written[0] == written[1]
    assert written[0] != written[2]
