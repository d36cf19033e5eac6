"""An approximate index over the document head's label vectors, for label sets where even one product is too much.

Label vectors lie in cells around centres; a search reads the cells nearest to a document. Built and searched by faiss
(the extra `ann`), but stored as plain arrays: the centres, and each label's cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laha.errors import LahaError

INDEX_ABOVE = 200_000  # labels; below, one product with all vectors is as fast
PROBES = 64  # cells read for a document
TRAINED_ON = 64  # vectors a centre is found from: more take longer and gain nothing


class LabelIndex:
    """Finds the labels whose vector and bias give a document the largest logits, nearly all of them."""

    def __init__(self, centres: NDArray[np.float32], cells: NDArray[np.int32], vectors: NDArray[np.float32]):
        faiss = _faiss()
        self.centres, self.cells = centres, cells
        quantizer = faiss.IndexFlatIP(vectors.shape[1])
        quantizer.add(centres)
        half = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(
            quantizer, vectors.shape[1], len(centres), half, faiss.METRIC_INNER_PRODUCT, False
        )
        index.is_trained = True
        order = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[order], np.arange(len(centres) + 1))
        for cell in np.flatnonzero(np.diff(starts)):
            labels = order[starts[cell] : starts[cell + 1]].astype(np.int64)
            codes = vectors[labels].astype(np.float16).view(np.uint8)
            index.invlists.add_entries(int(cell), len(labels), faiss.swig_ptr(labels), faiss.swig_ptr(codes))
        index.ntotal = len(vectors)
        index.nprobe = PROBES
        self._index, self._quantizer = index, quantizer  # faiss does not keep the quantizer alive by itself

    @classmethod
    def build(cls, head: Any, seed: int = 0) -> Self:
        """Find the centres and every label's cell."""
        faiss = _faiss()
        vectors = label_rows(head)
        count = min(len(vectors), max(1, round(4 * math.sqrt(len(vectors)))))
        kmeans = faiss.Kmeans(
            vectors.shape[1], count, niter=8, spherical=True, seed=seed, max_points_per_centroid=TRAINED_ON
        )
        kmeans.cp.min_points_per_centroid = 1
        kmeans.train(vectors)
        cells = kmeans.index.search(vectors, 1)[1][:, 0].astype(np.int32)
        return cls(np.ascontiguousarray(kmeans.centroids), cells, vectors)

    @classmethod
    def restore(cls, head: Any, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Make the index again from what `arrays` gave."""
        return cls(arrays["index.centres"], arrays["index.cells"], label_rows(head))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is to be stored; the label vectors are stored with the head."""
        return {"index.centres": self.centres, "index.cells": self.cells}

    def search(self, documents: Tensor, size: int) -> Tensor:
        """Return label ids (batch, size), best first; -1 where the cells read hold fewer."""
        _faiss().omp_set_num_threads(torch.get_num_threads())
        ones = torch.ones(len(documents), 1)
        queries = torch.cat([documents.float().cpu(), ones], dim=1).numpy()
        found = self._index.search(queries, size)[1]
        return torch.from_numpy(found).to(documents.device)


def label_rows(head: Any) -> NDArray[np.float32]:
    """Return each label's vector with its bias as one more number, so that an inner product is a logit."""
    weight, bias = head.labels.weight, head.labels.bias
    rows: NDArray[np.float32] = torch.cat([weight, bias.unsqueeze(1)], dim=1).detach().float().cpu().numpy()
    return rows  # (k, width + 1)


def index_available() -> bool:
    """Say whether faiss is installed."""
    try:
        _faiss()
    except LahaError:
        return False
    return True


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise LahaError("the label index needs faiss: 'pip install laha[ann]'") from error
    return faiss
