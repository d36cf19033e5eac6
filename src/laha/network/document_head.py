"""A document-level head: one vector a document, one product with all labels' vectors.

Not part of the paper's model: it learns once the network is trained, from what the encoder makes of a document, and
changes nothing in it. Its best labels are the shortlist that attention is spent on where labels are many.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DocumentHead(nn.Module):
    """A pooled document -> logits of all labels."""

    def __init__(self, units: int, word_dimensions: int, width: int, labels: int):
        super().__init__()
        self.hidden = nn.Linear(4 * units + word_dimensions, width)
        self.labels = nn.Linear(width, labels)

    def forward(self, pooled: Tensor) -> Tensor:
        """Return the logits of all labels for pooled documents."""
        logits: Tensor = self.labels(self.document(pooled))
        return logits  # (batch, k)

    def document(self, pooled: Tensor) -> Tensor:
        """Return the documents' vectors."""
        return torch.relu(self.hidden(pooled))  # (batch, width)


def pool(states: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
    """Return mean and maximum of the states, and the mean of the word vectors, over each document's words."""
    inside = mask.unsqueeze(-1)
    words = inside.sum(dim=1)
    mean = (states * inside).sum(dim=1) / words
    most = states.masked_fill(~inside, -torch.inf).amax(dim=1)
    return torch.cat([mean, most, (vectors * inside).sum(dim=1) / words], dim=-1)  # (batch, 4r + 300)
