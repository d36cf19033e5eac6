"""The fusion of experts: how much each counts, for every document and label, learned on documents held out.

In the spirit of the paper's adaptive fusion. Where the paper weighs two attentions by gates that see both, this weighs
any number of experts by gates that see all of them: their scores and ranks, how far they agree, and how often the label
was given in training. What an expert adds is its gate times how far it puts the label above its last proposal, so an
expert that does not propose a label adds nothing, and a gate can switch an expert off. The sum is a logit, and its
sigmoid a probability, for the gates learn by cross-entropy on documents that no expert learned from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from laha.experts.proposals import Proposals, entries
from laha.metrics import RankingMetrics, top_labels
from laha.progress import Progress, silent

OF_EXPERT, OF_LABEL = 5, 5  # numbers that the gates see of each expert, and of the pair as a whole
WIDTH = 32
BATCH = 8192  # pairs a step
EPOCHS = 8  # a million pairs: longer gains nothing (experiments/README.md)
RATE = 0.01
DECAY = 1e-4
FEW_DOCUMENTS = 1_500  # fewer held-out documents may be too few for gates: cross-validation decides
FOLDS = 3
MARGIN = 0.5  # points of nDCG@5 by which gates must be better there: few documents deceive
STEPS = 600  # at least: few pairs are read more often
# A weight an expert, whatever the pair, is learned in half a second: which experts pay is found by trying many times.
BATCH_FIXED, STEPS_FIXED, RATE_FIXED = 2048, 400, 0.01  # larger steps leave equal weights too far behind


class Pairs(NamedTuple):
    """Every (document, label) that some expert proposes, and what the experts say of it."""

    documents: NDArray[np.int64]
    labels: NDArray[np.int64]
    above: NDArray[np.float32]  # (pairs, experts): how far above the expert's last proposal; 0 where not proposed
    looks: NDArray[np.float32]  # (pairs, OF_EXPERT x experts + OF_LABEL)


def join(proposals: Sequence[Proposals], frequency: NDArray[Any]) -> Pairs:
    """Gather the pairs that any expert proposes, in the order of documents and labels."""
    width = len(frequency)
    keys = [_keys(each, width) for each in proposals]
    every = np.unique(np.concatenate(keys))
    documents, labels = every // width, every % width
    above, seen, hits, places = [], [], [], []
    for each, own in zip(proposals, keys, strict=True):
        rows, columns = np.nonzero(each.ids >= 0)
        order = np.argsort(own)
        at = np.minimum(np.searchsorted(own[order], every), max(0, len(own) - 1))
        hit = own[order][at] == every if len(own) else np.zeros(len(every), bool)
        highest, lowest = _range(each)
        score, rank = lowest[documents], np.zeros(len(every))
        score[hit] = each.scores[rows, columns][order][at[hit]]
        rank[hit] = 1 / (1 + columns[order][at[hit]])
        above.append(score - lowest[documents])
        seen += [score, score - highest[documents], highest[documents], hit, rank]
        hits.append(hit)
        places.append(rank)
    often = frequency[labels]
    seen += [np.log1p(often), often == 0, often == 1, np.sum(hits, axis=0), np.sum(places, axis=0)]
    return Pairs(documents, labels, np.stack(above, 1).astype(np.float32), np.stack(seen, 1).astype(np.float32))


def _keys(proposals: Proposals, width: int) -> NDArray[np.int64]:
    rows, columns = np.nonzero(proposals.ids >= 0)
    return rows * width + proposals.ids[rows, columns]


def _range(proposals: Proposals) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return each document's highest and lowest score; 0 where nothing is proposed."""
    known = proposals.ids >= 0
    highest = np.where(known, proposals.scores, -np.inf).max(axis=1, initial=-np.inf)
    lowest = np.where(known, proposals.scores, np.inf).min(axis=1, initial=np.inf)
    return np.where(known.any(axis=1), (highest, lowest), 0).astype(np.float32)  # type: ignore[return-value]


