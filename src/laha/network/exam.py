"""EXAM (Du et al. 2019): every word meets every label in a dot product; what a label makes of its row is learned."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from laha.network.encoder import reversed_positions, word_mask


class GRUEncoder(nn.Module):
    """Word ids -> states of a forward and a backward GRU, run over padded batches as `Encoder` runs its LSTMs."""

    def __init__(
        self, words: int, word_dimensions: int, units: int, word_dropout: float = 0.0, state_dropout: float = 0.0
    ):
        super().__init__()
        self.word_vectors = nn.Embedding(words, word_dimensions, padding_idx=0)
        self.forward_gru = nn.GRU(word_dimensions, units, batch_first=True)
        self.backward_gru = nn.GRU(word_dimensions, units, batch_first=True)
        self.word_dropout = nn.Dropout(word_dropout)
        self.state_dropout = nn.Dropout(state_dropout)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return one row a word: forward states, then backward states."""
        vectors = self.word_dropout(self.word_vectors(words))  # (batch, n, 300)
        reversal = reversed_positions(lengths, words.shape[1]).unsqueeze(-1)  # (batch, n, 1)
        forward_states, _ = self.forward_gru(vectors)  # (batch, n, r)
        backward_states, _ = self.backward_gru(vectors.gather(1, reversal.expand_as(vectors)))
        backward_states = backward_states.gather(1, reversal.expand_as(backward_states))
        states: Tensor = self.state_dropout(torch.cat([forward_states, backward_states], dim=-1))
        return states  # (batch, n, 2r)


class Encoded(NamedTuple):
    """A batch of documents after the encoder."""

    states: Tensor  # (batch, n, 2r)
    mask: Tensor  # (batch, n)


class EXAMNetwork(nn.Module):
    """Scores of labels from the interaction of words and labels, `W_2 ReLU(W_1 (H T_j) + b_1) + b_2`."""

    def __init__(
        self,
        words: int,
        word_dimensions: int,
        labels: int,
        max_words: int,
        units: int = 256,
        aggregation_units: int = 60,
        word_dropout: float = 0.0,
        state_dropout: float = 0.0,
    ):
        super().__init__()
        self.labels, self.aggregation_units = labels, aggregation_units
        self.encoder = GRUEncoder(words, word_dimensions, units, word_dropout, state_dropout)
        self.T = nn.Embedding(labels, 2 * units)  # a row a label, so that a sample of labels can be taken
        nn.init.uniform_(self.T.weight, -((2 * units) ** -0.5), (2 * units) ** -0.5)
        self.hidden = nn.Linear(max_words, aggregation_units)
        self.output = nn.Linear(aggregation_units, 1)

    def encode(self, words: Tensor, lengths: Tensor) -> Encoded:
        """Run the encoder; all labels are scored from what it returns."""
        return Encoded(self.encoder(words, lengths), word_mask(lengths, words.shape[1]))

    def score(self, encoded: Encoded, labels: Tensor | None = None) -> Tensor:
        """Return the logits of the given labels (all without)."""
        states, mask = encoded
        T = self.T.weight if labels is None else self.T(labels)  # (k, 2r)
        interaction = F.linear(states, T) * mask.unsqueeze(-1)  # (batch, n, k)
        # Where there is no word there is no interaction: of W_1, the columns of the words that there are suffice.
        weight = self.hidden.weight[:, : states.shape[1]]
        hidden = F.linear(interaction.transpose(1, 2), weight, self.hidden.bias).relu()  # (batch, k, units)
        logits: Tensor = self.output(hidden)
        return logits.squeeze(-1)  # (batch, k)

    def forward(self, words: Tensor, lengths: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of documents given as padded word ids and lengths."""
        return self.score(self.encode(words, lengths), labels)

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers held at once for one document and one label: dot products, masked, and the hidden layer."""
        return 3 * n + 2 * self.aggregation_units
