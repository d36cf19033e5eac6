"""A shortlist: the document head proposes some labels of each document, and attention scores only those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from laha.network.document_head import DocumentHead
from laha.scoring.folded import FoldedScoring
from laha.scoring.label_index import LabelIndex
from laha.scoring.streaming import fill_top, score_top

SIZES = (64, 128, 256, 512, 1024, 2048)  # what may be chosen
WANTED = 0.995  # of the exact five best labels: below that, precision at 5 could fall by more than noise
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
        ids = self.propose(documents.pooled)
        scores = self.scoring.score(documents, ids.clamp_min(0)).float().sigmoid()
        return ids, scores.masked_fill(ids < 0, 0)

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
    """How many of the exact five best labels shortlists of some sizes hold, summed over batches of documents."""

    def __init__(self, scoring: FoldedScoring, sizes: Sequence[int] = SIZES, index: LabelIndex | None = None):
        self.sizes = [size for size in sizes if size < scoring.labels] or [scoring.labels]
        self.longest = Shortlist(scoring, self.sizes[-1], index)
        self.found = [0] * len(self.sizes)
        self.wanted = self.documents = 0

    @torch.inference_mode()
    def add(self, words: Tensor, lengths: Tensor) -> None:
        """Compare the shortlist with the exact ranking for a batch of documents."""
        scoring = self.longest.scoring
        exact, _ = score_top(scoring, words, lengths, min(DEPTH, scoring.labels))  # (batch, 5)
        proposed = self.longest.propose(scoring.encode(words, lengths).pooled)  # (batch, size)
        places = (exact.unsqueeze(2) == proposed.unsqueeze(1)).any(dim=1).cumsum(dim=1)  # found so far, by place
        for column, size in enumerate(self.sizes):
            self.found[column] += int(places[:, size - 1].sum())
        self.wanted += exact.numel()
        self.documents += len(words)

    def facts(self, size: int | None = None) -> dict[str, Any]:
        """Return what the manifest says: the given size, or the smallest that holds enough of the five best."""
        recall = [found / max(1, self.wanted) for found in self.found]
        enough = [place for place, value in enumerate(recall) if value >= WANTED]
        place = self.sizes.index(size) if size in self.sizes else enough[0] if enough else len(recall) - 1
        measured = {str(size): value for size, value in zip(self.sizes, recall, strict=True)}
        return {
            "labels": self.sizes[place],
            "recall@5": recall[place],
            "documents": self.documents,
            "measured": measured,
        }
