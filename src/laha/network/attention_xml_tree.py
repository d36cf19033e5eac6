"""AttentionXML over a probabilistic label tree: a network a level; a label's score is the product along its path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from laha.network.attention_xml import AttentionXMLNetwork
from laha.network.encoder import Encoder
from laha.network.laha import Attended, Encoded


class AttentionXMLTree(nn.Module):
    """Networks of the levels from the root down; each scores its nodes given that their parents are right."""

    def __init__(self, levels: Sequence[AttentionXMLNetwork], parents: Sequence[Tensor]):
        super().__init__()
        self.levels = nn.ModuleList(levels)
        self.labels = levels[-1].labels
        for number, (above, own) in enumerate(zip(levels, parents, strict=False), start=1):
            self.register_buffer(f"parents_{number}", own)  # (nodes,)
            self.register_buffer(f"children_{number}", children_of(own, above.labels), persistent=False)

    @property
    def networks(self) -> list[AttentionXMLNetwork]:
        """The levels' networks, from the root down."""
        return [cast(AttentionXMLNetwork, level) for level in self.levels]

    @property
    def encoder(self) -> Encoder:
        """The first level's encoder, from which the others begin."""
        return self.networks[0].encoder

    def above(self, level: int) -> Tensor:
        """Return the parent of each node of a level below the first."""
        return self.get_buffer(f"parents_{level}")

    def below(self, level: int) -> Tensor:
        """Return the nodes of a level by their parents, (parents, most), -1 where a parent has fewer."""
        return self.get_buffer(f"children_{level}")

    def encode(self, words: Tensor, lengths: Tensor) -> list[Encoded]:
        """Run every level's encoder."""
        return [level.encode(words, lengths) for level in self.networks]

    def attend(self, encoded: list[Encoded], labels: Tensor | None = None) -> Attended:
        """Return the representations of the given labels (all without) by the last level, whose nodes they are."""
        return self.networks[-1].attend(encoded[-1], labels)

    def score(self, encoded: list[Encoded], labels: Tensor | None = None) -> Tensor:
        """Return the logits of the given labels (all without), every one of them scored along its whole path."""
        nodes = torch.arange(self.labels, device=self.above(1).device) if labels is None else labels
        shares = torch.zeros((), device=nodes.device)
        places = torch.arange(len(nodes), device=nodes.device)
        for number in reversed(range(len(self.levels))):
            shares = shares + log_share(self.networks[number].score(encoded[number], nodes))[:, places]  # (batch, k)
            if number:
                nodes, inverse = self.above(number)[nodes].unique(return_inverse=True)  # type: ignore[no-untyped-call]  # an ancestor is scored once
                places = inverse[places]
        shares = shares.clamp(max=-1e-7)
        return shares - torch.log(-torch.expm1(shares))  # log p -> log p / (1 - p)

    def numbers_per_label(self, n: int) -> int:
        """Count the numbers held at once for one document and one label."""
        return max(level.numbers_per_label(n) for level in self.networks)


def log_share(logits: Tensor) -> Tensor:
    """Return log probabilities of logits, in float32 where they are half precision."""
    return F.logsigmoid(logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits)


def children_of(parents: Tensor, count: int) -> Tensor:
    """Return the nodes by their parents, -1 where a parent has fewer than another.

    >>> children_of(torch.tensor([1, 0, 1]), 2)
    tensor([[ 1, -1],
            [ 0,  2]])
    """
    order = parents.argsort(stable=True)
    sizes = parents.bincount(minlength=count)
    starts = sizes.cumsum(0) - sizes
    children = parents.new_full((count, int(sizes.max())), -1)
    children[parents[order], torch.arange(len(order)) - starts[parents[order]]] = order
    return children
