"""The network's own scores from fewer numbers: projections moved before the sums over words (DESIGN 2).

Attention is linear in its values, so `W_f C = (W_f H) A`, and the gates `F1 C_S`, `F2 C_I` need one value a word
each. The two attentions share their values, so their weights are fused first, `A = α A_S + β A_I`, and one product is
left: per document and label, r numbers in place of the 2r of C_S, of C_I and of C.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from laha.network.document_head import pool
from laha.network.encoder import word_mask
from laha.network.fusion import AdaptiveFusion
from laha.network.laha import LAHANetwork
from laha.scoring.streaming import budget
from laha.scoring.threads import share

# Attention logits of one document that stay in a core's cache while they are worked on; on a GPU the budget bounds.
CACHED = 2**18
# Numbers that autograd keeps for a document, a label and a word; beyond the budget they are computed again instead.
KEPT = 5


class Documents(NamedTuple):
    """A batch after the encoder, with every projection applied that does not depend on labels."""

    K_S: Tensor | None  # tanh(W_s1 H): (batch, n, d_a)
    K_I: Tensor | None  # H_f + H_b: (batch, n, r)
    V: Tensor  # W_f H: (batch, n, r)
    g: Tensor | None  # F1 H and F2 H, the gates before their sums: (batch, n, 2)
    lengths: Tensor  # (batch,)
    pooled: Tensor | None  # for the document head, where there is one: (batch, 4r + 300)

    def each(self) -> Iterator[Documents]:
        """Yield every document by itself, without batch dimension and padding."""
        # Unbound all at once: gradients of slices would each be as large as the batch.
        parts = [[None] * len(self.V) if part is None else part.unbind() for part in self[:4]]
        for length, *own in zip(self.lengths.tolist(), *parts, strict=True):
            K_S, K_I, V, g = (None if part is None else part[:length] for part in own)
            assert V is not None
            yield Documents(K_S, K_I, V, g, self.lengths, self.pooled)


class Queries(NamedTuple):
    """The labels' side, of all labels or of some; with a leading batch dimension, other labels for each document."""

    Q_S: Tensor | None  # W_s2: (k, d_a) or (batch, k, d_a)
    Q_I: Tensor | None  # W_q L: (k, r) or (batch, k, r)
    outputs: Tensor | None = None  # rows in place of W_o, biases last: (k, r + 1) or (batch, k, r + 1)

    def chunks(self, size: int) -> Iterator[Queries]:
        """Yield the labels, so many at a time."""
        for start in range(0, self.labels, size):
            yield Queries(*(None if Q is None else Q[..., start : start + size, :] for Q in self))

    def of(self, document: int) -> Queries:
        """Return the labels of one document, where each has its own."""
        return Queries(*(None if Q is None else Q[document] for Q in self))

    @property
    def labels(self) -> int:
        """How many labels there are."""
        Q = self.Q_S if self.Q_S is not None else self.Q_I
        assert Q is not None
        return Q.shape[-2]


