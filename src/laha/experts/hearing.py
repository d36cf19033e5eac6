"""A hearing: held-out documents, what each expert proposes of them, and the panel learned from that."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from laha.errors import LahaError
from laha.experts.panel import Panel, Source, ask
from laha.experts.proposals import Proposals
from laha.prepared import Prepared
from laha.progress import Progress, silent
from laha.vocabulary import WordIds

DOCUMENTS = 10_000  # that the fusion learns from, at most
FEW = 2_000  # the same while experts are still being learned: a model to keep until the next is better


class Hearing:
    """Documents of the validation part, in random order, and the experts heard on them."""

    def __init__(self, prepared: Prepared, labels: int, seed: int):
        valid = prepared.part("valid")
        chosen = np.random.default_rng([seed, 11]).permutation(len(valid))[:DOCUMENTS]
        pieces = [valid.words[int(document)] for document in chosen]
        offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
        self.words = WordIds(np.concatenate([*pieces, np.zeros(0, np.int32)]).astype(np.int32), offsets)
        self.truth = csr_matrix(valid.labels[chosen])
        if not self.truth.nnz:
            raise LahaError("no validation document has a label: give documents with labels to validate on")
        train = prepared.part("train")
        self.frequency = np.array([label.frequency for label in prepared.labels[:labels]])
        self.train_documents, self.seed = len(train), seed
        self.heard: dict[str, Proposals] = {}

    def hear(self, source: Source) -> None:
        """Ask an expert, or several at once."""
        self.heard.update(ask(self.words, [source]))

    def join(self, few: bool = False, progress: Progress = silent) -> tuple[Panel, dict[str, Any]]:
        """Learn from all experts heard so far how to weigh them; `few` for a quick first weighing."""
        count = FEW if few else len(self.words)
        heard = {name: Proposals(each.ids[:count], each.scores[:count]) for name, each in self.heard.items()}
        return Panel.fit(heard, self.truth[:count], self.frequency, self.train_documents, self.seed, progress, few)
