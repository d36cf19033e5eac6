"""Choose how a network is scored: the fastest way that gives the same scores on its device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from laha.network.attention_xml import AttentionXMLNetwork
from laha.network.fusion import AdaptiveFusion
from laha.network.laha import LAHANetwork
from laha.scoring.folded import Documents, FoldedScoring
from laha.scoring.folded_attention_xml import FoldedAttentionXML
from laha.scoring.fused import available, fused_logits
from laha.scoring.streaming import Scoring


class FusedScoring(FoldedScoring):
    """The folded scores with both attentions, their fusion and the prediction in one kernel."""

    def score(self, documents: Documents, labels: Tensor | None = None) -> Tensor:
        """Return the logits (batch, labels); what the kernels are not made for is scored folded."""
        K_S, K_I, V, g, lengths = documents[:5]
        own_labels = labels is not None and labels.dim() == 2
        in_full = V.is_cuda and V.dtype == torch.float32  # the kernels' tiles of full precision do not fit a GPU
        fusion, prediction = self.network.fusion, self.network.prediction
        adaptive = isinstance(fusion, AdaptiveFusion)
        if K_S is None or K_I is None or g is None or not adaptive or own_labels or in_full:
            return super().score(documents, labels)
        assert isinstance(fusion, AdaptiveFusion)
        Q_S, Q_I, outputs = self.queries(labels)
        assert Q_S is not None
        assert Q_I is not None
        c = torch.cat([fusion.F1.bias, fusion.F2.bias])
        shared = prediction.W_o.weight[0], prediction.W_o.bias
        w_o, b_o = shared if outputs is None else (outputs[:, :-1], outputs[:, -1])
        return fused_logits(K_S, K_I, V, g, lengths, Q_S, Q_I, c, prediction.W_f.bias, w_o, b_o)


def choose_scoring(network: Any, frozen: bool = False) -> Scoring:
    """Return the network's fastest exact scoring; `frozen` for one that does not change any more."""
    if isinstance(network, LAHANetwork):
        device = next(network.parameters()).device
        return FusedScoring(network, frozen) if available(device) else FoldedScoring(network, frozen)
    if isinstance(network, AttentionXMLNetwork):
        return FoldedAttentionXML(network)
    scoring: Scoring = network  # a network that has no other way is scored as it is written
    return scoring
