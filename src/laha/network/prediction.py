"""Prediction: `ŷ = σ(W_o ReLU(W_f C))`, one shared layer for all labels; where asked for, a row `W_o + w_j` a label."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Prediction(nn.Module):
    """A label-aware representation -> the logit of its label."""

    def __init__(self, units: int, own_outputs: int = 0):
        super().__init__()
        self.W_f = nn.Linear(2 * units, units)
        self.W_o = nn.Linear(units, 1)
        # Not the paper's: a row and a bias of its own for each label, as a difference from the shared W_o, b_o.
        self.own = nn.Embedding(own_outputs, units + 1) if own_outputs else None
        if self.own is not None:
            nn.init.zeros_(self.own.weight)

    def forward(self, C: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of ŷ; `labels` names those of C where they have outputs of their own and are not all."""
        hidden = self.W_f(C).relu()  # (batch, k, r)
        if self.own is None:
            logits: Tensor = self.W_o(hidden)  # (batch, k, 1)
            return logits.squeeze(-1)
        outputs = self.outputs(labels).to(hidden.dtype)
        return torch.einsum("bkr,kr->bk", hidden, outputs[:, :-1]) + outputs[:, -1]

    def outputs(self, labels: Tensor | None = None) -> Tensor:
        """Return for each label a row in place of W_o, and its bias last: (k, r + 1)."""
        assert self.own is not None
        own: Tensor = self.own.weight if labels is None else self.own(labels)
        return own + torch.cat([self.W_o.weight[0], self.W_o.bias])
