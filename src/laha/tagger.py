"""LAHA: the estimator (fit, predict, explain, save, load) and its configuration."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self
from warnings import warn

import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from laha.configuration import build, check_choice, check_range
from laha.errors import ConfigurationError, LahaError, ModelError, nearest
from laha.estimator import Documents, Estimator, as_parts
from laha.explain import Explanation, explain_labels
from laha.head_training import train_head
from laha.network.laha import ATTENTIONS, FUSIONS, LAHANetwork
from laha.prepared import PreparationConfiguration, Prepared, prepare, read_labels, write_labels
from laha.progress import Progress, silent
from laha.ranking import TopK
from laha.results import resident_peak, versions
from laha.scoring.label_index import INDEX_ABOVE, LabelIndex, index_available
from laha.scoring.scorer import Scorer
from laha.storage import (
    atomic_folder,
    read_lines,
    read_manifest,
    read_tensors,
    write_lines,
    write_manifest,
    write_tensors,
)
from laha.training import ALL_LABELS_UP_TO, PRECISIONS, Examples, Trained, Trainer, TrainingConfiguration
from laha.vocabulary import Tokenizer, Vocabulary, WordIds

KIND = "model"
DEVICES = ("auto", "cpu", "cuda")
# Settings of preparation that training from a prepared folder may give otherwise: they change no number in it.
NOT_OF_THE_NUMBERS = ("max_words", "valid_fraction", "workers", "word_dimensions", "label_dimensions")
# What each preset changes of LAHAConfiguration's defaults, which are the paper's.
PRESETS: dict[str, dict[str, Any]] = {"paper": {}}


@dataclass(frozen=True, kw_only=True)
class LAHAConfiguration(TrainingConfiguration, PreparationConfiguration):
    """The settings of LAHA; the defaults are the paper's where it names a value."""

    preset: str = "paper"
    units: int = 256  # r: LSTM units a direction; the paper
    attention_units: int = 256  # d_a; the paper
    attention: str = "hybrid"  # "self" or "interaction" alone: the paper's ablations
    fusion: str = "adaptive"  # "mean": the paper's ablation
    word_dropout: float = 0.3  # on word vectors; chosen on validation (experiments/README.md)
    state_dropout: float = 0.4  # on encoder states; likewise
    # Labels a document head proposes, on a CPU the only ones scored; 0: none, and no head; None: none up to 5,000
    # labels, above that the fewest that cost at most 0.1 points of P@5 on validation documents. The head learns once
    # the network is trained, and changes nothing in it.
    shortlist: int | None = None
    document_units: int = 256  # width of that head: one product of (documents, 256) with (256, labels)
    seed: int = 0  # every random draw follows it
    device: str = "auto"  # a GPU where there is one

    def __post_init__(self) -> None:
        TrainingConfiguration.__post_init__(self)
        PreparationConfiguration.__post_init__(self)
        check_range(self, ("units", "attention_units", "document_units"), 1)
        check_range(self, ("shortlist",), 0)
        check_range(self, ("word_dropout", "state_dropout"), 0, 0.95)
        check_range(self, ("seed",), 0, 2**31 - 1)
        check_choice(self, "preset", PRESETS)
        check_choice(self, "attention", ATTENTIONS)
        check_choice(self, "fusion", FUSIONS)
        check_choice(self, "device", DEVICES)


