"""What every deep estimator shares: fit from any corpus, the one training loop, scoring, and the model folder."""

from __future__ import annotations

import math
import shutil
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from laha.configuration import check_choice, check_range
from laha.errors import ConfigurationError, LahaError, ModelError, nearest
from laha.estimator import KIND, Documents, Estimator, as_parts
from laha.label_neighbours import LabelNeighbours
from laha.prepared import KIND as PREPARED
from laha.prepared import PreparationConfiguration, Prepared, add_vectors, prepare_words, read_labels, write_labels
from laha.progress import Progress, silent
from laha.ranking import TopK
from laha.results import resident_peak, versions
from laha.scoring.scorer import Scorer
from laha.storage import (
    atomic_folder,
    is_folder_of,
    read_lines,
    read_manifest,
    read_tensors,
    write_lines,
    write_manifest,
    write_tensors,
)
from laha.training import PRECISIONS, Examples, Trained, Trainer, TrainingConfiguration
from laha.vocabulary import Tokenizer, Vocabulary, WordIds

DEVICES = ("auto", "cpu", "cuda")
# Settings of preparation that training from a prepared folder may give otherwise: they change no number in it.
NOT_OF_THE_NUMBERS = ("max_words", "valid_fraction", "workers", "word_dimensions", "label_dimensions")


@dataclass(frozen=True, kw_only=True)
class DeepConfiguration(TrainingConfiguration, PreparationConfiguration):
    """The settings that every deep model has."""

    seed: int = 0  # every random draw follows it
    device: str = "auto"  # a GPU where there is one

    def __post_init__(self) -> None:
        TrainingConfiguration.__post_init__(self)
        PreparationConfiguration.__post_init__(self)
        check_range(self, ("seed",), 0, 2**31 - 1)
        check_choice(self, "device", DEVICES)


@dataclass(frozen=True)
class Work:
    """How a fit goes about: where it computes, what it keeps where, and whom it tells."""

    device: torch.device
    folder: Path | None = None
    resume: bool = False
    progress: Progress = silent
    track: Path | None = None
    keep: Callable[[], None] | None = None


