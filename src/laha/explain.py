"""Explain labels: the weight of every word behind a label, by self-attention, interaction attention, and fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from laha.network.laha import Attended
from laha.vocabulary import WordIds


class AttentionNetwork(Protocol):
    """What is explained: a network that scores labels from words by attention."""

    def encode(self, words: Tensor, lengths: Tensor) -> Any:
        """Compute what does not depend on labels."""

    def attend(self, encoded: Any, labels: Tensor | None = None) -> Attended:
        """Return the attentions of the given labels."""

    def score(self, encoded: Any, labels: Tensor | None = None) -> Tensor:
        """Return logits (batch, labels)."""


@dataclass(frozen=True)
class WordWeight:
    """A word at its place in the text, with its weights for one label; each weight sums to 1 over the words."""

    word: str
    start: int
    end: int
    self: float
    interaction: float
    fused: float


@dataclass(frozen=True)
class LabelExplanation:
    """Why a label has its score: how much each attention counts, and the words each looks at."""

    label: str
    score: float
    alpha: float
    beta: float
    words: list[WordWeight]
    experts: dict[str, float] = field(default_factory=dict)  # each expert's share of the score, where several speak


@dataclass(frozen=True)
class Explanation:
    """A text and its explained labels, best first."""

    text: str
    labels: list[LabelExplanation]

    def as_json(self) -> dict[str, Any]:
        """Return what `laha explain --json` prints."""
        return asdict(self)


@torch.inference_mode()
def explain_labels(
    network: AttentionNetwork,
    words: Tensor,
    lengths: Tensor,
    text: str,
    spans: Sequence[tuple[str, int, int]],
    labels: Sequence[tuple[int, str]],
) -> Explanation:
    """Explain the given labels (id, name) for one document of word ids (1, n); a word's fused weight is α A_S + β A_I.

    An attention that a network does not have has weight 0 on every word.
    """
    ids = torch.tensor([number for number, _ in labels], dtype=torch.long, device=words.device)
    encoded = network.encode(words, lengths)
    attended = network.attend(encoded, ids)
    scores = network.score(encoded, ids)[0].float().sigmoid().tolist()
    n = len(spans)
    zeros = torch.zeros(len(labels), words.shape[1], device=words.device)
    A_S = zeros if attended.A_S is None else attended.A_S[0].float()  # (labels, n)
    A_I = zeros if attended.A_I is None else attended.A_I[0].float()
    alpha = torch.as_tensor(attended.alpha, device=words.device).float().expand(1, len(labels), 1)[0]  # (labels, 1)
    fused = alpha * A_S + (1 - alpha) * A_I
    explained = []
    for row, (_, name) in enumerate(labels):
        columns = zip(spans, A_S[row, :n].tolist(), A_I[row, :n].tolist(), fused[row, :n].tolist(), strict=True)
        weights = [WordWeight(word, start, end, s, i, f) for (word, start, end), s, i, f in columns]
        share = float(alpha[row, 0])
        explained.append(LabelExplanation(name, scores[row], share, 1 - share, weights))
    return Explanation(text, sorted(explained, key=lambda entry: -entry.score))


def explain_by_omission(
    score: Callable[[WordIds], csr_matrix],
    words: WordIds,
    spans: Sequence[tuple[str, int, int]],
    labels: Sequence[tuple[int, str]],
) -> list[LabelExplanation]:
    """Explain labels of one document without attention: a word weighs what the score loses when it is left out.

    The losses are those of log-odds, scaled to sum to 1 over the words; α and β are 0, as no attention has a say.
    """
    if not labels:
        return []
    own = words[0]
    distinct, place = np.unique(own, return_inverse=True)
    pieces = [own, *(own[own != word] for word in distinct)]
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    scores = score(WordIds(np.concatenate(pieces), offsets))[:, [number for number, _ in labels]].toarray()
    sure = np.clip(scores, 1e-6, 1 - 1e-6)
    odds = np.log(sure / (1 - sure))  # (1 + distinct words, labels)
    losses = np.maximum(odds[0] - odds[1:], 0)[place]  # (words, labels)
    counts = np.bincount(place)[place][:, None] if len(own) else np.ones((0, 1))
    losses = losses / counts
    losses = losses / np.maximum(losses.sum(axis=0), 1e-12)
    return [
        LabelExplanation(
            *(name, float(scores[0, column]), 0.0, 0.0),
            [WordWeight(*span, 0.0, 0.0, float(loss)) for span, loss in zip(spans, losses[:, column], strict=True)],
        )
        for column, (_, name) in enumerate(labels)
    ]
