"""The network's two experts: what its attention and its document head each find best, among all labels."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from laha.network.laha import LAHANetwork
from laha.scoring.folded import FoldedScoring
from laha.scoring.scorer import Scorer
from laha.scoring.shortlist import Shortlist
from laha.scoring.streaming import Accompanied, Best, label_chunks, score_top_each
from laha.vocabulary import WordIds

Top = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids and logits, (documents, depth) each, best first


def network_shortlisted(scorer: Scorer, shortlist: Shortlist, words: WordIds, depth: int) -> dict[str, Top]:
    """Return what `network_top` does, the attention's best being those of the labels that the head proposes."""
    names = ("attention", "document")
    ids = {name: np.full((len(words), depth), -1, np.int64) for name in names}
    logits = {name: np.full((len(words), depth), -np.inf, np.float32) for name in names}
    for documents, padded, lengths in scorer.batches(words):
        for name, best in shortlist.top_each(padded, lengths, depth).items():
            own_ids, own_logits = (part.cpu().numpy() for part in best)
            ids[name][documents, : own_ids.shape[1]] = own_ids
            logits[name][documents, : own_ids.shape[1]] = own_logits
    return {name: (ids[name], logits[name]) for name in names}


def network_top(scorer: Scorer, words: WordIds, depth: int) -> dict[str, Top]:
    """Return the best `depth` labels by "attention" and, where the network has a head, by "document", with logits.

    Exact over all labels. Where there are fewer than asked for, id -1 and logit -inf fill the rest.
    """
    network = scorer.network
    both = isinstance(network, LAHANetwork) and network.document_head is not None
    names = ("attention", "document") if both else ("attention",)
    ids = {name: np.full((len(words), depth), -1, np.int64) for name in names}
    logits = {name: np.full((len(words), depth), -np.inf, np.float32) for name in names}
    found = []
    for documents, padded, lengths in scorer.batches(words):
        if both:
            assert isinstance(scorer.scoring, FoldedScoring)
            best = score_top_each(cast(Accompanied, scorer.scoring), padded, lengths, depth)
        else:
            best = {"attention": _attention_top(scorer, padded, lengths, depth)}
        found.append((documents, best))
    for documents, best in found:  # only now: a GPU works on while the next batch is padded
        for name in names:
            own_ids, own_logits = (part.cpu().numpy() for part in best[name])
            ids[name][documents, : own_ids.shape[1]] = own_ids
            logits[name][documents, : own_ids.shape[1]] = own_logits
    return {name: (ids[name], logits[name]) for name in names}


@torch.inference_mode()
def _attention_top(
    scorer: Scorer, words: torch.Tensor, lengths: torch.Tensor, depth: int
) -> tuple[torch.Tensor, torch.Tensor]:
    encoded, best = scorer.scoring.encode(words, lengths), Best(words, depth)
    for labels in label_chunks(scorer.scoring, words):
        best.add(labels, scorer.scoring.score(encoded, labels))
    return best.ids, best.scores