class DeepEstimator(Estimator):
    """A model that is a network: a subclass says how its network begins, and how it is shaped for stored weights."""

    resumable = True
    configuration_: Any  # with the settings of preparation as the corpus was prepared
    network_: Any
    vocabulary_: Vocabulary
    _scorer: tuple[str, Scorer] | None = None  # made on first use, with the precision it has

    @abstractmethod
    def _begin(self, prepared: Prepared, logit: float) -> nn.Module:
        """Return the network that training begins with; scores begin at `logit`, the share of labels that are right."""

    @abstractmethod
    def _shape(self, weights: Mapping[str, Tensor]) -> nn.Module:
        """Return a network that the stored weights fit."""

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
        keep: Callable[[], None] | None = None,
    ) -> Self:
        """Learn from texts with labels, a Corpus, its Parts (or what opens them), or a Prepared corpus.

        With `folder`, checkpoints and the log are kept there, and `resume` continues from them. `track` names a
        folder for TensorBoard. `keep` is called whenever the model is better than before and can be saved.
        """
        work = Work(choose_device(self.configuration.device), folder, resume, progress, track, keep)
        if work.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(work.device)
        prepared = self._open(documents, labels, valid, work)
        if self._learn_first(prepared, work):
            if not prepared.has_vectors:
                prepared = add_vectors(prepared, progress, self._word_passes(prepared))
                if folder is not None:
                    prepared.save(folder / "prepared")
            self.configuration_ = self._as_prepared(self.configuration_, prepared.configuration)
            self._build(prepared)
            trained = self._train(prepared, work)
            self.trained_ = {**self.trained_, **_training_facts(trained, prepared, work.device)}
            self._scorer = None
        self._complete(prepared, work)
        return self

    def _open(self, documents: Any, labels: Any, valid: Any, work: Work) -> Prepared:
        """Return the corpus as numbers, perhaps without vectors yet, and take over what the model knows from it."""
        configuration = self.configuration
        if isinstance(documents, Prepared):
            prepared = documents
        elif work.folder is not None and is_folder_of(work.folder / "prepared", PREPARED):
            prepared = Prepared.load(work.folder / "prepared", check=False)
        else:
            parts = as_parts(documents() if callable(documents) else documents, labels, valid)
            prepared = prepare_words(parts, configuration, configuration.seed, work.progress)
        self.configuration_ = self._as_prepared(configuration, prepared.configuration)
        self.vocabulary_ = prepared.vocabulary
        self.labels_ = prepared.labels[: self._labels_of(prepared)]
        self.train_documents_ = len(prepared.part("train"))
        self.trained_ = {
            "corpus": prepared.name,
            "corpus_sha256": prepared.part("train").sha256,
            "prepared_seed": prepared.seed,
            "versions": versions(),
            "device": device_name(work.device),
        }
        counted = prepared.part("train").labels[:, : len(self.labels_)]
        self.neighbours_ = LabelNeighbours.of_documents(counted, prepared.configuration.clique_limit, prepared.seed)
        return prepared

    def _labels_of(self, prepared: Prepared) -> int:
        """Return how many of the corpus's labels the model can propose: those that some training document has."""
        return prepared.train_labels

    def _word_passes(self, prepared: Prepared) -> int | None:
        """Return how often skip-gram may read the corpus at most; None: as often as it likes."""
        return None

    def _learn_first(self, prepared: Prepared, work: Work) -> bool:
        """Do what needs no vectors, and say whether to go on to the network: nothing and yes, for most."""
        return True

    def _as_prepared(self, own: Any, prepared: PreparationConfiguration) -> Any:
        """Take over how the corpus was prepared; a setting that was given and says otherwise is an error."""
        taken = asdict(prepared)
        taken["max_words"] = min(own.max_words, prepared.max_words)
        for name, value in taken.items():
            given = getattr(self, name)
            if given not in (None, value) and name not in NOT_OF_THE_NUMBERS:
                raise ConfigurationError(f"the corpus was prepared with {name}={value}, not {given}: prepare it anew")
        return replace(own, **taken)

    def _build(self, prepared: Prepared) -> None:
        torch.manual_seed(self.configuration_.seed)
        # Few labels are right, so scores begin at that share: from 1/2, all of them must first be unlearned.
        share = prepared.part("train").labels.nnz / max(1, self.train_documents_ * prepared.train_labels)
        share = min(max(share, 1e-6), 0.5)
        self.network_ = self._begin(prepared, math.log(share / (1 - share)))
        with torch.no_grad():
            self.network_.encoder.word_vectors.weight.copy_(torch.from_numpy(prepared.word_vectors))

    def _train(self, prepared: Prepared, work: Work) -> Trained:
        train, valid = prepared.part("train"), prepared.part("valid")
        examples = Examples(train.words, train.labels[:, : prepared.train_labels])
        held_out = Examples(valid.words, valid.labels)
        return self._trainer(self.network_, examples, held_out, work).run(work.resume)

    def _trainer(
        self,
        network: nn.Module,
        train: Examples,
        valid: Examples,
        work: Work,
    ) -> Trainer:
        """Return the one training loop, with the settings of this model."""
        settings, companion = self.configuration_, self._companion()
        place = (work.device, work.folder, work.progress, work.track)
        return Trainer(network, train, valid, settings, settings.max_words, settings.seed, *place, companion)

    def _companion(self) -> float:
        """Return the weight of a loss beside the network's own: none, for most."""
        return 0.0

    def _complete(self, prepared: Prepared, work: Work) -> None:
        """Do what is to be done once the network does not change any more: nothing, for most."""

    @property
    def scorer_(self) -> Scorer:
        """What scores documents, in the precision asked for."""
        check_choice(self, "scoring_precision", PRECISIONS)
        device = next(self.network_.parameters()).device
        precision = self.scoring_precision
        if precision == "auto":
            precision = "bfloat16" if device.type == "cuda" else "float32"
        if self._scorer is None or self._scorer[0] != precision:
            self._scorer = precision, self._make_scorer(precision)
        return self._scorer[1]

    def _make_scorer(self, precision: str) -> Scorer:
        return Scorer(self.network_, self.configuration_.max_words, precision=precision)

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
        with atomic_folder(Path(path)) as folder:
            write_tensors(folder / "weights.safetensors", self._arrays())
            write_labels(folder / "labels.jsonl", self.labels_)
            write_lines(folder / "vocabulary.txt", self.vocabulary_.words)
            if self.neighbours_ is not None:
                self.neighbours_.save(folder)
            if log is not None and log.is_file():
                shutil.copyfile(log, folder / "training.jsonl")
            self._write_more(folder)
            write_manifest(folder, KIND, self.facts(self.configuration_, len(self.vocabulary_.words)))

    def _write_more(self, folder: Path) -> None:
        """Write further files into the model folder: none, for most."""

    def _read_more(self, folder: Path, device: torch.device) -> None:
        """Take over what `_write_more` wrote."""

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return what weights.safetensors holds."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.network_.state_dict().items()}

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> Self:
        """Read a model folder; every file is checked against its sum, and nothing is executed."""
        folder = Path(path)
        manifest = read_manifest(folder, KIND)
        try:
            model = cls(**manifest["configuration"])
            model.configuration_ = model.configuration
            model.labels_ = read_labels(folder / "labels.jsonl")
            model.neighbours_ = LabelNeighbours.load(folder, len(model.labels_))
            model.vocabulary_ = Vocabulary(read_lines(folder / "vocabulary.txt"))
            model.train_documents_ = manifest["train_documents"]
            model.trained_ = manifest["training"]
        except (KeyError, TypeError) as error:
            raise ModelError(f"{folder} is damaged ({error!r}): restore it from a copy") from error
        arrays = read_tensors(folder / "weights.safetensors")[0]
        try:
            model._restore(arrays, choose_device(device))
            model._read_more(folder, choose_device(device))
        except (RuntimeError, KeyError) as error:
            raise ModelError(f"{folder}: the weights do not fit the configuration: restore it from a copy") from error
        return model

    def _restore(self, arrays: dict[str, NDArray[Any]], device: torch.device) -> None:
        """Make the network again from what `_arrays` gave."""
        weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        network = self._shape(weights)
        network.load_state_dict(weights)
        self.network_ = network.to(device)


def choose_device(device: str) -> torch.device:
    """Return the device asked for; "auto" is a GPU where there is one."""
    if device not in DEVICES:
        raise ConfigurationError(f"device={device}: {nearest(device, list(DEVICES))}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("there is no GPU that torch can use here: take --device cpu or auto")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def device_name(device: torch.device) -> str:
    """Return what manifests call a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _training_facts(trained: Trained, prepared: Prepared, device: torch.device) -> dict[str, Any]:
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else resident_peak()
    return {
        "seconds": trained.seconds,
        "peak_memory_bytes": peak,
        "best_epoch": trained.best_epoch,
        "validation": next((row for row in trained.history if row["epoch"] == trained.best_epoch), {}),
        "history": trained.history,
    }
