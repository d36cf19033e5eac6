"""Beam search through a label tree: score a level, keep the best nodes, score their children."""

from __future__ import annotations

import torch
from torch import Tensor

from laha.network.attention_xml_tree import AttentionXMLTree, log_share
from laha.scoring.paths import choose_scoring
from laha.scoring.streaming import fill_top, score_some


class Beam:
    """Proposes and scores labels as a shortlist does: those below the best `width` nodes of each level."""

    def __init__(self, tree: AttentionXMLTree, width: int):
        self.tree, self.width = tree, width
        self.levels = [choose_scoring(level, frozen=True) for level in tree.networks]
        sizes = (tree.below(len(tree.levels) - 1) >= 0).sum(dim=1)
        self.size = int(sizes.sort().values[:width].sum())  # so many labels are scored, whichever nodes are best

    @torch.inference_mode()
    def search(self, words: Tensor, lengths: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """Return ids and log probabilities of the nodes scored on the last of the first `depth` levels, -1 for none."""
        batch, n = words.shape
        first, *others = self.levels[:depth]
        ids = torch.arange(first.labels, device=words.device)
        shares = log_share(score_some(first, first.encode(words, lengths), ids, n))  # (batch, nodes)
        ids = ids.expand(batch, -1)
        for number, level in enumerate(others, start=1):
            best, places = shares.topk(min(self.width, shares.shape[1]), dim=1)  # (batch, width)
            children = self.tree.below(number)[ids.gather(1, places)]  # (batch, width, most)
            above = best.unsqueeze(2).expand_as(children).flatten(1)
            ids = children.flatten(1).masked_fill(above.isinf(), -1)
            logits = score_some(level, level.encode(words, lengths), ids.clamp_min(0), n)
            shares = (log_share(logits) + above).masked_fill(ids < 0, -torch.inf)  # (batch, width * most)
        return ids, shares

    def score(self, words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the labels scored of each document, ids and probabilities, id -1 for none."""
        ids, shares = self.search(words, lengths, len(self.tree.levels))
        return ids, shares.exp()

    def score_top(self, words: Tensor, lengths: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Return ids and probabilities of the best labels, as `streaming.score_top` does."""
        ids, scores = self.score(words, lengths)
        scores, order = scores.topk(min(top, scores.shape[1]), dim=1)
        return fill_top(ids.gather(1, order), scores, top)
