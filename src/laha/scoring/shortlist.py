"""A shortlist: the document head proposes some labels of each document, and attention scores only those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from laha.network.document_head import DocumentHead
from laha.scoring.folded import FoldedScoring
from laha.scoring.label_index import LabelIndex
from laha.scoring.streaming import fill_top, score_top

SIZES = (64, 128, 256, 512, 1024, 2048)  # what may be chosen
LOSS = 0.1  # points of precision at 5 that the choice may cost on the documents measured
DEPTH = 5


class Shortlist:
    """Scores the `size` labels that a network's document head proposes, with all of its attention."""

    def __init__(self, scoring: FoldedScoring, size: int, index: LabelIndex | None = None):
        head = scoring.network.document_head
        if head is None:
            raise ValueError("the network has no document head to propose labels")
        self.scoring, self.index = scoring, index
        self.head: DocumentHead = head
        self.size = min(size, scoring.labels)

    @torch.inference_mode()
    def score(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the proposed labels of each document, ids and probabilities: (batch, size) each, id -1 for none."""
        documents = self.scoring.encode(words, lengths)
        assert documents.pooled is not None
        ids = self.propose(documents.pooled)
        scores = self.scoring.score(documents, ids.clamp_min(0)).float().sigmoid()
        return ids, scores.masked_fill(ids < 0, 0)

    @torch.inference_mode()
    def top_each(self, words: Tensor, lengths: Tensor, top: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Return ids and logits of the best labels: by the head, and by attention among the head's."""
        documents = self.scoring.encode(words, lengths)
        assert documents.pooled is not None
        proposed, own = self.head.labels(self.head.document(documents.pooled)).topk(self.size, dim=1)
        logits, order = self.scoring.score(documents, proposed).float().topk(min(top, self.size), dim=1)
        return {"attention": (proposed.gather(1, order), logits), "document": (proposed[:, :top], own[:, :top].float())}

    def propose(self, pooled: Tensor) -> Tensor:
        """Return the ids (batch, size) of the labels that the head finds best, best first."""
        vectors = self.head.document(pooled)  # (batch, width)
        if self.index is not None:
            return self.index.search(vectors, self.size)
        ids: Tensor = self.head.labels(vectors).topk(self.size, dim=1).indices
        return ids

    def score_top(self, words: Tensor, lengths: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Return ids and probabilities of the best labels, as `streaming.score_top` does."""
        ids, scores = self.score(words, lengths)
        scores, order = scores.topk(min(top, self.size), dim=1)
        return fill_top(ids.gather(1, order), scores, top)


class Recall:
    """What shortlists of some sizes hold of the exact five best labels, and what that costs in precision at 5."""

    def __init__(self, scoring: FoldedScoring, sizes: Sequence[int] = SIZES, index: LabelIndex | None = None):
        self.sizes = [size for size in sizes if size < scoring.labels] or [scoring.labels]
        self.longest = Shortlist(scoring, self.sizes[-1], index)
        self.found = [0] * len(self.sizes)  # of the exact five best
        self.right = [0] * (len(self.sizes) + 1)  # of the shortlists' five best; the last entry counts the exact ones
        self.wanted = self.documents = 0

    def add(self, words: Tensor, lengths: Tensor, truth: csr_matrix) -> None:
        """Compare the shortlists with the exact ranking, and both with the true labels, for a batch of documents."""
        scoring = self.longest.scoring
        depth = min(DEPTH, scoring.labels)
        exact, _ = score_top(scoring, words, lengths, depth)  # (batch, 5)
        proposed, scores = self.longest.score(words, lengths)  # (batch, size)
        places = (exact.unsqueeze(2) == proposed.unsqueeze(1)).any(dim=1).cumsum(dim=1)  # found so far, by place
        for column, size in enumerate(self.sizes):
            self.found[column] += int(places[:, size - 1].sum())
            best = scores[:, :size].topk(min(depth, size), dim=1).indices
            self.right[column] += hits(proposed.gather(1, best), truth)
        self.right[-1] += hits(exact, truth)
        self.wanted += exact.numel()
        self.documents += len(words)

    def facts(self, size: int | None = None) -> dict[str, Any]:
        """Return what the manifest says: the given size, or the smallest that costs next to no precision."""
        recall = [found / max(1, self.wanted) for found in self.found]
        precision = [100 * right / max(1, DEPTH * self.documents) for right in self.right]
        enough = [place for place, value in enumerate(precision[:-1]) if value >= precision[-1] - LOSS]
        place = self.sizes.index(size) if size in self.sizes else enough[0] if enough else len(recall) - 1
        return {
            "labels": self.sizes[place],
            "recall@5": recall[place],
            "P@5": precision[place],
            "exact P@5": precision[-1],
            "documents": self.documents,
            "measured": {
                str(size): {"recall@5": recall[number], "P@5": precision[number]}
                for number, size in enumerate(self.sizes)
            },
        }


def hits(ids: Tensor, truth: csr_matrix) -> int:
    """Count the label ids (batch, n) that are true for their document; -1 is no label."""
    numbers = ids.cpu().numpy()
    rows, columns = np.nonzero(numbers >= 0)
    return int(np.asarray(truth[rows, numbers[rows, columns]]).sum())
