"""Adaptive fusion (FA) of the two label-aware representations of a document."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AdaptiveFusion(nn.Module):
    """`a = σ(F1 C_S)`, `b = σ(F2 C_I)`, `α = a / (a + b)`: how much each label trusts self-attention."""

    def __init__(self, units: int):
        super().__init__()
        self.F1 = nn.Linear(2 * units, 1)
        self.F2 = nn.Linear(2 * units, 1)

    def forward(self, C_S: Tensor, C_I: Tensor) -> Tensor:
        """Return α."""
        a, b = self.F1(C_S), self.F2(C_I)
        # a / (a + b) on the gates' logits: σ(x) / (σ(x) + σ(y)) = σ(log σ(x) − log σ(y)), exact where both vanish
        return torch.sigmoid(nn.functional.logsigmoid(a) - nn.functional.logsigmoid(b))  # (batch, k, 1)


class MeanFusion(nn.Module):
    """The ablation: both count the same, `α = β = 1/2`."""

    def forward(self, C_S: Tensor, C_I: Tensor) -> Tensor:
        """Return α."""
        return torch.full_like(C_S[..., :1], 0.5)  # (batch, k, 1)
