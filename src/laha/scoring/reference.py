"""Score documents on all labels with the network as it is written, labels in chunks so that memory is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

# Numbers held at once: what fits a small machine, and what keeps a GPU busy.
BUDGET = {"cpu": 2**25, "cuda": 2**29}


class LabelNetwork(Protocol):
    """What a network offers for scoring: the document's part once, then any labels."""

    labels: int

    def encode(self, words: Tensor, lengths: Tensor) -> Any:
        """Compute what does not depend on labels."""

    def score(self, encoded: Any, labels: Tensor | None = None) -> Tensor:
        """Return logits (batch, labels)."""

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers that one document and one label hold at once."""


def label_chunks(network: LabelNetwork, words: Tensor) -> Iterator[Tensor]:
    """Split all label ids so that one chunk's scoring stays within the budget of the device."""
    batch, n = words.shape
    budget = BUDGET.get(words.device.type, BUDGET["cpu"])
    size = max(1, budget // (batch * network.numbers_per_label(n)))
    for start in range(0, network.labels, size):
        yield torch.arange(start, min(start + size, network.labels), device=words.device)


@torch.inference_mode()
def score_all(network: LabelNetwork, words: Tensor, lengths: Tensor) -> Tensor:
    """Return the probabilities of all labels."""
    encoded = network.encode(words, lengths)
    parts = [network.score(encoded, labels).float() for labels in label_chunks(network, words)]
    return torch.cat(parts, dim=1).sigmoid()  # (batch, k)


@torch.inference_mode()
def score_top(network: LabelNetwork, words: Tensor, lengths: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return ids and probabilities of the best labels, kept while chunks stream by: never batch × k at once.

    Where there are fewer labels than asked for, id -1 and score 0 fill the rest.
    """
    encoded = network.encode(words, lengths)
    best_ids = torch.empty((len(words), 0), dtype=torch.long, device=words.device)
    best_logits = torch.empty((len(words), 0), device=words.device)
    for labels in label_chunks(network, words):
        logits = network.score(encoded, labels).float()  # (batch, chunk)
        logits = torch.cat([best_logits, logits], dim=1)
        ids = torch.cat([best_ids, labels.expand(len(words), -1)], dim=1)
        best_logits, order = logits.topk(min(top, logits.shape[1]), dim=1)
        best_ids = ids.gather(1, order)
    missing = max(0, top - network.labels)
    pad = torch.nn.functional.pad
    return pad(best_ids, (0, missing), value=-1), pad(best_logits.sigmoid(), (0, missing))