class FoldedScoring:
    """Scores what the network scores, on any device, with gradients.

    A `frozen` one computes the queries of all labels once: for a network that does not change any more.
    """

    def __init__(self, network: LAHANetwork, frozen: bool = False):
        self.network = network
        self.labels = network.labels
        self._all = None
        if frozen:
            with torch.inference_mode():
                self._all = self.queries()

    def encode(self, words: Tensor, lengths: Tensor) -> Documents:
        """Run the encoder and apply the projections."""
        network = self.network
        H = network.encoder(words, lengths)  # (batch, n, 2r)
        forward_states, backward_states = H.chunk(2, dim=-1)
        mask = word_mask(lengths, words.shape[1])
        g = None
        if isinstance(network.fusion, AdaptiveFusion):
            F1, F2 = network.fusion.F1, network.fusion.F2
            g = F.linear(H, torch.cat([F1.weight, F2.weight]))  # (batch, n, 2)
        return Documents(
            None if network.self_attention is None else torch.tanh(network.self_attention.W_s1(H)),
            None if network.interaction_attention is None else forward_states + backward_states,
            F.linear(H, network.prediction.W_f.weight),  # (batch, n, r)
            g,
            lengths,
            None if network.document_head is None else pool(H, network.encoder.word_vectors(words), mask),
        )

    def queries(self, labels: Tensor | None = None) -> Queries:
        """Return the queries of the given label ids (all without)."""
        if self._all is not None:
            return self._all if labels is None else Queries(*(None if Q is None else Q[labels] for Q in self._all))
        self_attention, interaction = self.network.self_attention, self.network.interaction_attention
        Q_S = Q_I = None
        if self_attention is not None:
            Q_S = self_attention.W_s2.weight if labels is None else self_attention.W_s2(labels)
        if interaction is not None:
            Q_I = interaction.W_q(interaction.L.weight if labels is None else interaction.L(labels))
        own = self.network.prediction.own
        return Queries(Q_S, Q_I, None if own is None else self.network.prediction.outputs(labels))

    def score(self, documents: Documents, labels: Tensor | None = None) -> Tensor:
        """Return the logits (batch, labels) of the given label ids: the same for all documents, or a row for each."""
        queries = self.queries(labels)
        batch, n, _ = documents.V.shape
        # What autograd keeps is bounded too: beyond it, every chunk is computed once more on the way back.
        again = torch.is_grad_enabled() and KEPT * batch * n * queries.labels > budget(documents.V.device)
        score = partial(checkpoint, self._logits, use_reentrant=False) if again else self._logits
        if documents.V.device.type != "cpu":
            size = max(1, budget(documents.V.device) // (KEPT * batch * n))
            mask = word_mask(documents.lengths, n)
            return torch.cat([score(documents, mask, chunk) for chunk in queries.chunks(size)], dim=-1)
        pieces = []  # a document and some labels each: no work on padding, and all of it in a core's cache
        for number, document in enumerate(documents.each()):
            own = queries.of(number) if labels is not None and labels.dim() == 2 else queries
            pieces += [(document, chunk) for chunk in own.chunks(max(64, CACHED // len(document.V)))]
        parts = share(lambda piece: score(piece[0], None, piece[1]), pieces)
        return torch.cat(parts).view(batch, -1) if parts else documents.V.new_zeros(batch, queries.labels)

    def _logits(self, documents: Documents, mask: Tensor | None, queries: Queries) -> Tensor:
        K_S, K_I, V, g = documents[:4]
        prediction = self.network.prediction
        A_S = None if K_S is None or queries.Q_S is None else attention(queries.Q_S, K_S, mask)  # ([batch,] k, n)
        A_I = None if K_I is None or queries.Q_I is None else attention(queries.Q_I, K_I, mask)
        A = A_S if A_I is None else A_I if A_S is None else torch.lerp(A_I, A_S, self._alpha(A_S, A_I, g))
        assert A is not None
        C = whole(A.to(V.dtype) @ V + prediction.W_f.bias)  # W_f C: ([batch,] k, r)
        hidden = C.relu_()
        if queries.outputs is None:
            return hidden @ whole(prediction.W_o.weight[0]) + whole(prediction.W_o.bias)  # ([batch,] k)
        outputs = whole(queries.outputs)
        return (hidden * outputs[..., :-1]).sum(dim=-1) + outputs[..., -1]  # ([batch,] k)

    def _alpha(self, A_S: Tensor, A_I: Tensor, g: Tensor | None) -> Tensor:
        fusion = self.network.fusion
        if g is None or not isinstance(fusion, AdaptiveFusion):
            return A_S.new_full((1,) * A_S.dim(), 0.5)
        a = weighted_sum(A_S, g[..., 0]) + fusion.F1.bias  # ([batch,] k)
        b = weighted_sum(A_I, g[..., 1]) + fusion.F2.bias
        return torch.sigmoid(F.logsigmoid(a) - F.logsigmoid(b)).unsqueeze(-1)

    def companion(self, documents: Documents, labels: Tensor | None = None) -> Tensor:
        """Return the logits (batch, labels) of the document head, which reads the same encoder's states."""
        head = self.network.document_head
        assert head is not None
        assert documents.pooled is not None
        vectors = whole(head.document(documents.pooled))
        weight, bias = whole(head.labels.weight), whole(head.labels.bias)
        with torch.autocast(vectors.device.type, enabled=False):  # half precision would leave two digits of a logit
            if labels is None:
                return F.linear(vectors, weight, bias)
            return F.linear(vectors, weight[labels], bias[labels])

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers held at once for one document and one label: its score; the rest is bounded within."""
        return 1


def attention(Q: Tensor, K: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax over words of Q K: ([batch,] k, n), zero on padding."""
    logits = whole(Q @ K.transpose(-2, -1))
    if mask is not None:
        logits = logits.masked_fill(~mask.unsqueeze(1), -torch.inf)
    return torch.softmax(logits, dim=-1)


def weighted_sum(A: Tensor, values: Tensor) -> Tensor:
    """Return the sums over words of one value a word: ([batch,] k) from ([batch,] k, n) and ([batch,] n)."""
    values = values.to(A.dtype)
    return A @ values if A.dim() == 2 else (A @ values.unsqueeze(-1)).squeeze(-1)


def whole(numbers: Tensor) -> Tensor:
    """Return half-precision numbers as float32: sums and softmax over many words need the digits."""
    return numbers.float() if numbers.dtype in (torch.float16, torch.bfloat16) else numbers
