"""Score documents of word ids with a trained network: every label, or the labels of a shortlist or a beam."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from laha.batches import pad, sorted_batches
from laha.network.attention_xml_tree import AttentionXMLTree
from laha.progress import Progress, silent
from laha.scoring.beam import Beam
from laha.scoring.folded import FoldedScoring
from laha.scoring.label_index import INDEX_ABOVE, LabelIndex
from laha.scoring.paths import choose_scoring
from laha.scoring.shortlist import SIZES, Recall, Shortlist
from laha.scoring.streaming import score_all, score_top, words_at_once
from laha.vocabulary import WordIds

AHEAD = 3  # batches a GPU is given before the results of the first are asked for: it never waits for padding
MEASURED_DOCUMENTS = 1_000  # on which a shortlist is compared with the exact ranking


class Scorer:
    """A network that does not change any more, with what does not depend on documents computed once."""

    def __init__(
        self,
        network: nn.Module,
        max_words: int,
        shortlist: int = 0,
        index: LabelIndex | None = None,
        precision: str = "float32",
    ):
        if precision == "bfloat16":
            network = deepcopy(network).bfloat16()  # a copy: the network itself is saved as it is
        self.network, self.max_words, self.index = network.eval(), max_words, index
        self.device = next(network.parameters()).device
        self.scoring = choose_scoring(network, frozen=True)
        self.shortlist: Shortlist | Beam | None = None
        # A GPU scores every label as fast as it runs the encoder, up to very many.
        pays = self.device.type == "cpu" or self.scoring.labels > INDEX_ABOVE
        if shortlist and pays and isinstance(self.scoring, FoldedScoring):
            self.shortlist = Shortlist(self.scoring, shortlist, index)
        elif shortlist and isinstance(network, AttentionXMLTree):
            self.shortlist = Beam(network, shortlist)

    def top(self, words: WordIds, top: int, exact: bool = False) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return ids and probabilities (documents, top) of the best labels."""
        top = min(top, self.scoring.labels)
        shortlist = None if exact or self.shortlist is None or top > self.shortlist.size else self.shortlist
        ids, scores = np.zeros((len(words), top), np.int64), np.zeros((len(words), top), np.float32)
        under_way: deque[tuple[NDArray[np.int64], Arrival, Arrival]] = deque()
        for documents, padded, lengths in self.batches(words):
            if shortlist is not None:
                found = shortlist.score_top(padded, lengths, top)
            else:
                found = score_top(self.scoring, padded, lengths, top)
            under_way.append((documents, Arrival(found[0]), Arrival(found[1])))
            if len(under_way) > AHEAD:
                documents, best, probabilities = under_way.popleft()
                ids[documents], scores[documents] = best.numpy(), probabilities.numpy()
        for documents, best, probabilities in under_way:
            ids[documents], scores[documents] = best.numpy(), probabilities.numpy()
        return ids, scores

    def sparse(self, words: WordIds, exact: bool = False) -> csr_matrix:
        """Return probabilities (documents, labels): of every label, or of those on the shortlist."""
        if self.shortlist is not None and not exact:
            return self._shortlisted(words, self.shortlist)
        rows, labels = len(words), self.scoring.labels
        scores = np.zeros((rows, labels), np.float32)
        for documents, padded, lengths in self.batches(words):
            scores[documents] = score_all(self.scoring, padded, lengths).cpu().numpy()
        indices = np.tile(np.arange(labels, dtype=np.int32), rows)
        return csr_matrix((scores.ravel(), indices, np.arange(rows + 1) * labels), shape=scores.shape)

    def _shortlisted(self, words: WordIds, shortlist: Shortlist | Beam) -> csr_matrix:
        rows: list[csr_matrix] = []
        numbers: list[NDArray[np.int64]] = []
        for documents, padded, lengths in self.batches(words):
            ids, scores = (part.cpu().numpy() for part in shortlist.score(padded, lengths))
            known = ids >= 0  # an index may leave places empty
            ends = np.concatenate([[0], known.sum(axis=1).cumsum()])
            rows.append(csr_matrix((scores[known], ids[known], ends), shape=(len(ids), self.scoring.labels)))
            numbers.append(documents)
        if not rows:
            return csr_matrix((0, self.scoring.labels), dtype=np.float32)
        from scipy.sparse import vstack

        found = csr_matrix(vstack(rows, format="csr")[np.argsort(np.concatenate(numbers))])
        found.sort_indices()
        return found

    def measure(
        self, words: WordIds, labels: csr_matrix, wanted: int | None, seed: int, progress: Progress = silent
    ) -> dict[str, Any]:
        """Compare shortlists with the exact ranking on some documents; return what the manifest says of them."""
        if not isinstance(self.scoring, FoldedScoring):
            raise ValueError("only a network with a document head has a shortlist")
        recall = Recall(self.scoring, SIZES if wanted is None else [wanted], self.index)
        chosen = np.random.default_rng(seed).permutation(len(words))[:MEASURED_DOCUMENTS]
        for documents, padded, lengths in self.batches(words, chosen):
            recall.add(padded, lengths, labels[documents])
            progress("shortlist: measuring", recall.documents / len(chosen))
        return recall.facts(wanted)

    def batches(
        self, words: WordIds, chosen: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
        """Yield the documents (the chosen ones) by length: their numbers, padded word ids, lengths."""
        chosen = np.arange(len(words)) if chosen is None else chosen
        for places in sorted_batches(words.lengths[chosen], words_at_once(self.device), self.max_words):
            padded, lengths = pad(words, chosen[places], self.max_words)
            yield chosen[places], send(padded, self.device), send(lengths, self.device)


class Arrival:
    """A tensor on its way to the CPU, whatever else a GPU was given to do since."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor.to("cpu", non_blocking=True)
        self.event = torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None

    def numpy(self) -> NDArray[Any]:
        """Wait for it."""
        if self.event is not None:
            self.event.synchronize()
        return self.tensor.numpy()


def send(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return the array on the device, without waiting for what a GPU has to do before."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
