"""The panel: experts that propose labels, the fusion that weighs them, and how sure their joint scores are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, vstack

from laha.calibration import precision_curve, reliability, score_for
from laha.experts.fusion import FEW_DOCUMENTS, Fusion, as_matrix, crosswise, crosswise_scores, join
from laha.experts.proposals import Proposals, best_of
from laha.metrics import RankingMetrics, is_true, top_labels
from laha.progress import Progress, silent
from laha.vocabulary import WordIds

BATCH = 256  # documents weighed at once: bounds the memory of their pairs
LEARNED_FROM = 10_000  # held-out documents that the fusion learns from, at most
SHOWN = ("P@1", "P@3", "P@5", "nDCG@5")  # of each expert alone
GIVEN = 5  # labels a document whose scores are calibrated

# What asks one or several experts at once: documents in, proposals by the expert's name out.
Source = Callable[[WordIds], Mapping[str, Proposals]]


class Panel:
    """Experts joined by a fusion; `names` are in the order in which the fusion knows them."""

    def __init__(self, names: Sequence[str], fusion: Fusion, frequency: NDArray[Any], curve: NDArray[np.float32]):
        self.names = tuple(names)
        self.fusion, self.frequency, self.curve = fusion, frequency, curve

    @classmethod
    def fit(
        cls,
        proposals: Mapping[str, Proposals],
        truth: csr_matrix,
        frequency: NDArray[Any],
        train_documents: int,
        seed: int = 0,
        progress: Progress = silent,
        quick: bool = False,
    ) -> tuple[Panel, dict[str, Any]]:
        """Learn the fusion from what experts propose of held-out documents; return it with what is to be said of it.

        `quick` does not ask which experts pay where documents are few.

        `truth` may have more columns than `frequency`: labels that no expert can propose.
        """
        known = csr_matrix(truth[:, : len(frequency)])
        if truth.shape[0] < FEW_DOCUMENTS and not quick:
            proposals = worth_hearing(proposals, known, frequency, seed)
        pairs = join(list(proposals.values()), frequency)
        fusion = Fusion.fit(pairs, known, frequency, seed, progress, quick)
        # What is said of the panel is measured crosswise: on halves that its fusion did not learn from.
        halves = crosswise_scores(pairs, known, fusion.gates.adaptive, seed, 2)
        scores = as_matrix(pairs, halves, known.shape)
        best = best_of(scores, GIVEN)
        right = is_true(best.ids, known)
        given = best.ids >= 0
        curve = precision_curve(best.scores[given], right[given])
        panel = cls(tuple(proposals), fusion, frequency, curve)
        facts = {
            "documents": truth.shape[0],
            "adaptive": fusion.gates.adaptive,
            "calibration": reliability(best.scores[given], right[given]),
            "alone": {
                name: {
                    key: value
                    for key, value in _metrics(each.ids[:, :GIVEN], truth, frequency, train_documents).items()
                    if key in SHOWN
                }
                for name, each in proposals.items()
            },
            "together": _metrics(top_labels(scores, GIVEN), truth, frequency, train_documents),
        }
        return panel, facts

    def weigh(self, proposals: Mapping[str, Proposals]) -> csr_matrix:
        """Return the probabilities of every label that an expert proposes: (documents, labels)."""
        each = [proposals[name] for name in self.names]
        pairs = join(each, self.frequency)
        return as_matrix(pairs, self.fusion.weigh(pairs)[0], (len(each[0].ids), len(self.frequency)))

    def scores(self, words: WordIds, sources: Sequence[Source]) -> csr_matrix:
        """Ask the experts and weigh what they say, a batch of documents at a time."""
        empty = csr_matrix((0, len(self.frequency)), dtype=np.float32)
        parts = [self.weigh(ask(part, sources)) for part in batches_of(words, BATCH)]
        return csr_matrix(vstack([empty, *parts], format="csr"))

    def shares(
        self, words: WordIds, sources: Sequence[Source], labels: Sequence[int]
    ) -> list[tuple[float, dict[str, float]]]:
        """Return of one document the probability of each label, and each expert's share of the evidence for it.

        The shares sum to 1, or are 0 where no expert proposes the label.
        """
        heard = ask(words, sources)
        each = [heard[name] for name in self.names]
        pairs = join(each, self.frequency)
        probabilities, parts = self.fusion.weigh(pairs)
        place = {int(label): row for row, label in enumerate(pairs.labels)}
        found = []
        for label in labels:
            row = place.get(label)
            added = np.zeros(len(self.names)) if row is None else parts[row]
            if not added.any():  # the last proposal of each of its experts, above nothing: all said it alike
                added = np.array([(own.ids[0] == label).any() for own in each], np.float64)
            total = float(added.sum()) or 1.0
            score = 0.0 if row is None else float(probabilities[row])
            found.append((score, {name: float(x) / total for name, x in zip(self.names, added, strict=True)}))
        return found

    def score_at_precision(self, precision: float) -> float:
        """Return the score from which on labels held that precision on held-out documents; infinity: none did."""
        return score_for(self.curve, precision)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what was learned."""
        return {**{f"fusion.{name}": array for name, array in self.fusion.tensors().items()}, "precision": self.curve}

    @classmethod
    def restore(cls, names: Sequence[str], frequency: NDArray[Any], tensors: Mapping[str, NDArray[Any]]) -> Panel:
        """Take over what `tensors` gave."""
        own = {name.removeprefix("fusion."): array for name, array in tensors.items() if name.startswith("fusion.")}
        return cls(names, Fusion.restore(own), frequency, tensors["precision"])


def worth_hearing(
    proposals: Mapping[str, Proposals], truth: csr_matrix, frequency: NDArray[Any], seed: int
) -> dict[str, Proposals]:
    """Leave out, one after the other, experts without which few held-out documents are ranked better, crosswise."""

    def score(kept: Mapping[str, Proposals]) -> float:
        return crosswise(join(list(kept.values()), frequency), truth, frequency, False, seed)

    kept, best = dict(proposals), -np.inf
    while len(kept) > 1:
        best = max(best, score(kept))
        without = {name: score({other: kept[other] for other in kept if other != name}) for name in kept}
        worst = max(without, key=lambda name: without[name])
        if without[worst] <= best:
            break
        best = without[worst]
        del kept[worst]
    return kept


def ask(words: WordIds, sources: Sequence[Source]) -> dict[str, Proposals]:
    """Return what every source proposes."""
    return {name: proposals for source in sources for name, proposals in source(words).items()}


def batches_of(words: WordIds, size: int) -> list[WordIds]:
    """Split documents into batches of so many, in order."""
    parts = []
    for start in range(0, len(words), size):
        offsets = words.offsets[start : start + size + 1]
        parts.append(WordIds(words.ids[offsets[0] : offsets[-1]], offsets - offsets[0]))
    return parts


def _metrics(
    ids: NDArray[np.int64], truth: csr_matrix, frequency: NDArray[Any], train_documents: int
) -> dict[str, float]:
    metrics = RankingMetrics(frequency, train_documents)
    metrics.add(ids, truth)
    return metrics.metrics()
