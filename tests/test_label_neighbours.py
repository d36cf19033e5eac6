"""Neighbours in the label graph: those that share most documents, kept with every model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix, random_array

from laha.corpus import Parts
from laha.errors import ModelError
from laha.label_neighbours import FILE, LabelNeighbours
from laha.registry import create, load
from laha.storage import read_manifest, write_manifest


def test_they_are_those_of_a_naive_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laha.label_neighbours.ROWS", 7)  # several pieces
    labels = csr_matrix((random_array((200, 30), density=0.1, rng=np.random.default_rng(0)) > 0).astype(np.float32))
    dense = labels.toarray().astype(int)
    found = LabelNeighbours.of_documents(labels, kept=4)
    for label in range(30):
        shared = {other: int((dense[:, label] * dense[:, other]).sum()) for other in range(30) if other != label}
        best = sorted(((other, n) for other, n in shared.items() if n), key=lambda pair: (-pair[1], pair[0]))
        assert found.of(label) == best[:4]


def test_a_label_alone_has_none() -> None:
    assert LabelNeighbours.of_documents(csr_matrix(np.eye(3, dtype=np.float32))).of(1) == []


@pytest.mark.parametrize("name", ["one-vs-all", "parabel"])
def test_a_model_keeps_them_and_an_older_folder_loads_without(name: str, parts: Parts, tmp_path: Path) -> None:
    model = create(name).fit(parts)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.neighbours_ is not None
    assert model.neighbours_ is not None
    np.testing.assert_array_equal(again.neighbours_.ids, model.neighbours_.ids)
    assert again.neighbours_.of(0)[0][1] > 0
    manifest = read_manifest(tmp_path / "model", "model")
    (tmp_path / "model" / FILE).unlink()
    kept = {key: value for key, value in manifest.items() if key not in ("format", "kind", "files")}
    write_manifest(tmp_path / "model", "model", kept)
    assert load(tmp_path / "model").neighbours_ is None


def test_neighbours_of_other_labels_are_refused(tmp_path: Path) -> None:
    found = LabelNeighbours.of_documents(csr_matrix(np.ones((2, 3), np.float32)))
    found.save(tmp_path)
    with pytest.raises(ModelError, match="is damaged"):
        LabelNeighbours.load(tmp_path, labels=2)
    LabelNeighbours(found.ids + 3, found.documents).save(tmp_path)
    with pytest.raises(ModelError, match="names labels that the model lacks"):
        LabelNeighbours.load(tmp_path, labels=3)
