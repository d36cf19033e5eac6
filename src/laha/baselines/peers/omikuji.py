"""peer:omikuji — Omikuji as it comes: Parabel-like trees with the library's own defaults (extra `trees`)."""

from __future__ import annotations

from laha.baselines.label_trees import LabelTrees


class OmikujiPeer(LabelTrees):
    """Omikuji with every setting at its default."""

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "peer:omikuji"
