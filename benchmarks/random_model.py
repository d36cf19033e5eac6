"""A LAHA of the paper's sizes with random weights: what scoring costs does not depend on what was learned."""

from __future__ import annotations

import numpy as np
import torch

from laha.network.laha import LAHANetwork
from laha.prepared import Label
from laha.tagger import LAHA, _label_index
from laha.vocabulary import Vocabulary, WordIds

WORDS = 50_000


def random_network(labels: int, head: bool = True) -> LAHANetwork:
    """Return a network of the paper's sizes: 256 units, word vectors of 300, label vectors of 256."""
    torch.manual_seed(0)
    return LAHANetwork(WORDS + 2, 300, labels, 256, document_units=256 if head else 0).eval()


def random_model(labels: int, shortlist: int = 512, device: str = "cpu") -> LAHA:
    """Return a model ready to tag, with a shortlist, and with an index where labels are very many."""
    model = LAHA(preset="paper", device=device, shortlist=shortlist)
    model.configuration_ = model.configuration
    model.network_ = random_network(labels).to(device)
    model.vocabulary_ = Vocabulary([f"word{number}" for number in range(WORDS)])
    model.labels_ = [Label(f"label{number}", 1) for number in range(labels)]
    model.train_documents_, model.trained_ = 1, {"shortlist": {"labels": shortlist}}
    model.index_ = _label_index(model.network_)
    return model


def random_documents(count: int, words: int, seed: int = 0) -> WordIds:
    """Return documents of so many random words."""
    ids = np.random.default_rng(seed).integers(2, WORDS + 2, count * words)
    return WordIds(ids, np.arange(count + 1) * words)
