"""The label-names expert: a label whose name, or a synonym of it, stands in the text.

How much a name that is there says differs from label to label ("analysis" stands in every second text), so what a match
counts is learned on the training documents: a logistic regression over how much of the name is there, where and how
often, and over how often the label was given when its name was there. It can propose labels that no training document
has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.linear_model import LogisticRegression

from laha.experts.proposals import DEPTH, Proposals, best_pairs, entries
from laha.features import Features, word_counts
from laha.prepared import Label
from laha.progress import Progress, silent
from laha.stems import Stems
from laha.vocabulary import RESERVED, UNKNOWN, Tokenizer, WordIds

COVERED = 0.6  # the share of a name, by rarity of its words, that must be in the text
HEAD = 12  # words that mostly are a title
LEARNED_FROM = 20_000  # training documents that suffice for a dozen weights
ODDS = 7  # the place, in what the regression sees, of a label's odds to be right where its name is
PRIOR = 2.0  # matches that a label without any is thought to have, at the average precision
BATCH = 500  # documents compared with all names at once


class Matches(NamedTuple):
    """Pairs of a document and a label whose name is there, with what the match looks like."""

    documents: NDArray[np.int64]
    labels: NDArray[np.int64]
    looks: NDArray[np.float32]  # (pairs, 7)


class LabelNames:
    """The labels' names as stems, and what their matches count."""

    def __init__(
        self,
        stems: Stems,
        labels: Sequence[Label],
        rarity: NDArray[np.float32],
        given: NDArray[np.float32],
        weights: NDArray[np.float32],
    ):
        self.stems, self.rarity = stems, rarity
        self.given = given  # (2, labels): training documents with the name, and those of them with the label
        self.weights = weights  # of the logistic regression, its constant last
        self.frequency = np.array([label.frequency for label in labels], np.float64)
        self.names, self.label_of = names_of(labels, stems)
        self.lengths = np.array([len(name) for name in self.names], np.int64)
        indices = np.concatenate([*self.names, np.zeros(0, np.int32)])
        words = np.repeat(np.arange(len(self.names)), self.lengths)
        # A word that the vocabulary lacks is as rare as can be: a name with one is never all there.
        rare = np.append(rarity, rarity.max(initial=1.0))
        column = np.where(indices == UNKNOWN, len(rarity), indices - RESERVED)
        weight = csr_matrix((rare[column], (words, column)), shape=(len(self.names), len(rare)))
        total = np.asarray(weight.sum(axis=1)).ravel()
        self.mean_rarity = total / np.maximum(self.lengths, 1)
        self._share = csr_matrix((diags(1 / np.maximum(total, 1e-9)) @ weight)[:, :-1].T)  # (stems, names)

    @classmethod
    def fit(
        cls,
        stems: Stems,
        labels: Sequence[Label],
        words: WordIds,
        truth: csr_matrix,
        seed: int = 0,
        progress: Progress = silent,
    ) -> Self:
        """Learn from training documents what matches count; `truth` has a column for each of `labels`."""
        chosen = np.sort(np.random.default_rng([seed, 5]).permutation(len(words))[:LEARNED_FROM])
        pieces = [words[int(document)] for document in chosen]
        offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
        sample = WordIds(np.concatenate([*pieces, np.zeros(0, np.int32)]).astype(np.int32), offsets)
        rarity = Features.fit(stems.of(words), len(stems) - RESERVED, "tfidf").rarity
        found = cls(stems, labels, rarity, np.zeros((2, len(labels)), np.float32), np.zeros(0, np.float32))
        matches = found.match(sample, progress)
        right = entries(csr_matrix(truth[chosen]), matches.documents, matches.labels)
        phrase = matches.looks[:, 2] > 0
        found.given = np.stack(
            [
                np.bincount(matches.labels[phrase], minlength=len(labels)),
                np.bincount(matches.labels[phrase], weights=right[phrase], minlength=len(labels)),
            ]
        ).astype(np.float32)
        # A document must not tell of itself: its own label is taken out of what is known of the label.
        seen = found._evidence(matches, right)
        if 0 < right.sum() < len(right):
            regression = LogisticRegression(C=1.0, max_iter=300).fit(seen, right)
            found.weights = np.append(regression.coef_[0], regression.intercept_[0]).astype(np.float32)
        elif right.any():  # every match was right, which leaves a regression nothing to tell apart: the odds alone
            found.weights = np.eye(seen.shape[1] + 1, dtype=np.float32)[ODDS]
        return found

    def top(self, words: WordIds, depth: int = DEPTH) -> Proposals:
        """Return the labels whose names are there, with the logits of the regression."""
        matches = self.match(words)
        if not len(self.weights):  # no name of any label was ever right
            return Proposals(np.full((len(words), depth), -1, np.int64), np.zeros((len(words), depth), np.float32))
        scores = self._evidence(matches) @ self.weights[:-1] + self.weights[-1]
        return best_pairs(matches.documents, matches.labels, scores, len(words), depth)

    def match(self, words: WordIds, progress: Progress = silent) -> Matches:
        """Find the names in documents; of several names of a label the one that is there most."""
        documents = self.stems.of(words)
        counts = word_counts(documents, len(self.rarity))
        counts.data[:] = 1
        parts = []
        for start in range(0, len(words), BATCH):
            share = (counts[start : start + BATCH] @ self._share).tocoo()  # (batch, names)
            kept = share.data >= COVERED
            parts.append(self._look(documents, share.row[kept] + start, share.col[kept], share.data[kept]))
            progress("names of labels", min(1.0, (start + BATCH) / len(words)))
        if not parts:
            return Matches(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 7), np.float32))
        return Matches(*(np.concatenate([part[place] for part in parts]) for place in range(3)))

    def _look(
        self, stems: WordIds, documents: NDArray[Any], names: NDArray[Any], share: NDArray[np.float32]
    ) -> Matches:
        whole = share > 0.999
        times, in_head = np.zeros(len(names), np.float32), np.zeros(len(names), np.float32)
        for pair in np.flatnonzero(whole):
            text = stems[int(documents[pair])]
            places = occurrences(text, self.names[names[pair]])
            times[pair], in_head[pair] = len(places), bool(places) and places[0] < HEAD
        there = times > 0
        looks = np.stack(
            [
                *(share, whole, there, in_head, np.log1p(times)),
                *(np.log(self.lengths[names]), self.mean_rarity[names] / 10),
            ],
            axis=1,
        ).astype(np.float32)
        labels = self.label_of[names]
        strength = 4 * there + 2 * in_head + share + looks[:, 4]
        order = np.lexsort((-strength, labels, documents))
        documents, labels, looks = documents[order], labels[order], looks[order]
        first = np.ones(len(order), bool)
        first[1:] = (documents[1:] != documents[:-1]) | (labels[1:] != labels[:-1])
        return Matches(documents[first].astype(np.int64), labels[first], looks[first])

    def _evidence(self, matches: Matches, own: NDArray[Any] | None = None) -> NDArray[np.float64]:
        """Return what the regression sees of matches; `own` is what the matched documents told of their labels."""
        _, labels, looks = matches
        there = looks[:, 2]
        named, right = (side[labels].astype(np.float64) for side in self.given)
        frequency = self.frequency[labels]
        average = float(self.given[1].sum() + 1) / float(self.given[0].sum() + 2)
        if own is not None:
            named, right, frequency = named - there, right - there * own, frequency - own
        precision = (right + PRIOR * average) / (named + PRIOR)
        odds = np.log(precision / (1 - precision))
        extra = (odds, np.log1p(named), np.log1p(np.maximum(frequency, 0)), there * odds, frequency < 1)
        return np.column_stack([looks, *extra])

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return what was learned; the names are the labels' own."""
        return {"rarity": self.rarity, "given": self.given, "weights": self.weights}

    @classmethod
    def restore(cls, stems: Stems, labels: Sequence[Label], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what `tensors` gave."""
        return cls(stems, labels, tensors["rarity"], tensors["given"], tensors["weights"])


def name_forms(label: Label) -> list[str]:
    """Return the ways a label's name may stand in a text: as it is, its synonyms, without what only tells it apart.

    >>> name_forms(Label("biology:cell-cycle", 3)), name_forms(Label("Mercury (planet)", 1, None, ("Merkur",)))
    (['biology:cell-cycle', 'cell-cycle'], ['Mercury (planet)', 'Merkur', 'Mercury'])
    """
    given = [label.name, *label.other_names]
    shorter = [name.rpartition(":")[2] for name in given] + [re.sub(r"[(<\[].*", "", name) for name in given]
    return [name for name in dict.fromkeys(name.strip() for name in given + shorter) if name]


def names_of(labels: Sequence[Label], stems: Stems) -> tuple[list[NDArray[np.int32]], NDArray[np.int64]]:
    """Return the stems of every form of every label's name, without those of unknown words only, and their labels."""
    tokenizer = Tokenizer()
    names, owners = [], []
    for number, label in enumerate(labels):
        forms = {tuple(stems.encode(tokenizer.words(form))): None for form in name_forms(label)}
        for form in forms:
            if any(word != UNKNOWN for word in form):
                names.append(np.array(form, np.int32))
                owners.append(number)
    return names, np.array(owners, np.int64)


def occurrences(text: NDArray[np.int32], name: NDArray[np.int32]) -> list[int]:
    """Return where a name begins in a text, both as stems.

    >>> occurrences(np.array([4, 2, 3, 9, 2, 3]), np.array([2, 3]))
    [1, 4]
    """
    places = np.flatnonzero(text[: max(0, len(text) - len(name) + 1)] == name[0])
    for offset in range(1, len(name)):
        places = places[text[places + offset] == name[offset]]
    return [int(place) for place in places]
