"""peer:omikuji — Omikuji as it comes: Parabel-like trees with the library's own defaults (extra `trees`).

Its README's other kinds of trees are settings: Bonsai-like ones have 100 children of any size and 3 levels, and
AttentionXML-like ones collapse several levels of halves into one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laha.baselines.label_trees import LabelTreeConfiguration, LabelTrees
from laha.configuration import check_range


@dataclass(frozen=True, kw_only=True)
class OmikujiConfiguration(LabelTreeConfiguration):
    """The settings of the peer, each at Omikuji's default."""

    children: int = 2
    balanced: bool = True
    depth: int = 20
    leaf: int = 100  # with so few labels a node is not split
    collapse: int = 0  # levels that become one, but for the first

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("children", "leaf"), 2)
        check_range(self, ("depth",), 1)
        check_range(self, ("collapse",), 0)


class OmikujiPeer(LabelTrees):
    """Omikuji, by default with every setting at its own default."""

    Configuration = OmikujiConfiguration

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "peer:omikuji"

    def clustering(self) -> dict[str, Any]:
        """Cluster as asked for."""
        configuration = self.configuration_
        return {
            "cluster_k": configuration.children,
            "cluster_balanced": configuration.balanced,
            "max_depth": configuration.depth,
            "min_branch_size": configuration.leaf,
            "collapse_every_n_layers": configuration.collapse,
        }
