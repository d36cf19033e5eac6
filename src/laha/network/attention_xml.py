"""AttentionXML (You et al. 2019): a Bi-LSTM, one attention vector a label, and layers that all labels share."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from laha.network.encoder import Encoder, word_mask
from laha.network.laha import Attended, Encoded
from laha.network.self_attention import masked_softmax


class AttentionXMLNetwork(nn.Module):
    """Scores of labels: `A = softmax over words of H W_j`, `m_j = A H`, then the shared layers."""

    def __init__(
        self,
        words: int,
        word_dimensions: int,
        labels: int,
        units: int = 256,
        hidden_units: int = 256,
        hidden_layers: int = 1,
        word_dropout: float = 0.0,
        state_dropout: float = 0.0,
    ):
        super().__init__()
        self.labels, self.units, self.hidden_units = labels, units, hidden_units
        self.encoder = Encoder(words, word_dimensions, units, word_dropout, state_dropout)
        self.attention = nn.Embedding(labels, 2 * units)  # a row a label, so that a sample of labels can be taken
        nn.init.uniform_(self.attention.weight, -((2 * units) ** -0.5), (2 * units) ** -0.5)
        widths = [2 * units] + [hidden_units] * hidden_layers
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.output = nn.Linear(widths[-1], 1)

    def encode(self, words: Tensor, lengths: Tensor) -> Encoded:
        """Run the encoder; all labels are scored from what it returns."""
        return Encoded(self.encoder(words, lengths), word_mask(lengths, words.shape[1]))

    def attend(self, encoded: Encoded, labels: Tensor | None = None) -> Attended:
        """Return the representations of the given labels (all without), or of a row of labels for each document."""
        H, mask = encoded
        W = self.attention.weight if labels is None else self.attention(labels)  # (k, 2r) or (batch, k, 2r)
        A = masked_softmax(H @ W.transpose(-2, -1), mask)  # (batch, k, n)
        return Attended(A.to(H.dtype) @ H, 1.0, A, None)

    def score(self, encoded: Encoded, labels: Tensor | None = None) -> Tensor:
        """Return the logits of the given labels (all without)."""
        m = self.attend(encoded, labels).C  # (batch, k, 2r)
        for layer in self.hidden:
            m = layer(m).relu()  # (batch, k, hidden)
        logits: Tensor = self.output(m)
        return logits.squeeze(-1)  # (batch, k)

    def forward(self, words: Tensor, lengths: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of documents given as padded word ids and lengths."""
        return self.score(self.encode(words, lengths), labels)

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers held at once for one document and one label: attention logits and weights, m, layers."""
        return 4 * n + 2 * self.units + 2 * self.hidden_units
