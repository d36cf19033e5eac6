"""Word vectors: every file format gives the same rows, every error names its file; skip-gram learns and repeats."""

from __future__ import annotations

import gzip
import re
import sys

import numpy as np
import pytest

from laha.errors import CorpusError, LahaError
from laha.vocabulary import PADDING, RESERVED, UNKNOWN, Vocabulary
from laha.word_vectors import SENTENCE, fill_missing, read_word_vectors, train_word_vectors

VECTORS = {"the": [0.5, -1.0, 2.0], "cat": [1.5, 0.25, -3.0], ". . .": [1.0, 1.0, 1.0], "zoë": [0.0, 4.0, 0.125]}
VOCABULARY = Vocabulary(["cat", "zoë", "the"])


def glove(end: str = "\n") -> bytes:
    return "".join(f"{word} {' '.join(map(str, v))}{end}" for word, v in VECTORS.items()).encode()


def header() -> bytes:
    return f"{len(VECTORS)} 3\n".encode()


def binary(end: bytes) -> bytes:
    lines = (word.replace(" ", "").encode() + b" " + np.array(v, "<f4").tobytes() + end for word, v in VECTORS.items())
    return header() + b"".join(lines)


FILES = {
    "glove.txt": glove(),
    "windows.txt": glove("\r\n"),
    "word2vec.txt": header() + glove(),
    "fasttext.vec": header() + glove(" \n"),  # fastText ends each line with a space
    "newlines.bin": binary(b"\n"),
    "packed.bin": binary(b""),
}


def read(folder, name: str, content: bytes, vocabulary: Vocabulary = VOCABULARY, seed: int = 0):
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_word_vectors(path, vocabulary, seed)


# Files


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_the_vectors_of_the_words_needed(tmp_path, name, ending):
    matrix, found = read(tmp_path, name + ending, FILES[name])
    assert matrix[RESERVED:].tolist() == [VECTORS[word] for word in VOCABULARY.words]
    assert found.tolist() == [False, False, True, True, True]
    assert matrix.dtype == np.float32


def test_padding_is_zero_and_the_unknown_word_the_mean(tmp_path):
    matrix, _ = read(tmp_path, "glove.txt", FILES["glove.txt"])
    assert matrix[PADDING].tolist() == [0, 0, 0]
    np.testing.assert_allclose(matrix[UNKNOWN], matrix[RESERVED:].mean(axis=0), rtol=1e-6)


def test_a_word_may_hold_spaces(tmp_path):
    matrix, _ = read(tmp_path, "glove.txt", FILES["glove.txt"], Vocabulary([". . ."]))
    assert matrix[RESERVED].tolist() == VECTORS[". . ."]


@pytest.mark.parametrize("order", [["Cat 1", "cat 2", "CAT 3"], ["cat 2", "Cat 1"], ["Cat 1", "CAT 3", "cat 2"]])
def test_the_word_in_its_own_case_wins(tmp_path, order):
    matrix, _ = read(tmp_path, "v.txt", "\n".join(order).encode())
    assert matrix[RESERVED].tolist() == [2]


def test_a_word_only_in_another_case_takes_the_first(tmp_path):
    matrix, found = read(tmp_path, "v.txt", b"CAT 3\nCat 1\n")
    assert matrix[RESERVED].tolist() == [3]
    assert found[RESERVED]


def test_a_missing_word_gets_a_random_vector_that_follows_the_seed(tmp_path):
    known = Vocabulary(["the", "cat", "unheard-of"])
    first, again, other = (read(tmp_path, "v.txt", FILES["glove.txt"], known, seed)[0] for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert first[:-1].tolist() == other[:-1].tolist()
    assert (first[-1] != other[-1]).all()
    assert np.abs(first[-1]).min() > 0


def test_random_vectors_spread_like_the_known_ones():
    rng = np.random.default_rng(0)
    matrix = np.zeros((3000, 50), np.float32)
    matrix[1000:] = rng.normal(0, 7.0, (2000, 50))
    filled = fill_missing(matrix, np.arange(3000) >= 1000, seed=0)
    assert filled[RESERVED:1000].std() == pytest.approx(7.0, rel=0.02)


# Errors


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"the 1 2 3\ncat 1 2\n", "v.txt, line 2: expected a word and 3 numbers: mend or remove the line"),
        ("v.txt", b"2 3\nthe 1 2 3\ncat 1 x 3\n", "v.txt, line 3: expected a word and 3 numbers"),
        ("v.txt", b"the 1 2\ncat nan 2\n", "v.txt, line 2: expected a word and 2 numbers"),
        ("v.txt", b"the 1 2\n\ncat 1e60 2\n", "v.txt, line 3: expected a word and 2 numbers"),
        ("v.txt", b"", "v.txt, line 1: no vectors: a file begins with a word and its numbers, or a header"),
        ("v.txt", b"2 0\nthe\n", "v.txt, line 1: the header says 0 dimensions"),
        ("v.txt", b"dog 1 2\n", "v.txt: holds a vector for none of the corpus's words"),
        ("v.bin", b"the 1 2 3\n", "v.bin, line 1: no word2vec header"),
        ("v.bin", binary(b"\n")[:-5], "v.bin: ends inside vector 4 of 4: fetch the file again"),
        ("v.bin", binary(b"\n")[:22], "v.bin: ends or breaks at vector 2 of 4: fetch the file again"),
        ("v.bin", b"1 1\ncat " + np.array([np.nan], "<f4").tobytes(), "v.bin: vector 1 of 1 is not of numbers"),
    ],
)
def test_an_error_names_file_and_place(tmp_path, name, content, message):
    with pytest.raises(CorpusError, match=re.escape(message)):
        read(tmp_path, name, content)