class LAHA(Estimator):
    """Label-aware document representation by hybrid attention, for label sets too large to read.

    >>> model = LAHA(units=64, epochs=3)
    >>> model.configuration.units, model.configuration.batch
    (64, 64)
    """

    Configuration = LAHAConfiguration

    resumable = True
    configuration_: LAHAConfiguration  # with the settings of preparation as the corpus was prepared
    network_: LAHANetwork
    vocabulary_: Vocabulary
    index_: LabelIndex | None  # of the document head's label vectors, where labels are very many
    _scorer: tuple[str, Scorer] | None = None  # made on first use, with the precision it has

    @property
    def configuration(self) -> LAHAConfiguration:
        """The settings with the preset's values and every default filled in, checked."""
        given = {name: value for name, value in self.get_params().items() if value is not None}
        preset = given.get("preset", "paper")
        return build(LAHAConfiguration, {**PRESETS.get(preset, {}), **given})

    @property
    def model_name(self) -> str:
        """The name of the paper's variant that the settings make."""
        configuration = self.configuration
        if configuration.attention != "hybrid":
            return f"laha-{configuration.attention}"
        return "laha-mean" if configuration.fusion == "mean" else f"laha-{configuration.preset}"

    def fit(
        self,
        documents: Any,
        labels: Any = None,
        valid: Any = None,
        *,
        folder: Path | None = None,
        resume: bool = False,
        progress: Progress = silent,
        track: Path | None = None,
    ) -> Self:
        """Learn from texts with labels, a Corpus, its Parts, or a Prepared corpus.

        With `folder`, checkpoints and the log are kept there, and `resume` continues from them. `track` names a
        folder for TensorBoard.
        """
        configuration = self.configuration
        device = choose_device(configuration.device)
        if isinstance(documents, Prepared):
            prepared = documents
        else:
            parts = as_parts(documents, labels, valid)
            prepared = prepare(parts, configuration, configuration.seed, progress)
        configuration = self.configuration_ = self._as_prepared(configuration, prepared.configuration)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._build(configuration, prepared)
        train, held_out = prepared.part("train"), prepared.part("valid")
        trainer = Trainer(
            self.network_,
            Examples(train.words, train.labels[:, : prepared.train_labels]),
            Examples(held_out.words, held_out.labels),
            configuration,
            configuration.max_words,
            configuration.seed,
            device,
            folder,
            progress,
            track,
        )
        self.trained_ = _training_facts(trainer.run(resume), prepared, device)
        self.index_ = self._scorer = None
        wanted = configuration.shortlist
        if wanted or (wanted is None and prepared.train_labels > ALL_LABELS_UP_TO):
            self.train_shortlist(prepared, progress)
        return self

    def _as_prepared(self, own: LAHAConfiguration, prepared: PreparationConfiguration) -> LAHAConfiguration:
        """Take over how the corpus was prepared; a setting that was given and says otherwise is an error."""
        taken = asdict(prepared)
        taken["max_words"] = min(own.max_words, prepared.max_words)
        for name, value in taken.items():
            given = getattr(self, name)
            if given not in (None, value) and name not in NOT_OF_THE_NUMBERS:
                raise ConfigurationError(f"the corpus was prepared with {name}={value}, not {given}: prepare it anew")
        return replace(own, **taken)

    def train_shortlist(self, prepared: Prepared, progress: Progress = silent) -> None:
        """Learn which labels to propose, and measure how many of the exact five best are among them."""
        configuration = self.configuration_
        train, held_out = prepared.part("train"), prepared.part("valid")
        examples = Examples(train.words, train.labels[:, : prepared.train_labels])
        train_head(
            self.network_, examples, configuration.document_units, configuration.max_words, configuration.seed, progress
        )
        self.index_, self._scorer = _label_index(self.network_), None
        scorer = Scorer(self.network_, configuration.max_words, index=self.index_)
        facts = scorer.measure(held_out.words, held_out.labels, configuration.shortlist, configuration.seed, progress)
        self.trained_["shortlist"] = facts

    @property
    def scorer_(self) -> Scorer:
        """What scores documents, in the precision asked for."""
        check_choice(self, "scoring_precision", PRECISIONS)
        device = next(self.network_.parameters()).device
        precision = self.scoring_precision
        if precision == "auto":
            precision = "bfloat16" if device.type == "cuda" else "float32"
        if self._scorer is None or self._scorer[0] != precision:
            shortlist = self.trained_.get("shortlist", {}).get("labels", 0)
            max_words = self.configuration_.max_words
            self._scorer = precision, Scorer(self.network_, max_words, shortlist, self.index_, precision)
        return self._scorer[1]

    def _build(self, configuration: LAHAConfiguration, prepared: Prepared) -> None:
        torch.manual_seed(configuration.seed)
        self.vocabulary_ = prepared.vocabulary
        self.labels_ = prepared.labels[: prepared.train_labels]
        self.train_documents_ = len(prepared.part("train"))
        self.network_ = _network(configuration, prepared.word_vectors.shape, prepared.label_vectors.shape)
        # Few labels are right, so scores begin at that share: from 1/2, all of them must first be unlearned.
        density = prepared.part("train").labels.nnz / max(1, self.train_documents_ * len(self.labels_))
        density = min(max(density, 1e-6), 0.5)
        with torch.no_grad():
            self.network_.prediction.W_o.bias.fill_(math.log(density / (1 - density)))
            self.network_.encoder.word_vectors.weight.copy_(torch.from_numpy(prepared.word_vectors))
            if self.network_.interaction_attention is not None:
                self.network_.interaction_attention.L.weight.copy_(torch.from_numpy(prepared.label_vectors))

    def predict(self, texts: Documents, top: int = 5) -> TopK:
        """Return the `top` best labels of each text with their probabilities."""
        if top < 1:
            raise ConfigurationError(f"top={top}: ask for at least one label")
        words = self._encode(texts)
        ids, scores = self.scorer_.top(words, top, self.exact)
        return TopK(ids, scores, [label.name for label in self.labels_])

    def predict_scores(self, texts: Documents) -> csr_matrix:
        """Return probabilities (documents, labels): of every label, or of those on the shortlist where one is used."""
        words = self._encode(texts)
        return self.scorer_.sparse(words, self.exact)

    def explain(self, text: str, labels: Sequence[str] | None = None, top: int = 5) -> Explanation:
        """Return the words behind the given labels, or behind the `top` best."""
        self.check_fitted()
        if not isinstance(text, str):
            raise LahaError("explain takes one text, a string")
        spans = list(Tokenizer().spans(text))[: self.configuration_.max_words]
        words = self.vocabulary_.encode([[word for word, _, _ in spans]])
        names = [label.name for label in self.labels_]
        if labels is None:
            chosen = [int(number) for number in self.predict(words, top).ids[0]]
        else:
            index = {name: number for number, name in enumerate(names)}
            for name in labels:
                if name not in index:
                    raise LahaError(f"the model has no label '{name}': {_hint(name, names)}")
            chosen = [index[name] for name in labels]
        ((_, padded, lengths),) = self.scorer_.batches(words)
        return explain_labels(
            self.network_, padded, lengths, text, spans, [(number, names[number]) for number in chosen]
        )

    def _encode(self, texts: Documents) -> WordIds:
        self.check_fitted()
        if isinstance(texts, WordIds):
            return texts
        if isinstance(texts, str):
            raise LahaError("give a list of texts: one text is [text]")
        tokenizer = Tokenizer()
        return self.vocabulary_.encode((tokenizer.words(text) for text in texts), self.configuration_.max_words)

    def save(self, path: str | Path, log: Path | None = None) -> None:
        """Write the model folder, atomically, with the training log where there is one."""
        self.check_fitted()
        weights = {name: tensor.detach().cpu().numpy() for name, tensor in self.network_.state_dict().items()}
        if self.index_ is not None:
            weights |= self.index_.arrays()
        with atomic_folder(Path(path)) as folder:
            write_tensors(folder / "weights.safetensors", weights)
            write_labels(folder / "labels.jsonl", self.labels_)
            write_lines(folder / "vocabulary.txt", self.vocabulary_.words)
            if log is not None and log.is_file():
                shutil.copyfile(log, folder / "training.jsonl")
            fields = {
                "model": self.model_name,
                "configuration": asdict(self.configuration_),
                "labels": len(self.labels_),
                "words": len(self.vocabulary_.words),
                "train_documents": self.train_documents_,
                "training": self.trained_,
            }
            write_manifest(folder, KIND, fields)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a model folder; every file is checked against its sum, and nothing is executed."""
        folder = Path(path)
        manifest = read_manifest(folder, KIND)
        try:
            model = cls(**manifest["configuration"])
            model.configuration_ = model.configuration
            model.labels_ = read_labels(folder / "labels.jsonl")
            model.vocabulary_ = Vocabulary(read_lines(folder / "vocabulary.txt"))
            model.train_documents_ = manifest["train_documents"]
            model.trained_ = manifest["training"]
        except (KeyError, TypeError) as error:
            raise ModelError(f"{folder} is damaged ({error!r}): restore it from a copy") from error
        arrays = read_tensors(folder / "weights.safetensors")[0]
        cells = {name: arrays.pop(name) for name in list(arrays) if name.startswith("index.")}
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        model.network_ = _restore(model.configuration_, weights, len(model.labels_), folder).to(choose_device(device))
        model.index_ = _label_index(model.network_, cells)
        return model


def _network(
    configuration: LAHAConfiguration, words: tuple[int, ...], labels: tuple[int, ...], head: bool = False
) -> LAHANetwork:
    return LAHANetwork(
        words=words[0],
        word_dimensions=words[1],
        labels=labels[0],
        label_dimensions=labels[1],
        units=configuration.units,
        attention_units=configuration.attention_units,
        attention=configuration.attention,
        fusion=configuration.fusion,
        word_dropout=configuration.word_dropout,
        state_dropout=configuration.state_dropout,
        document_units=configuration.document_units if head else 0,
    )


def _label_index(network: LAHANetwork, arrays: dict[str, NDArray[Any]] | None = None) -> LabelIndex | None:
    """Build or restore the index of a network with very many labels."""
    if network.document_head is None or network.labels <= INDEX_ABOVE or arrays == {}:
        return None
    if not index_available():
        warn(f"for {network.labels} labels a shortlist is faster with an index: 'pip install laha[ann]'", stacklevel=3)
        return None
    if arrays is None:
        return LabelIndex.build(network.document_head)
    return LabelIndex.restore(network.document_head, arrays)


def _restore(configuration: LAHAConfiguration, weights: dict[str, Tensor], labels: int, folder: Path) -> LAHANetwork:
    words = weights.get("encoder.word_vectors.weight", torch.zeros(0, 0))
    vectors = weights.get("interaction_attention.L.weight", torch.zeros(labels, 1))
    head = "document_head.hidden.weight" in weights
    network = _network(configuration, tuple(words.shape), tuple(vectors.shape), head)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ModelError(f"{folder}: the weights do not fit the configuration: restore it from a copy") from error
    return network


def choose_device(device: str) -> torch.device:
    """Return the device asked for; "auto" is a GPU where there is one."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("there is no GPU that torch can use here: take --device cpu or auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def _training_facts(trained: Trained, prepared: Prepared, device: torch.device) -> dict[str, Any]:
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else resident_peak()
    return {
        "corpus": prepared.name,
        "corpus_sha256": prepared.part("train").sha256,
        "prepared_seed": prepared.seed,
        "versions": versions(),
        "seconds": trained.seconds,
        "peak_memory_bytes": peak,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "best_epoch": trained.best_epoch,
        "validation": next((row for row in trained.history if row["epoch"] == trained.best_epoch), {}),
        "history": trained.history,
    }


def _hint(name: str, names: list[str]) -> str:
    # Listing thousands of labels helps nobody; only a near one is worth naming.
    hint = nearest(name, names)
    return hint if hint.startswith("did you mean") else "see 'laha info' for the labels it has"
