"""Word vectors: read GloVe, word2vec and fastText files, only the words needed; or train skip-gram on the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from laha.errors import CorpusError, LahaError
from laha.formats import DAMAGE, DAMAGED, open_binary
from laha.progress import Progress, silent
from laha.vocabulary import PADDING, RESERVED, UNKNOWN, Vocabulary, WordIds

SENTENCE = 10_000  # words that gensim reads of a sentence; it drops the rest


def read_word_vectors(
    path: str | Path, vocabulary: Vocabulary, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Read the vectors of a vocabulary's words from a GloVe, word2vec (text or binary) or fastText file, also .gz.

    Returns a row for each word id and which ids the file held. A word found only in other letter case takes the
    first such vector; one not found takes a random vector of the same spread.
    """
    path = Path(path)
    wanted = {word: number for number, word in enumerate(vocabulary.words, start=RESERVED)}
    rows: dict[int, NDArray[np.float32]] = {}
    try:
        for word, vector in _vectors(path):
            number = wanted.get(word)
            if number is None and (other := wanted.get(word.lower())) not in rows:
                number = other
            if number is not None:
                rows[number] = vector
    except DAMAGE:
        raise CorpusError(DAMAGED, path) from None
    if not rows:
        raise CorpusError("holds a vector for none of the corpus's words: is it of the right language?", path)
    dimensions = len(next(iter(rows.values())))
    matrix, found = np.zeros((len(vocabulary), dimensions), np.float32), np.zeros(len(vocabulary), bool)
    for number, vector in rows.items():
        matrix[number], found[number] = vector, True
    return fill_missing(matrix, found, seed), found


def fill_missing(matrix: NDArray[np.float32], found: NDArray[np.bool_], seed: int) -> NDArray[np.float32]:
    """Give words without a vector a random one of the same spread, the unknown word the mean, padding zeros."""
    known = matrix[found]
    spread = float(known.std()) if known.size else 0.1
    rng = np.random.default_rng([seed, len(matrix)])
    matrix[~found] = rng.normal(0.0, spread, (int((~found).sum()), matrix.shape[1])).astype(np.float32)
    matrix[UNKNOWN] = known.mean(axis=0) if known.size else 0.0
    matrix[PADDING] = 0.0
    return matrix


def _vectors(path: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    binary = path.name.removesuffix(".gz").endswith(".bin")
    with open_binary(path) as handle:
        first = handle.readline()
        header = first.split()
        if len(header) == 2 and all(number.isdigit() for number in header):
            count, dimensions = int(header[0]), int(header[1])
            if not dimensions:
                raise CorpusError("the header says 0 dimensions: fetch the file again", path, 1)
            if binary:
                yield from _binary_vectors(handle, path, count, dimensions)
                return
            yield from _text_vectors(handle, path, dimensions, start=2)
        elif binary:
            raise CorpusError("no word2vec header: a .bin file begins with 'words dimensions'", path, 1)
        else:  # GloVe has no header: the first line is a vector already
            dimensions = len(header) - 1
            if dimensions < 1:
                raise CorpusError("no vectors: a file begins with a word and its numbers, or a header", path, 1)
            yield _parse(first, path, 1, dimensions)
            yield from _text_vectors(handle, path, dimensions, start=2)


def _text_vectors(
    handle: BinaryIO, path: Path, dimensions: int, start: int
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for number, line in enumerate(handle, start=start):
        if line.strip():
            yield _parse(line, path, number, dimensions)


def _parse(line: bytes, path: Path, number: int, dimensions: int) -> tuple[str, NDArray[np.float32]]:
    # Some words hold spaces (GloVe has ". . ."), so the numbers are counted off from the right.
    parts = line.rstrip().rsplit(b" ", dimensions)
    try:
        with np.errstate(over="ignore"):  # too large a number becomes infinite, and that is refused
            vector = np.array(parts[1:], dtype=np.float32)
    except ValueError:
        vector = np.zeros(0, np.float32)
    if len(vector) != dimensions or not np.isfinite(vector).all():
        raise CorpusError(f"expected a word and {dimensions} numbers: mend or remove the line", path, number)
    return parts[0].decode("utf-8", errors="replace"), vector


def _binary_vectors(
    handle: BinaryIO, path: Path, count: int, dimensions: int
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    size = 4 * dimensions
    for number in range(count):
        word = bytearray()
        while (byte := handle.read(1)) != b" ":
            if not byte or len(word) > 10_000:
                raise CorpusError(f"ends or breaks at vector {number + 1} of {count}: fetch the file again", path)
            word += byte
        data = handle.read(size)
        if len(data) < size:
            raise CorpusError(f"ends inside vector {number + 1} of {count}: fetch the file again", path)
        vector = np.frombuffer(data, dtype="<f4").astype(np.float32)
        if not np.isfinite(vector).all():
            raise CorpusError(f"vector {number + 1} of {count} is not of numbers: fetch the file again", path)
        yield word.lstrip(b"\n").decode("utf-8", errors="replace"), vector


def train_word_vectors(
    documents: WordIds,
    vocabulary: Vocabulary,
    dimensions: int = 300,
    window: int = 5,
    epochs: int = 5,
    seed: int = 0,
    workers: int = 1,
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """Train skip-gram with negative sampling (gensim) on the corpus; one worker and one seed give the same bytes."""
    try:
        from gensim.models import Word2Vec
    except ImportError as error:
        raise LahaError(
            "training word vectors needs gensim: 'pip install gensim', give --word-vectors FILE, or train from a "
            "folder made by 'laha prepare'"
        ) from error
    sentences = _Sentences(documents, vocabulary.words, epochs + 1, progress)
    matrix, found = np.zeros((len(vocabulary), dimensions), np.float32), np.zeros(len(vocabulary), bool)
    if any(True for _ in sentences.peek()):
        model = Word2Vec(
            vector_size=dimensions, window=window, min_count=1, sg=1, negative=5, seed=seed + 1, workers=workers
        )
        model.build_vocab(sentences)
        model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
        numbers = vocabulary.encode([model.wv.index_to_key]).ids
        matrix[numbers], found[numbers] = model.wv.vectors, True
    progress("word vectors", 1.0)
    return fill_missing(matrix, found, seed)


class _Sentences:
    """The known words of each document, restartable, as gensim reads them once for counting and once an epoch."""

    def __init__(self, documents: WordIds, words: Sequence[str], passes: int, progress: Progress):
        self.documents, self.words, self.passes, self.progress = documents, words, passes, progress
        self.done = 0

    def peek(self) -> Iterator[int]:
        return (int(number) for number in self.documents.ids if number >= RESERVED)

    def __iter__(self) -> Iterator[list[str]]:
        words = self.words
        for document in range(len(self.documents)):
            if document % 1000 == 0:
                self.progress("word vectors", min(1.0, (self.done + document / len(self.documents)) / self.passes))
            known = [words[number - RESERVED] for number in self.documents[document].tolist() if number >= RESERVED]
            for start in range(0, len(known), SENTENCE):
                yield known[start : start + SENTENCE]
        self.done += 1