@pytest.mark.parametrize("name", ["glove.txt", "packed.bin"])
def test_damaged_gzip_is_named(tmp_path, name):
    path = tmp_path / (name + ".gz")
    packed = gzip.compress(FILES[name])
    flipped = bytearray(packed)
    flipped[20] ^= 0xFF
    for damaged in (packed[:-12], bytes(flipped), b"not gzip at all"):
        path.write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"\.gz: the gzip data is cut short or damaged: fetch the file again"):
            read_word_vectors(path, VOCABULARY)


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "glove.txt").touch()
    with pytest.raises(CorpusError, match=r"glov\.txt: no such file; did you mean 'glove\.txt'"):
        read_word_vectors(tmp_path / "glov.txt", VOCABULARY)


# Skip-gram


def two_topics(documents: int = 200):
    """Documents that speak of animals or of stars, never of both."""
    rng = np.random.default_rng(0)
    topics = (["cat", "dog", "paw", "fur"], ["star", "moon", "orbit", "sky"])
    texts = [[topics[number % 2][word] for word in rng.integers(0, 4, 12)] for number in range(documents)]
    return texts, Vocabulary.build(texts)


def train(texts, vocabulary, **settings):
    return train_word_vectors(vocabulary.encode(texts), vocabulary, **{"dimensions": 16, "epochs": 10, **settings})


def test_one_worker_and_one_seed_give_the_same_bytes():
    texts, vocabulary = two_topics(40)
    first, again, other = (train(texts, vocabulary, seed=seed) for seed in (3, 3, 4))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_words_that_meet_end_up_nearer_than_words_that_do_not():
    texts, vocabulary = two_topics()
    vectors = train(texts, vocabulary)
    unit = vectors[RESERVED:] / np.linalg.norm(vectors[RESERVED:], axis=1, keepdims=True)
    near = unit @ unit.T
    animal = np.array([word in ("cat", "dog", "paw", "fur") for word in vocabulary.words])
    same = animal[:, None] == animal
    assert near[same].min() > near[~same].max() + 0.1


def test_empty_documents_and_unknown_words_are_no_trouble():
    texts, vocabulary = two_topics(40)
    vectors = train([[], *texts, [], ["unheard-of"]], vocabulary)
    assert np.isfinite(vectors).all()
    assert vectors.shape == (len(vocabulary), 16)


def test_a_corpus_without_words_still_has_vectors():
    vectors = train([[], []], Vocabulary(["cat"]))
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[RESERVED]).max() > 0


def test_words_far_into_a_long_document_are_learned():
    # As many kinds of words as are needed lest gensim leave some out for being frequent.
    early, late = ([f"{name}{number}" for number in range(1250)] for name in ("early", "late"))
    document = early * (SENTENCE // 1250) + late * (SENTENCE // 1250)
    vocabulary = Vocabulary(early + late)
    norms = np.linalg.norm(train([document], vocabulary)[RESERVED:], axis=1)
    assert norms[1250:].mean() > 0.9 * norms[:1250].mean(), "gensim begins with vectors near zero"


def test_progress_grows_to_one():
    texts, vocabulary = two_topics(40)
    seen = []
    train(texts, vocabulary, progress=lambda task, done, note="": seen.append((task, done)))
    assert {task for task, _ in seen} == {"word vectors"}
    shares = [done for _, done in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_without_gensim_the_ways_out_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(LahaError, match=r"needs gensim: 'pip install gensim', give --word-vectors FILE"):
        train(*two_topics(2))
