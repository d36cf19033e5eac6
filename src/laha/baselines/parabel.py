"""Parabel: balanced trees over labels (Prabhu, Kag, Harsola, Agrawal and Varma, 2018).

Labels are represented by the mean of their documents' features and halved by balanced 2-means until a group is small;
each branch, and at the end each label, has a linear classifier trained on the documents of its parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from laha.baselines.label_trees import LabelTreeConfiguration, LabelTrees
from laha.configuration import check_range


@dataclass(frozen=True, kw_only=True)
class ParabelConfiguration(LabelTreeConfiguration):
    """The settings of Parabel."""

    leaf: int = 100  # a group of at most so many labels is not halved again; the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("leaf",), 2)


class Parabel(LabelTrees):
    """Deep balanced binary label trees."""

    Configuration = ParabelConfiguration

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "parabel"

    def clustering(self) -> dict[str, Any]:
        """Halve the labels, keeping the halves equal."""
        return {"cluster_k": 2, "cluster_balanced": True, "min_branch_size": self.configuration_.leaf}
