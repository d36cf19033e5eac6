"""Choose how a network is scored: the fastest way that gives the same scores on its device."""

from __future__ import annotations

from typing import Any

from laha.network.laha import LAHANetwork
from laha.scoring.folded import FoldedScoring
from laha.scoring.streaming import Scoring


def choose_scoring(network: Any, frozen: bool = False) -> Scoring:
    """Return the network's fastest exact scoring; `frozen` for one that does not change any more."""
    if isinstance(network, LAHANetwork):
        return FoldedScoring(network, frozen)
    scoring: Scoring = network  # a network that has no other way is scored as it is written
    return scoring
