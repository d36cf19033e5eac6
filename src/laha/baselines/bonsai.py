"""Bonsai: shallow, wide and diverse trees over labels (Khandagale, Xiao and Babbar, 2020).

As Parabel, but a node has up to a hundred children of whatever size k-means gives them: fewer levels pass on fewer
errors, and rare labels are not forced into a group that fits another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laha.baselines.label_trees import LabelTreeConfiguration, LabelTrees
from laha.configuration import check_range


@dataclass(frozen=True, kw_only=True)
class BonsaiConfiguration(LabelTreeConfiguration):
    """The settings of Bonsai."""

    children: int = 100  # K of k-means at every node, and the labels that a node needs to be split; the paper
    depth: int = 3  # levels, at most; the paper's for large label sets, and small ones never reach it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("children",), 2)
        check_range(self, ("depth",), 1)


class Bonsai(LabelTrees):
    """Shallow unbalanced label trees."""

    Configuration = BonsaiConfiguration

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "bonsai"

    def clustering(self) -> dict[str, Any]:
        """Split into many children of any size."""
        return {
            "cluster_k": self.configuration_.children,
            "cluster_balanced": False,
            "min_branch_size": self.configuration_.children,  # with fewer labels k-means has no centres to draw
            "max_depth": self.configuration_.depth,
        }
