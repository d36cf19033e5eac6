"""Label content: a vector a label from the words of its names, joined to what the label graph says of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from laha.prepared import Label, Prepared
from laha.vocabulary import RESERVED, Tokenizer, Vocabulary


def name_vectors(
    labels: Sequence[Label], vocabulary: Vocabulary, word_vectors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the mean word vector of each label's name and other names, of length 1; zeros where no word is known.

    >>> vocabulary, vectors = Vocabulary(["dark", "matter"]), np.array([[0, 0], [0, 0], [6, 0], [0, 8]], np.float32)
    >>> name_vectors([Label("Dark matter", 1), Label("?", 1)], vocabulary, vectors).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    tokenizer = Tokenizer()
    found = np.zeros((len(labels), word_vectors.shape[1]), np.float32)
    for number, label in enumerate(labels):
        names = [tokenizer.words(name) for name in (label.name, *label.other_names)]
        ids = vocabulary.encode(names).ids
        known = ids[ids >= RESERVED]
        if len(known):
            found[number] = word_vectors[known].mean(axis=0)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))


def with_content(prepared: Prepared) -> NDArray[np.float32]:
    """Return the label vectors of a prepared corpus with the vectors of the labels' names joined: (labels, r + 300).

    Both halves are of the same length on average, so that neither drowns the other in the queries.
    """
    graph = prepared.label_vectors
    names = name_vectors(prepared.labels[: prepared.train_labels], prepared.vocabulary, prepared.word_vectors)
    length = float(np.linalg.norm(graph, axis=1).mean())
    return np.concatenate([graph, names * np.float32(length)], axis=1)
