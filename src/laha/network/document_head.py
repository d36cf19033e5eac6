"""A document-level head: one vector a document, one product with all labels' vectors.

Not part of the paper's model. It learns once the network is trained, from what the encoder makes of a document, and
changes nothing in it; or, where asked for, beside the attention by a loss of its own, and then the encoder learns from
both. Its best labels are the shortlist that attention is spent on where labels are many.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DocumentHead(nn.Module):
    """A pooled document -> logits of all labels."""

    def __init__(self, units: int, word_dimensions: int, width: int, labels: int, dropout: float = 0.0):
        super().__init__()
        self.hidden = nn.Linear(4 * units + word_dimensions, width)
        self.labels = nn.Linear(width, labels)
        self.dropout = nn.Dropout(dropout)  # on the documents' vectors

    def forward(self, pooled: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of the given labels (all without) for pooled documents."""
        vectors = self.document(pooled)
        if labels is None:
            logits: Tensor = self.labels(vectors)
            return logits  # (batch, k)
        return F.linear(vectors, self.labels.weight[labels], self.labels.bias[labels])

    def document(self, pooled: Tensor) -> Tensor:
        """Return the documents' vectors."""
        vectors: Tensor = self.dropout(torch.relu(self.hidden(pooled)))
        return vectors  # (batch, width)


def pool(states: Tensor, vectors: Tensor, mask: Tensor) -> Tensor:
    """Return mean and maximum of the states, and the mean of the word vectors, over each document's words."""
    inside = mask.unsqueeze(-1)
    words = inside.sum(dim=1)
    mean = (states * inside).sum(dim=1) / words
    most = states.masked_fill(~inside, -torch.inf).amax(dim=1)
    return torch.cat([mean, most, (vectors * inside).sum(dim=1) / words], dim=-1)  # (batch, 4r + 300)
