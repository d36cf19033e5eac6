"""The evidence beside the network: experts that learn from words alone, within seconds to minutes on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from warnings import warn

import torch
from numpy.typing import NDArray

from laha.budget import Budget
from laha.experts import tree
from laha.experts.label_names import LabelNames
from laha.experts.lexical import Lexical, LexicalConfiguration
from laha.experts.neighbours import Neighbours
from laha.experts.proposals import DEPTH, Proposals
from laha.experts.tree import Tree
from laha.prepared import Label, Prepared
from laha.progress import Progress, silent
from laha.stems import Stems
from laha.vocabulary import Vocabulary, WordIds

KINDS = ("neighbours", "names", "tree", "lexical")  # the cheapest first


@dataclass
class Evidence:
    """Experts by name, in the order in which they were learned."""

    stems: Stems
    labels: Sequence[Label]
    experts: dict[str, Any] = field(default_factory=dict)

    def learn(
        self,
        kind: str,
        prepared: Prepared,
        device: torch.device,
        seed: int,
        budget: Budget,
        quick: bool = False,
        progress: Progress = silent,
    ) -> bool:
        """Learn one expert; say whether it is there now. `quick` trees take a fifth of the time."""
        train = prepared.part("train")
        truth = train.labels[:, : len(self.labels)]
        progress(f"expert: {kind}", 0.0)
        if kind == "neighbours":
            self.experts[kind] = Neighbours.fit(self.stems, train.words, truth)
        elif kind == "names":
            self.experts[kind] = LabelNames.fit(self.stems, self.labels, train.words, truth, seed, progress)
        elif kind == "lexical":
            own = LexicalConfiguration(seconds=budget.lexical_seconds)
            self.experts[kind] = Lexical(own).fit(prepared, device, seed, progress)
        elif tree.available():
            self.experts[kind] = Tree.fit(self.stems, train.words, truth, self.labels, quick)
        else:
            warn("the tree expert is left out: install it with pip install 'laha[trees]'", stacklevel=4)
            return False
        progress(f"expert: {kind}", 1.0)
        return True

    def propose_by(self, kind: str, words: WordIds) -> Proposals:
        """Return what one expert proposes."""
        return Proposals(*self.experts[kind].top(words, DEPTH))

    def propose(self, words: WordIds, names: Sequence[str]) -> dict[str, Proposals]:
        """Return what each of the named experts proposes."""
        return {name: self.propose_by(name, words) for name in names}

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what all of them learned."""
        return {
            f"{name}.{key}": array for name, expert in self.experts.items() for key, array in expert.tensors().items()
        }

    @classmethod
    def restore(
        cls,
        vocabulary: Vocabulary,
        labels: Sequence[Label],
        names: Sequence[str],
        tensors: Mapping[str, NDArray[Any]],
        device: torch.device,
    ) -> Evidence:
        """Take over what `tensors` gave."""
        found = cls(Stems(vocabulary), labels)
        for name in names:
            own = {key.removeprefix(f"{name}."): a for key, a in tensors.items() if key.startswith(f"{name}.")}
            if name == "neighbours":
                found.experts[name] = Neighbours.restore(found.stems, len(labels), own)
            elif name == "names":
                found.experts[name] = LabelNames.restore(found.stems, labels, own)
            elif name == "tree":
                found.experts[name] = Tree.restore(found.stems, own)
            else:
                found.experts[name] = Lexical.from_tensors(own, device=device)
        return found
