"""Score documents on all labels while chunks of labels stream by, so that memory is bounded whatever their number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

# Numbers held at once: what fits a small machine, and what keeps a GPU busy.
BUDGET = {"cpu": 2**25, "cuda": 2**29}
# Words encoded at once: the LSTM of a GPU wants hundreds of documents, the cache of a CPU fewer.
WORDS = {"cpu": 2**14, "cuda": 2**18}


class Scoring(Protocol):
    """A way to score: the documents' part once, then any labels. A network as it is written is one itself."""

    labels: int

    def encode(self, words: Tensor, lengths: Tensor) -> Any:
        """Compute what does not depend on labels."""

    def score(self, encoded: Any, labels: Tensor | None = None) -> Tensor:
        """Return logits (batch, labels)."""

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers that one document and one label hold at once."""


class Accompanied(Scoring, Protocol):
    """A way to score a network whose document head is trained beside its attention."""

    def companion(self, encoded: Any, labels: Tensor | None = None) -> Tensor:
        """Return the head's logits (batch, labels)."""


def budget(device: torch.device) -> int:
    """Return how many numbers may be held at once on a device."""
    return BUDGET.get(device.type, BUDGET["cpu"])


def words_at_once(device: torch.device) -> int:
    """Return how many words, padding counted, a batch of documents to score may hold on a device."""
    return WORDS.get(device.type, WORDS["cpu"])


def label_chunks(scoring: Scoring, words: Tensor) -> Iterator[Tensor]:
    """Split all label ids so that one chunk's scoring stays within the budget of the device."""
    batch, n = words.shape
    size = max(1, budget(words.device) // (batch * scoring.numbers_per_label(n)))
    for start in range(0, scoring.labels, size):
        yield torch.arange(start, min(start + size, scoring.labels), device=words.device)


@torch.inference_mode()
def score_all(scoring: Scoring, words: Tensor, lengths: Tensor) -> Tensor:
    """Return the probabilities of all labels."""
    encoded = scoring.encode(words, lengths)
    parts = [scoring.score(encoded, labels).float() for labels in label_chunks(scoring, words)]
    return torch.cat(parts, dim=1).sigmoid()  # (batch, k)


def score_some(scoring: Scoring, encoded: Any, labels: Tensor, n: int) -> Tensor:
    """Return logits of the given labels, or of a row of them for each document, chunk by chunk."""
    batch = len(labels) if labels.dim() == 2 else len(encoded[0])
    size = max(1, budget(labels.device) // (batch * scoring.numbers_per_label(n)))
    return torch.cat([scoring.score(encoded, chunk) for chunk in torch.split(labels, size, dim=-1)], dim=-1)


@torch.inference_mode()
def score_top(scoring: Scoring, words: Tensor, lengths: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return ids and probabilities of the best labels, kept while chunks stream by: never batch × k at once.

    Where there are fewer labels than asked for, id -1 and score 0 fill the rest.
    """
    encoded, best = scoring.encode(words, lengths), Best(words, top)
    for labels in label_chunks(scoring, words):
        best.add(labels, scoring.score(encoded, labels))
    return fill_top(best.ids, best.scores.sigmoid(), top)


@torch.inference_mode()
def score_top_each(scoring: Accompanied, words: Tensor, lengths: Tensor, top: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return ids and scores of the best labels: logits by attention and by document head, and their mean probability.

    Fewer than `top` where there are fewer labels.
    """
    encoded = scoring.encode(words, lengths)
    best = {name: Best(words, top) for name in ("attention", "document", "mean")}
    for labels in label_chunks(scoring, words):
        attention = scoring.score(encoded, labels).float()
        document = scoring.companion(encoded, labels).float()
        best["attention"].add(labels, attention)
        best["document"].add(labels, document)
        best["mean"].add(labels, (attention.sigmoid() + document.sigmoid()) / 2)
    return {name: (own.ids, own.scores) for name, own in best.items()}


class Best:
    """The best labels of each document, kept while chunks of labels stream by."""

    def __init__(self, words: Tensor, top: int):
        self.top = top
        self.ids = torch.empty((len(words), 0), dtype=torch.long, device=words.device)
        self.scores = torch.empty((len(words), 0), device=words.device)

    def add(self, labels: Tensor, scores: Tensor) -> None:
        """Take in the scores (batch, labels) of a chunk of labels."""
        scores, columns = scores.float().topk(min(self.top, len(labels)), dim=1)
        ids = torch.cat([self.ids, labels[columns]], dim=1)
        self.scores, order = torch.cat([self.scores, scores], dim=1).topk(min(self.top, ids.shape[1]), dim=1)
        self.ids = ids.gather(1, order)


def fill_top(ids: Tensor, scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Widen to `top` columns: id -1 and score 0 where there is no label."""
    missing = max(0, top - ids.shape[1])
    pad = torch.nn.functional.pad
    return pad(ids, (0, missing), value=-1), pad(scores, (0, missing))