class Gates(nn.Module):
    """What the experts say of pairs -> how much each counts, and what no expert says."""

    def __init__(self, experts: int, adaptive: bool):
        super().__init__()
        seen = OF_EXPERT * experts + OF_LABEL
        self.looks_mean = nn.Buffer(torch.zeros(seen))
        self.looks_scale = nn.Buffer(torch.ones(seen))
        self.above_scale = nn.Buffer(torch.ones(experts))
        self.adaptive = adaptive
        hidden = [nn.Linear(seen, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        self.hidden = nn.Sequential(*hidden) if adaptive else nn.Sequential()
        self.gates = nn.Linear(WIDTH if adaptive else 1, experts)  # else one weight an expert, whatever the pair
        self.rest = nn.Linear(WIDTH if adaptive else OF_LABEL, 1)
        for layer in (self.gates, self.rest):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, looks: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
        """Return what each expert adds to the logits (pairs, experts), and the rest (pairs,)."""
        looks = (looks - self.looks_mean) / self.looks_scale
        hidden = self.hidden(looks) if self.adaptive else torch.ones_like(looks[:, :1])
        rest: Tensor = self.rest(hidden if self.adaptive else looks[:, -OF_LABEL:])
        return nn.functional.softplus(self.gates(hidden)) * above / self.above_scale, rest.squeeze(-1)

    def measure(self, pairs: Pairs, share: float) -> None:
        """Take the scales of what will be seen from pairs, and begin at the share of them that is right."""
        self.looks_mean.copy_(torch.from_numpy(pairs.looks.mean(axis=0)))
        self.looks_scale.copy_(torch.from_numpy(pairs.looks.std(axis=0) + 1e-6))
        self.above_scale.copy_(torch.from_numpy(pairs.above.std(axis=0) + 1e-6))
        nn.init.constant_(self.rest.bias, float(np.log(share / (1 - share))))


class Fusion:
    """Gates over experts, learned."""

    def __init__(self, gates: Gates):
        self.gates = gates.eval()

    @classmethod
    def fit(
        cls,
        pairs: Pairs,
        truth: csr_matrix,
        frequency: NDArray[Any],
        seed: int = 0,
        progress: Progress = silent,
        quick: bool = False,
    ) -> Self:
        """Learn from held-out documents; where they are few, cross-validation says whether gates may adapt.

        `quick` learns without looking: few documents get fixed weights.
        """
        documents = truth.shape[0]
        right = entries(truth, pairs.documents, pairs.labels)
        adaptive = documents >= FEW_DOCUMENTS
        if not adaptive and not quick:
            scores = [crosswise(pairs, truth, frequency, choice, seed) for choice in (False, True)]
            adaptive = scores[1] > scores[0] + MARGIN
        return cls(_train(pairs, right, adaptive, seed, progress))

    def weigh(self, pairs: Pairs) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the probabilities of pairs, and what each expert adds to their logits (pairs, experts)."""
        with torch.inference_mode():
            parts, rest = self.gates(torch.from_numpy(pairs.looks), torch.from_numpy(pairs.above))
            return (parts.sum(dim=1) + rest).sigmoid().numpy(), parts.numpy()

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what was learned."""
        return {name: tensor.numpy() for name, tensor in self.gates.state_dict().items()}

    @classmethod
    def restore(cls, tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what `tensors` gave."""
        gates = Gates(len(tensors["above_scale"]), "hidden.0.weight" in tensors)
        gates.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()})
        return cls(gates)


def _train(pairs: Pairs, right: NDArray[np.float32], adaptive: bool, seed: int, progress: Progress = silent) -> Gates:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        gates = Gates(pairs.above.shape[1], adaptive)
    if not len(right):  # no expert proposes anything: nothing to learn from, and nothing to weigh
        return gates
    gates.measure(pairs, min(max(float(right.mean()), 1e-6), 0.5))
    looks, above, targets = (torch.from_numpy(part) for part in (pairs.looks, pairs.above, right))
    batch = min(BATCH if adaptive else BATCH_FIXED, max(64, len(right) // 16))
    steps = max(STEPS, EPOCHS * -(-len(right) // batch)) if adaptive else STEPS_FIXED
    rate = RATE if adaptive else RATE_FIXED
    optimizer = torch.optim.AdamW(gates.parameters(), lr=rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    order = torch.empty(0, dtype=torch.long)
    for step in range(steps):
        if len(order) < batch:
            order = torch.randperm(len(right), generator=generator)
        chosen, order = order[:batch], order[batch:]
        parts, rest = gates(looks[chosen], above[chosen])
        loss = nn.functional.binary_cross_entropy_with_logits(parts.sum(dim=1) + rest, targets[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        progress("fusion", (step + 1) / steps)
    return gates


def crosswise(pairs: Pairs, truth: csr_matrix, frequency: NDArray[Any], adaptive: bool, seed: int) -> float:
    """Return the nDCG@5 of gates on documents that they did not learn from."""
    metrics = RankingMetrics(frequency, truth.shape[0])
    metrics.add(top_labels(as_matrix(pairs, crosswise_scores(pairs, truth, adaptive, seed), truth.shape), 5), truth)
    return metrics.metrics().get("nDCG@5", 0.0)


def crosswise_scores(
    pairs: Pairs, truth: csr_matrix, adaptive: bool, seed: int, folds: int = FOLDS
) -> NDArray[np.float32]:
    """Return the probabilities of pairs by gates that did not learn from their documents but from the other folds."""
    right = entries(truth, pairs.documents, pairs.labels)
    fold = np.random.default_rng([seed, 3]).integers(folds, size=truth.shape[0])[pairs.documents]
    scores = np.zeros(len(right), np.float32)
    for number in range(folds):
        inside, outside = (_take(pairs, mask) for mask in (fold == number, fold != number))
        if len(inside.labels) and len(outside.labels):
            scores[fold == number] = Fusion(_train(outside, right[fold != number], adaptive, seed)).weigh(inside)[0]
    return scores


def _take(pairs: Pairs, mask: NDArray[np.bool_]) -> Pairs:
    documents, labels, above, looks = pairs
    return Pairs(documents[mask], labels[mask], above[mask], looks[mask])


def as_matrix(pairs: Pairs, scores: NDArray[np.float32], shape: tuple[int, int]) -> csr_matrix:
    """Return pairs and their scores as a sparse matrix (documents, labels)."""
    ends = np.searchsorted(pairs.documents, np.arange(shape[0] + 1))
    return csr_matrix((scores, pairs.labels.astype(np.int32), ends), shape=shape)
