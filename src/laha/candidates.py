"""Candidates: the few nodes of a label tree's level that a document is trained and validated on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from laha.network.attention_xml_tree import log_share
from laha.scoring.streaming import fill_top


@dataclass(frozen=True)
class Candidates:
    """Of each document the parents whose children are its candidates, with what the levels above think of them."""

    parents: NDArray[np.int32]  # (documents, C)
    shares: NDArray[np.float32]  # (documents, C): log probabilities
    children: NDArray[np.int64]  # (parents, most), -1 where a parent has fewer

    def take(self, documents: NDArray[np.int64]) -> Candidates:
        """Return the candidates of some documents."""
        return Candidates(self.parents[documents], self.shares[documents], self.children)

    def ids(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the candidates (documents, C · most), -1 for none."""
        return self.children[self.parents[documents]].reshape(len(documents), -1)

    def targets(self, documents: NDArray[np.int64], truth: csr_matrix) -> tuple[Tensor, Tensor, Tensor]:
        """Return the candidates' ids, which of them are right, and 0 as the weight of those that are none."""
        ids = self.ids(documents)
        own, labels = np.arange(len(documents)), truth.shape[1]
        right = np.isin(own[:, None] * labels + ids, np.repeat(own, np.diff(truth.indptr)) * labels + truth.indices)
        known = ids >= 0
        return (
            torch.from_numpy(np.maximum(ids, 0)),
            torch.from_numpy((right & known).astype(np.float32)),
            torch.from_numpy(known.astype(np.float32)),
        )

    def best(self, documents: NDArray[np.int64], logits: Tensor, top: int) -> NDArray[np.int64]:
        """Return the `top` best candidates by the product along their paths, given the level's logits of all."""
        ids = self.ids(documents)
        above = torch.from_numpy(np.repeat(self.shares[documents], self.children.shape[1], axis=1))
        shares = (log_share(logits).cpu() + above).masked_fill(torch.from_numpy(ids < 0), -torch.inf)
        best, places = shares.topk(min(top, shares.shape[1]), dim=1)
        found = torch.from_numpy(ids).gather(1, places).masked_fill(best.isinf(), -1)
        return fill_top(found, best, top)[0].numpy()


def with_ancestors(
    ids: NDArray[np.int64], shares: NDArray[np.float32], truth: csr_matrix
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Put the right nodes first, then the best scored, as many as there were: what the level below is trained on.

    >>> truth = csr_matrix(np.array([[0, 0, 0, 1.0]]))
    >>> with_ancestors(np.array([[2, 0]]), np.zeros((1, 2)), truth)[0]
    array([[3, 2]])
    """
    ids, shares = ids.copy(), shares.copy()
    for row in range(len(ids)):
        right = truth.indices[truth.indptr[row] : truth.indptr[row + 1]][: ids.shape[1]]
        others = ids[row][~np.isin(ids[row], right)][: ids.shape[1] - len(right)]
        ids[row] = np.concatenate([right, others])
        shares[row] = 0
    return ids, shares
