"""The whole network: encoder, two attentions, their fusion, prediction; as the formulas are written."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from laha.network.document_head import DocumentHead
from laha.network.encoder import Encoder, word_mask
from laha.network.fusion import AdaptiveFusion, MeanFusion
from laha.network.interaction_attention import InteractionAttention
from laha.network.prediction import Prediction
from laha.network.self_attention import SelfAttention

ATTENTIONS = ("hybrid", "self", "interaction")
FUSIONS = ("adaptive", "mean")


class Encoded(NamedTuple):
    """A batch of documents after the encoder."""

    states: Tensor  # H: (batch, n, 2r)
    mask: Tensor  # (batch, n)


class Attended(NamedTuple):
    """What the attentions make of a batch: a representation a label, and the weights behind it."""

    C: Tensor  # (batch, k, 2r)
    alpha: Tensor | float  # (batch, k, 1), or the constant of an ablation
    A_S: Tensor | None  # (batch, k, n)
    A_I: Tensor | None  # (batch, k, n)


class LAHANetwork(nn.Module):
    """Scores of labels for documents of word ids, from label-aware representations by hybrid attention."""

    def __init__(
        self,
        words: int,
        word_dimensions: int,
        labels: int,
        label_dimensions: int,
        units: int = 256,
        attention_units: int = 256,
        attention: str = "hybrid",
        fusion: str = "adaptive",
        word_dropout: float = 0.0,
        state_dropout: float = 0.0,
        document_units: int = 0,
        own_outputs: bool = False,
        document_dropout: float = 0.0,
    ):
        super().__init__()
        self.labels = labels
        self.units = units
        self.encoder = Encoder(words, word_dimensions, units, word_dropout, state_dropout)
        self.self_attention = None if attention == "interaction" else SelfAttention(units, attention_units, labels)
        self.interaction_attention = (
            None if attention == "self" else InteractionAttention(units, label_dimensions, labels)
        )
        adaptive = attention == "hybrid" and fusion == "adaptive"
        self.fusion = AdaptiveFusion(units) if adaptive else MeanFusion()
        self.prediction = Prediction(units, labels if own_outputs else 0)
        # Not the paper's: made last, so that all else begins as it does without it.
        self.document_head = (
            DocumentHead(units, word_dimensions, document_units, labels, document_dropout) if document_units else None
        )

    def encode(self, words: Tensor, lengths: Tensor) -> Encoded:
        """Run the encoder; all labels are scored from what it returns."""
        return Encoded(self.encoder(words, lengths), word_mask(lengths, words.shape[1]))

    def attend(self, encoded: Encoded, labels: Tensor | None = None) -> Attended:
        """Return the label-aware representations `C_j = α_j C_S,j + β_j C_I,j` of the given labels (all without)."""
        H, mask = encoded
        if self.self_attention is not None:
            A_S = self.self_attention(H, mask, labels)
            C_S = A_S.to(H.dtype) @ H  # (batch, k, 2r)
        if self.interaction_attention is not None:
            A_I = self.interaction_attention(H, mask, labels)
            C_I = A_I.to(H.dtype) @ H  # (batch, k, 2r)
        if self.interaction_attention is None:
            return Attended(C_S, 1.0, A_S, None)
        if self.self_attention is None:
            return Attended(C_I, 0.0, None, A_I)
        alpha = self.fusion(C_S, C_I)
        return Attended(alpha * C_S + (1 - alpha) * C_I, alpha, A_S, A_I)

    def score(self, encoded: Encoded, labels: Tensor | None = None) -> Tensor:
        """Return the logits of the given labels (all without)."""
        logits: Tensor = self.prediction(self.attend(encoded, labels).C, labels)
        return logits  # (batch, k)

    def forward(self, words: Tensor, lengths: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits of documents given as padded word ids and lengths."""
        return self.score(self.encode(words, lengths), labels)

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers held at once for one document and one label: attention logits and weights, C's, ReLU."""
        return 4 * n + 8 * self.units
