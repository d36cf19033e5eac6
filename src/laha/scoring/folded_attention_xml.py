"""AttentionXML's own scores from fewer numbers, as `folded` has them for LAHA: its first layer before the sum.

Attention is linear in its values, so `W_1 (A H) + b_1 = A (W_1 H) + b_1`: per document and label the attention yields
as many numbers as the first layer has units, in place of the 2r of `m`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from laha.network.attention_xml import AttentionXMLNetwork
from laha.scoring.folded import Documents, FoldedScoring, Queries, attention, whole


class FoldedAttentionXML(FoldedScoring):
    """Scores what an AttentionXMLNetwork scores, on any device, with gradients: one attention, and its layers."""

    def __init__(self, network: AttentionXMLNetwork):
        self.labels = network.labels
        self._encoder, self._attention = network.encoder, network.attention
        self._layers = [*cast(Iterable[nn.Linear], network.hidden), network.output]

    def encode(self, words: Tensor, lengths: Tensor) -> Documents:
        """Run the encoder and apply the first layer, but for its bias."""
        H = self._encoder(words, lengths)  # (batch, n, 2r)
        V = F.linear(H, self._layers[0].weight)  # (batch, n, hidden)
        return Documents(K_S=H, K_I=None, V=V, g=None, lengths=lengths, pooled=None)

    def queries(self, labels: Tensor | None = None) -> Queries:
        """Return the attention's rows of the given label ids (all without)."""
        return Queries(self._attention.weight if labels is None else self._attention(labels), None)

    def _logits(self, documents: Documents, mask: Tensor | None, queries: Queries) -> Tensor:
        K, _, V = documents[:3]
        assert K is not None
        assert queries.Q_S is not None
        A = attention(queries.Q_S, K, mask)  # ([batch,] k, n)
        first, *others = self._layers
        m = A.to(V.dtype) @ V + first.bias  # ([batch,] k, hidden)
        for layer in others:
            m = layer(m.relu())
        return whole(m.squeeze(-1))  # ([batch,] k)
