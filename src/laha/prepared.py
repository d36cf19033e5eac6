"""All that training needs of one corpus, in one memory-mapped folder: word ids, word vectors, labels, label vectors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from laha.configuration import check_range
from laha.corpus import Corpus, Parts
from laha.datasets import SCHEME, find_corpus
from laha.errors import CorpusError, ModelError
from laha.label_graph import co_occurrence
from laha.label_vectors import read_label_vectors, train_label_vectors
from laha.progress import Progress, silent
from laha.storage import (
    atomic_folder,
    is_folder_of,
    read_jsonl,
    read_lines,
    read_manifest,
    write_jsonl,
    write_lines,
    write_manifest,
)
from laha.vocabulary import Tokenizer, Vocabulary, WordIds
from laha.word_vectors import read_word_vectors, train_word_vectors

KIND = "prepared"


@dataclass(frozen=True, kw_only=True)
class PreparationConfiguration:
    """How a corpus becomes numbers; each default with its reason."""

    max_words: int = 500  # documents are cut there; the paper
    min_count: int = 2  # rarer words are unknown; at 5 the names of rare labels go missing (experiments/README.md)
    vocabulary_words: int = 500_000  # at most so many words: bounds memory on any corpus
    word_dimensions: int = 300  # the paper; a file of word vectors brings its own
    word_epochs: int | None = None  # skip-gram passes; None: as many as read 50 million words, from 5 to 20
    label_dimensions: int = 256  # r of the paper; W_q maps any number to `units`
    walks_per_label: int = 10  # node2vec's default
    walk_length: int = 40  # half of node2vec's 80: label graphs are dense and small
    p: float = 1.0  # node2vec's return parameter; 1 unless set
    q: float = 1.0  # node2vec's in-out parameter; 1 unless set
    clique_limit: int = 128  # a document with more labels joins each only to so many others in the label graph
    valid_fraction: float = 0.1  # held out of train for validation when no validation part is given
    workers: int = 1  # threads of skip-gram; more are faster, but only one gives the same bytes each time
    word_vectors: str | None = None  # a GloVe, word2vec or fastText file; None: trained on the corpus
    label_vectors: str | None = None  # a file of label vectors; None: node2vec on the label graph

    def __post_init__(self) -> None:
        counts = ("max_words", "min_count", "vocabulary_words", "word_dimensions", "word_epochs", "label_dimensions")
        check_range(self, (*counts, "walks_per_label", "clique_limit", "workers"), 1)
        check_range(self, ("walk_length",), 2)
        check_range(self, ("p", "q"), 1e-6)
        check_range(self, ("valid_fraction",), 0.001, 0.9)


@dataclass(frozen=True)
class Label:
    """A label as a model keeps it."""

    name: str
    frequency: int  # training documents that have it; 0 for one that only validation or test documents have
    identifier: str | None = None
    other_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedPart:
    """The train, valid or test part as numbers; columns of `labels` are those of `Prepared.labels`."""

    words: WordIds
    labels: csr_matrix
    sha256: str

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Prepared:
    """A prepared corpus. Labels of train come first, then others that labels.tsv describes, then those of no other."""

    name: str
    configuration: PreparationConfiguration
    seed: int
    vocabulary: Vocabulary
    labels: list[Label]
    word_vectors: NDArray[np.float32]  # (word ids, 300)
    label_vectors: NDArray[np.float32]  # (labels of train, r)
    parts: Mapping[str, PreparedPart]

    @property
    def train_labels(self) -> int:
        """How many labels a model of it can know."""
        return len(self.label_vectors)

    @property
    def has_vectors(self) -> bool:
        """Whether the word and label vectors are there already."""
        return bool(self.word_vectors.shape[1])

    @property
    def known_labels(self) -> int:
        """How many labels can be proposed at all: those of train, and those that only the corpus's labels.tsv names.

        A label of which nothing is known but that a validation or test document has it stays unknown.
        """
        described = [bool(label.identifier or label.other_names) for label in self.labels[self.train_labels :]]
        return self.train_labels + (described.index(False) if False in described else len(described))

    def part(self, name: str) -> PreparedPart:
        """Return a part, or say which there are."""
        if name not in self.parts:
            raise CorpusError(f"{self.name} was prepared without a {name} part; it has: {', '.join(self.parts)}")
        return self.parts[name]

    def save(self, folder: Path) -> None:
        """Write the folder, atomically."""
        with atomic_folder(folder) as place:
            write_lines(place / "vocabulary.txt", self.vocabulary.words)
            write_labels(place / "labels.jsonl", self.labels)
            # Half precision: vectors are a starting point, and twice the words fit a disk or a transfer.
            np.save(place / "word_vectors.npy", self.word_vectors.astype(np.float16))
            np.save(place / "label_vectors.npy", self.label_vectors.astype(np.float16))
            small = np.uint16 if len(self.vocabulary) <= 2**16 else np.int32
            for name, part in self.parts.items():
                np.save(place / f"{name}.words.npy", part.words.ids.astype(small))
                np.save(place / f"{name}.offsets.npy", part.words.offsets)
                np.save(place / f"{name}.labels.npy", part.labels.indices.astype(np.int32))
                np.save(place / f"{name}.label_offsets.npy", part.labels.indptr.astype(np.int64))
            fields = {
                "name": self.name,
                "seed": self.seed,
                "configuration": asdict(self.configuration),
                "words": len(self.vocabulary.words),
                "labels": self.train_labels,
                "parts": {name: {"documents": len(part), "sha256": part.sha256} for name, part in self.parts.items()},
            }
            write_manifest(place, KIND, fields)

    @classmethod
    def load(cls, folder: Path, check: bool = True) -> Prepared:
        """Open a prepared folder; the word ids stay on disk until read."""
        manifest = read_manifest(folder, KIND, check)
        labels = read_labels(folder / "labels.jsonl")
        parts = {}
        try:
            for name, entry in manifest["parts"].items():
                indices, indptr = _array(folder / f"{name}.labels.npy"), _array(folder / f"{name}.label_offsets.npy")
                ones = np.ones(len(indices), np.float32)
                matrix = csr_matrix((ones, indices, indptr), shape=(int(entry["documents"]), len(labels)))
                words = WordIds(_array(folder / f"{name}.words.npy"), _array(folder / f"{name}.offsets.npy"))
                parts[name] = PreparedPart(words, matrix, entry["sha256"])
            return cls(
                name=manifest["name"],
                configuration=PreparationConfiguration(**manifest["configuration"]),
                seed=manifest["seed"],
                vocabulary=Vocabulary(read_lines(folder / "vocabulary.txt")),
                labels=labels,
                word_vectors=_array(folder / "word_vectors.npy").astype(np.float32),
                label_vectors=_array(folder / "label_vectors.npy").astype(np.float32),
                parts=parts,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder} is damaged ({error!r}): make it anew with 'laha prepare'") from error


def open_prepared(corpus: str, data: Path | None = None) -> Prepared | None:
    """Open a corpus that is a prepared folder; return None where it is something else."""
    if corpus.startswith(SCHEME):
        return None
    path = find_corpus(corpus, data)
    return Prepared.load(path) if is_folder_of(path, KIND) else None


def _array(path: Path) -> NDArray[Any]:
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def write_labels(path: Path, labels: list[Label]) -> None:
    """Write labels.jsonl: a label a line, in the order of their ids."""
    rows: list[dict[str, Any]] = []
    for label in labels:
        row: dict[str, Any] = {"label": label.name, "frequency": label.frequency}
        if label.identifier is not None:
            row["identifier"] = label.identifier
        if label.other_names:
            row["other_names"] = list(label.other_names)
        rows.append(row)
    write_jsonl(path, rows)


def read_labels(path: Path) -> list[Label]:
    """Read labels.jsonl."""
    try:
        return [
            Label(row["label"], row["frequency"], row.get("identifier"), tuple(row.get("other_names", ())))
            for row in read_jsonl(path)
        ]
    except KeyError as error:
        raise ModelError(f"{path} is damaged (no {error}): restore it from a copy") from error


def prepare(
    parts: Parts,
    configuration: PreparationConfiguration,
    seed: int = 0,
    progress: Progress = silent,
) -> Prepared:
    """Tokenise, read or train word vectors, walk the label graph: everything learned from the train part alone."""
    return add_vectors(prepare_words(parts, configuration, seed, progress), progress)


def prepare_words(
    parts: Parts, configuration: PreparationConfiguration, seed: int = 0, progress: Progress = silent
) -> Prepared:
    """Do what takes seconds: words and labels as numbers, no vectors yet."""
    # A model's configuration may be handed over as it is: only the settings of preparation are kept.
    own = {field.name: getattr(configuration, field.name) for field in fields(PreparationConfiguration)}
    configuration = PreparationConfiguration(**own)
    train, valid = parts.train_part(), parts.valid
    if valid is None:
        train, valid = train.split(configuration.valid_fraction, seed)
    corpora = {"train": train, "valid": valid} | ({"test": parts.test} if parts.test is not None else {})
    labels = _labels(corpora)
    names = [label.name for label in labels]
    vocabulary, words = _encode(corpora, configuration, progress)
    if not len(vocabulary.words):
        raise CorpusError(
            f"no word of {parts.name} occurs {configuration.min_count} times: give more documents or set min_count=1"
        )
    matrices = {name: corpus.labels_by(names)[0] for name, corpus in corpora.items()}
    return Prepared(
        name=parts.name,
        configuration=configuration,
        seed=seed,
        vocabulary=vocabulary,
        labels=labels,
        word_vectors=np.zeros((len(vocabulary), 0), np.float32),
        label_vectors=np.zeros((len(train.label_names), 0), np.float32),
        parts={name: PreparedPart(words[name], matrices[name], corpora[name].sha256()) for name in corpora},
    )


def add_vectors(bare: Prepared, progress: Progress = silent, passes: int | None = None) -> Prepared:
    """Return the corpus with word vectors and label vectors, read or trained in at most so many passes."""
    configuration, seed, known, train = bare.configuration, bare.seed, bare.train_labels, bare.part("train")
    if configuration.word_vectors is not None:
        vectors = read_word_vectors(configuration.word_vectors, bare.vocabulary, seed)[0]
        configuration = replace(configuration, word_dimensions=vectors.shape[1])
    else:
        epochs = min(_word_epochs(configuration, len(train.words.ids)), passes or sys.maxsize)
        configuration = replace(configuration, word_epochs=epochs)
        vectors = train_word_vectors(
            train.words,
            bare.vocabulary,
            configuration.word_dimensions,
            epochs=epochs,
            seed=seed,
            workers=configuration.workers,
            progress=progress,
        )
    if configuration.label_vectors is not None:
        names = [label.name for label in bare.labels]
        label_matrix = read_label_vectors(configuration.label_vectors, names[:known], seed)
        configuration = replace(configuration, label_dimensions=label_matrix.shape[1])
    else:
        label_matrix = _walk(train.labels[:, :known], configuration, seed, progress)
    # Through half precision and back, so that a run from memory and one from the folder are the same run.
    return replace(
        bare,
        configuration=configuration,
        word_vectors=vectors.astype(np.float16).astype(np.float32),
        label_vectors=label_matrix.astype(np.float16).astype(np.float32),
    )


def _labels(corpora: Mapping[str, Corpus]) -> list[Label]:
    train = corpora["train"]
    frequency = dict(zip(train.label_names, np.asarray(train.labels.sum(axis=0)).ravel().astype(int), strict=True))
    if not frequency:
        raise CorpusError(f"no training document of {train.name} has a label: give documents with labels")
    details = {name: detail for corpus in corpora.values() for name, detail in corpus.label_details.items()}
    described = {name for name, detail in details.items() if detail.identifier or detail.other_names} - frequency.keys()
    unseen = {name for corpus in corpora.values() for name in corpus.label_names} - frequency.keys() - described
    labels = []
    for name in [*train.label_names, *sorted(described), *sorted(unseen)]:
        detail = details.get(name)
        identifier, others = (detail.identifier, detail.other_names) if detail else (None, ())
        labels.append(Label(name, int(frequency.get(name, 0)), identifier, others))
    return labels


def _encode(
    corpora: Mapping[str, Corpus], configuration: PreparationConfiguration, progress: Progress
) -> tuple[Vocabulary, dict[str, WordIds]]:
    tokenizer, cut = Tokenizer(), configuration.max_words
    documents: dict[str, list[list[str]]] = {}
    for number, (name, corpus) in enumerate(corpora.items()):
        progress("words", number / len(corpora))
        documents[name] = [tokenizer.words(text)[:cut] for text in corpus.texts]
    vocabulary = Vocabulary.build(documents["train"], configuration.min_count, configuration.vocabulary_words)
    encoded = {name: vocabulary.encode(texts) for name, texts in documents.items()}
    progress("words", 1.0)
    return vocabulary, encoded


def _word_epochs(configuration: PreparationConfiguration, words: int) -> int:
    # A small corpus must be read more often for its vectors to settle; a large one need not, and takes long enough.
    return configuration.word_epochs or min(20, max(5, round(50e6 / max(1, words))))


def _walk(
    labels: csr_matrix, configuration: PreparationConfiguration, seed: int, progress: Progress
) -> NDArray[np.float32]:
    graph = co_occurrence(labels, configuration.clique_limit, seed)
    return train_label_vectors(
        graph,
        dimensions=configuration.label_dimensions,
        walks_per_label=configuration.walks_per_label,
        length=configuration.walk_length,
        p=configuration.p,
        q=configuration.q,
        seed=seed,
        workers=configuration.workers,
        progress=lambda stage, done: progress(f"label vectors: {stage}", done),
    )
