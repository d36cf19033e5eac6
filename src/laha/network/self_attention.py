"""Label self-attention (SA): `A_S = softmax over words of W_s2 tanh(W_s1 H)`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    """For each label a weight for every word, from the words alone."""

    def __init__(self, units: int, attention_units: int, labels: int):
        super().__init__()
        self.W_s1 = nn.Linear(2 * units, attention_units, bias=False)
        self.W_s2 = nn.Embedding(labels, attention_units)  # a row a label, so that a sample of labels can be taken
        nn.init.uniform_(self.W_s2.weight, -(attention_units**-0.5), attention_units**-0.5)

    def forward(self, states: Tensor, mask: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return A_S of the given labels (all without), zero on padding."""
        queries = self.W_s2.weight if labels is None else self.W_s2(labels)  # (k, d_a)
        logits = F.linear(torch.tanh(self.W_s1(states)), queries)  # (batch, n, k)
        return masked_softmax(logits, mask)  # (batch, k, n)


def masked_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the words of each document; padding gets exactly no weight."""
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    logits = logits.masked_fill(~mask.unsqueeze(-1), -torch.inf)
    return torch.softmax(logits.transpose(1, 2), dim=-1)
