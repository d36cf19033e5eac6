"""What several tests share: a tiny corpus with a rule to learn, and its prepared form."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from laha.corpus import Corpus, Parts
from laha.prepared import PreparationConfiguration, Prepared, prepare

TOPICS = {
    "fruit": "apple pear plum cherry",
    "metal": "iron copper zinc tin",
    "bird": "owl finch heron crane",
    "tool": "hammer saw drill chisel",
    "river": "rhine danube nile volga",
    "colour": "red green blue violet",
}
# Small enough for a test, large enough to learn the rule.
SMALL = {
    "units": 8,
    "attention_units": 8,
    "word_dimensions": 12,
    "label_dimensions": 6,
    "walks_per_label": 2,
    "walk_length": 5,
    "min_count": 1,
    "word_epochs": 2,
    "batch": 16,
    "epochs": 3,
    "learning_rate": 0.02,
    "device": "cpu",
}
PAPER = {**SMALL, "preset": "paper"}  # the network alone


def make_corpus(documents: int, seed: int, name: str = "topics") -> Corpus:
    """Return documents that have a label exactly when they hold one of its words, between words that say nothing."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(documents):
        chosen = sorted(random.choice(list(TOPICS), size=random.integers(1, 4), replace=False).tolist())
        words = [random.choice(TOPICS[topic].split()) for topic in chosen]
        words += [f"noise{number}" for number in random.integers(0, 9, size=random.integers(0, 12))]
        random.shuffle(words)
        texts.append(" ".join(words))
        labels.append(chosen)
    return Corpus.from_lists(texts, labels, name)


@pytest.fixture(scope="session")
def parts() -> Parts:
    return Parts(train=make_corpus(160, 1), valid=make_corpus(40, 2), test=make_corpus(60, 3), name="topics")


@pytest.fixture(scope="session")
def prepared(parts: Parts) -> Prepared:
    names = PreparationConfiguration.__dataclass_fields__
    return prepare(parts, PreparationConfiguration(**{k: v for k, v in SMALL.items() if k in names}), seed=0)
