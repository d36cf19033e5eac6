"""Prediction: `ŷ = σ(W_o ReLU(W_f C))`, one shared layer for all labels."""

from __future__ import annotations

from torch import Tensor, nn


class Prediction(nn.Module):
    """A label-aware representation -> the logit of its label."""

    def __init__(self, units: int):
        super().__init__()
        self.W_f = nn.Linear(2 * units, units)
        self.W_o = nn.Linear(units, 1)

    def forward(self, C: Tensor) -> Tensor:
        """Return the logits of ŷ."""
        logits: Tensor = self.W_o(self.W_f(C).relu())  # (batch, k, 1)
        return logits.squeeze(-1)
