"""Interaction attention (IA): `Q = W_q L`, `M = H_fᵀ Q + H_bᵀ Q`, `A_I = softmax over words of M`."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from laha.network.self_attention import masked_softmax


class InteractionAttention(nn.Module):
    """For each label a weight for every word, from the label's vector in the label graph."""

    def __init__(self, units: int, label_dimensions: int, labels: int):
        super().__init__()
        self.L = nn.Embedding(labels, label_dimensions)
        self.L.weight.requires_grad = False  # node2vec's vectors stay as they are
        self.W_q = nn.Linear(label_dimensions, units, bias=False)

    def forward(self, states: Tensor, mask: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return A_I of the given labels (all without), zero on padding."""
        queries = self.W_q(self.L.weight if labels is None else self.L(labels))  # (k, r)
        forward_states, backward_states = states.chunk(2, dim=-1)  # (batch, n, r) each
        # H_fᵀ Q + H_bᵀ Q = (H_f + H_b)ᵀ Q: one product instead of two
        return masked_softmax(F.linear(forward_states + backward_states, queries), mask)  # (batch, k, n)
