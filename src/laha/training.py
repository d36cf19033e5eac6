"""The one training loop of every deep model: optimise, validate, stop early, checkpoint, resume."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from laha.batches import pad, shuffled_batches, sorted_batches
from laha.candidates import Candidates
from laha.checkpoint import Checkpoint, TrainingState
from laha.configuration import check_choice, check_range
from laha.errors import Interrupted, LahaError
from laha.metrics import RankingMetrics
from laha.pace import Pace
from laha.progress import Progress, silent
from laha.scoring.paths import choose_scoring
from laha.scoring.streaming import Accompanied, Scoring, fill_top, score_some, score_top, score_top_each, words_at_once
from laha.training_log import TrainingLog
from laha.vocabulary import WordIds

ALL_LABELS_UP_TO = 5_000
SAMPLED_NEGATIVES = 2_000
CRITERION = "nDCG@5"
SCHEDULES = ("constant", "linear", "one-cycle")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class TrainingConfiguration:
    """How a deep model is trained; each default with its reason."""

    batch: int = 64  # documents a step; the paper
    epochs: int = 15  # at most: early stopping ends it
    patience: int = 3  # epochs without a better validation nDCG@5 before training stops
    learning_rate: float = 0.001  # Adam; the paper
    schedule: str = "constant"  # the paper; "linear" falls to 0, "one-cycle" rises for a tenth, then falls
    negatives: int | None = None  # random labels beside a batch's positives; 0: all; None: all up to 5,000, else 2,000
    weight_decay: float = 0.0  # AdamW's, of all weights; 0: Adam, the paper
    limit_seconds: float = 0.0  # training ends by then, the schedule laid over the steps that fit; 0: no limit
    hard_negatives: int = 0  # beside them a document's best labels by its document head, where that learns beside
    clip: float = 5.0  # largest norm of the gradient: one odd batch must not throw the LSTM off
    average_from: int = 0  # stochastic weight averaging from this epoch on; 0: never, as the paper
    precision: str = "auto"  # bfloat16 where a GPU has it (parameters stay float32), else float32
    valid_documents: int = 5_000  # validation reads at most so many: it runs every epoch
    checkpoint_seconds: float = 60.0  # a crash loses at most so much work

    def __post_init__(self) -> None:
        check_range(self, ("batch", "epochs", "patience", "valid_documents"), 1)
        check_range(
            self,
            ("negatives", "hard_negatives", "average_from", "checkpoint_seconds", "weight_decay", "limit_seconds"),
            0,
        )
        check_range(self, ("learning_rate", "clip"), 1e-12)
        check_choice(self, "schedule", SCHEDULES)
        check_choice(self, "precision", PRECISIONS)


@dataclass(frozen=True)
class Examples:
    """Documents as word ids with their labels as a sparse matrix."""

    words: WordIds
    labels: csr_matrix  # (documents, labels); of validation, columns beyond the network's are unseen labels
    candidates: Candidates | None = None  # the only labels scored of each document, on a level of a label tree

    def __len__(self) -> int:
        return len(self.words)

    def take(self, limit: int, seed: int) -> Examples:
        """Return at most `limit` documents, drawn by a seed."""
        if len(self) <= limit:
            return self
        chosen = np.sort(np.random.default_rng([seed, 77]).choice(len(self), limit, replace=False))
        pieces = [self.words[int(document)] for document in chosen]
        offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
        candidates = None if self.candidates is None else self.candidates.take(chosen)
        return Examples(WordIds(np.concatenate(pieces), offsets), self.labels[chosen], candidates)


@dataclass(frozen=True)
class Trained:
    """What training reports: the epoch whose weights the network holds now, and how it got there."""

    best_epoch: int
    best_score: float
    history: list[dict[str, float]]
    seconds: float


class Trainer:
    """Trains one network; `run` returns when it stops early, is done, or raises Interrupted after a checkpoint."""

    def __init__(
        self,
        network: nn.Module,
        train: Examples,
        valid: Examples,
        configuration: TrainingConfiguration,
        max_words: int,
        seed: int,
        device: torch.device,
        folder: Path | None = None,
        progress: Progress = silent,
        track: Path | None = None,
        companion: float = 0.0,
    ):
        """Take what to train; `companion` is the weight of the document head's own loss, 0 without such a head."""
        if len(train) == 0 or len(valid) == 0:
            raise LahaError("training needs at least one document to learn from and one to validate on: add documents")
        self.network = network.to(device)
        self.train, self.valid = train, valid.take(configuration.valid_documents, seed)
        self.configuration, self.max_words, self.seed, self.device = configuration, max_words, seed, device
        self.progress = progress
        self.scoring, self.companion = choose_scoring(network), companion
        self.parameters = {name: p for name, p in network.named_parameters() if p.requires_grad}
        fused = device.type == "cuda"
        rate, decay = configuration.learning_rate, configuration.weight_decay
        self.optimizer = (
            torch.optim.AdamW(self.parameters.values(), lr=rate, weight_decay=decay, fused=fused)
            if decay
            else torch.optim.Adam(self.parameters.values(), lr=rate, fused=fused)
        )
        self.steps = math.ceil(len(train) / configuration.batch)  # an epoch
        limit = configuration.limit_seconds
        self.pace = Pace(limit, configuration.epochs * self.steps) if limit else None
        self.state = TrainingState()
        self.checkpoint = None if folder is None else Checkpoint(folder / "checkpoint.safetensors")
        self.improved: Callable[[], None] | None = None  # told that a validation was better
        self.log = TrainingLog(None if folder is None else folder / "log.jsonl", track)

    def run(self, resume: bool = False) -> Trained:
        """Train from the start, or from the checkpoint where there is one and `resume` is asked for."""
        # Dropout's stream starts at the seed whatever ran before; a checkpoint then puts it where it was.
        torch.manual_seed(self.seed)
        if resume and self.checkpoint is not None and self.checkpoint.exists():
            self.state = self.checkpoint.load(self.network, self.parameters, self.optimizer)
            self.log.truncate(self.state.log_bytes)
        started = time.perf_counter() - self.state.seconds
        with interruptible() as interrupted, self.log:
            while not self._finished():
                self._epoch(started, interrupted)
        self._load(self.state.best)
        self.progress("training", 1.0)
        return Trained(self.state.best_epoch, self.state.best_score, self.state.history, self.state.seconds)

    def _finished(self) -> bool:
        waited = self.state.epoch - self.state.best_epoch
        return self.state.epoch >= self.configuration.epochs or (
            self.state.epoch > 0 and (waited >= self.configuration.patience or self._over())
        )

    def _over(self) -> bool:
        return self.pace is not None and self.pace.over(self.state.seconds)

    def _epoch(self, started: float, interrupted: Callable[[], bool]) -> None:
        state = self.state
        rng = np.random.default_rng([self.seed, state.epoch])
        batches = shuffled_batches(self.train.words.lengths, self.configuration.batch, rng)
        saved = time.perf_counter()
        self.network.train()
        while state.step < len(batches) and not (state.step and self._over()):
            figures = self._step(batches[state.step])
            state.step += 1
            state.seconds = time.perf_counter() - started
            if self.pace is not None:
                state.done = self.pace.advance(state.done, state.epoch * self.steps + state.step, state.seconds)
            self.log.step(state.epoch + 1, state.step, state.seconds, figures)
            self._show()
            if interrupted():
                self._save()
                raise Interrupted(f"interrupted in epoch {state.epoch + 1}, step {state.step}")
            if time.perf_counter() - saved >= self.configuration.checkpoint_seconds:
                self._save()
                saved = time.perf_counter()
        better = self._validate()
        state.seconds = time.perf_counter() - started
        self._save()
        if better and self.improved is not None:
            current = self._weights()
            self._load(state.best)
            self.improved()
            self._load(current)

    def _step(self, documents: NDArray[np.int64]) -> dict[str, Tensor | float]:
        words, lengths = self._tensors(self.train.words, documents)
        weights = None
        with self._autocast():
            encoded = self.scoring.encode(words, lengths)
        if self.train.candidates is None:
            labels, targets = self._targets(documents, encoded)
        else:
            parts = self.train.candidates.targets(documents, self.train.labels[documents])
            labels, targets, weights = (part.to(self.device) for part in parts)
        rate = self._learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with self._autocast():
            logits = self.scoring.score(encoded, labels)  # (batch, sampled labels)
        entropy = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets, weights, reduction="sum")
        loss = entropy / len(words)
        figures: dict[str, Tensor | float] = {}
        if self.companion:  # a loss of its own: a sum of logits would let one learn what the other then need not
            with self._autocast():
                logits = cast(Accompanied, self.scoring).companion(encoded, labels)
            entropy = nn.functional.binary_cross_entropy_with_logits(logits.float(), targets, reduction="sum")
            figures = {"document_loss": entropy.detach() / len(words)}
            loss = loss + self.companion * entropy / len(words)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), self.configuration.clip)
        self.optimizer.step()
        return {
            "loss": loss.detach(),
            "gradient_norm": norm.detach(),
            "learning_rate": rate,
            "words": float(lengths.sum()) if self.device.type == "cpu" else float(words.numel()),
            "labels": float(logits.shape[1]),
            **figures,
        }

    def _targets(self, documents: NDArray[np.int64], encoded: Any) -> tuple[Tensor | None, Tensor]:
        truth = self.train.labels[documents]
        total = truth.shape[1]
        negatives = self.configuration.negatives
        if negatives is None:
            negatives = 0 if total <= ALL_LABELS_UP_TO else SAMPLED_NEGATIVES
        columns, labels = truth.indices.astype(np.int64), None
        if negatives:
            rng = np.random.default_rng([self.seed, self.state.epoch, self.state.step])
            sample = np.union1d(sample_labels(columns, total, negatives, rng), self._hard_labels(encoded))
            columns, total = np.searchsorted(sample, columns), len(sample)
            labels = torch.from_numpy(sample).to(self.device)
        rows = np.repeat(np.arange(len(documents)), np.diff(truth.indptr))
        # Made where it is used: of very many labels, the copy would take longer than the step.
        targets = torch.zeros(len(documents) * total, device=self.device)
        targets[torch.from_numpy(rows * total + columns).to(self.device)] = 1.0
        return labels, targets.view(len(documents), total)

    @torch.no_grad()
    def _hard_labels(self, encoded: Any) -> NDArray[np.int64]:
        """Return the labels that the document head finds best for the batch's documents: right, or hard to tell."""
        count = self.configuration.hard_negatives if self.companion else 0
        if not count:
            return np.zeros(0, np.int64)
        logits = cast(Accompanied, self.scoring).companion(encoded)  # (batch, k)
        return np.unique(logits.topk(min(count, logits.shape[1]), dim=1).indices.cpu().numpy())

    def _tensors(self, words: WordIds, documents: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        padded, lengths = pad(words, documents, self.max_words)
        return torch.from_numpy(padded).to(self.device), torch.from_numpy(lengths).to(self.device)

    def _learning_rate(self) -> float:
        done = (self.state.epoch * self.steps + self.state.step) / (self.configuration.epochs * self.steps)
        done = done if self.pace is None else self.state.done
        return self.configuration.learning_rate * schedule_factor(self.configuration.schedule, done)

    def _autocast(self) -> torch.autocast:
        precision = self.configuration.precision
        wanted = precision == "bfloat16" or (precision == "auto" and self.device.type == "cuda")
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=wanted)

    def _validate(self) -> bool:
        """Measure the network on the validation part; say whether it is better than ever."""
        state = self.state
        state.epoch, state.step = state.epoch + 1, 0
        current = self._weights()
        if self.configuration.average_from and state.epoch >= self.configuration.average_from:
            state.averaged += 1
            for name, weight in current.items():
                mean = state.average.setdefault(name, torch.zeros_like(weight))
                mean += (weight - mean) / state.averaged
            self._load(state.average)
        figures = self._valid_metrics()
        score = figures[CRITERION]
        state.history.append({"epoch": state.epoch, "seconds": state.seconds, **figures})
        self.log.validation(state.epoch, state.seconds, figures)
        better = score > state.best_score
        if better:
            state.best_epoch, state.best_score, state.best = state.epoch, score, self._weights()
        if state.average:
            self._load(current)
        return better

    def _valid_metrics(self) -> dict[str, float]:
        self.network.eval()
        frequency = np.asarray(self.train.labels.sum(axis=0)).ravel()
        metrics = RankingMetrics(frequency, len(self.train))
        beside = {name: RankingMetrics(frequency, len(self.train)) for name in ("attention", "document")}
        scoring = choose_scoring(self.network, frozen=True)
        for documents in sorted_batches(self.valid.words.lengths, words_at_once(self.device), self.max_words):
            words, lengths = self._tensors(self.valid.words, documents)
            with self._autocast():
                if self.companion:
                    found = score_top_each(cast(Accompanied, scoring), words, lengths, 5)
                    each = {name: fill_top(*best, 5)[0].cpu().numpy() for name, best in found.items()}
                    for name, own in beside.items():
                        own.add(each[name], self.valid.labels[documents])
                    ids = each["mean"]
                elif self.valid.candidates is None:
                    ids = score_top(scoring, words, lengths, 5)[0].cpu().numpy()
                else:
                    ids = self._best_candidates(scoring, words, lengths, documents)
            metrics.add(ids, self.valid.labels[documents])
        if not metrics.documents:
            raise LahaError("no validation document has a label: give documents with labels to validate on")
        own_figures = {f"{name} {CRITERION}": own.metrics()[CRITERION] for name, own in beside.items() if own.documents}
        return metrics.metrics() | own_figures

    @torch.inference_mode()
    def _best_candidates(
        self, scoring: Scoring, words: Tensor, lengths: Tensor, documents: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        candidates = self.valid.candidates
        assert candidates is not None
        ids = torch.from_numpy(candidates.ids(documents)).clamp_min(0).to(self.device)
        logits = score_some(scoring, scoring.encode(words, lengths), ids, words.shape[1])
        return candidates.best(documents, logits, 5)

    def _weights(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def _load(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])

    def _save(self) -> None:
        if self.checkpoint is not None:
            self.state.log_bytes = self.log.flush()
            self.checkpoint.save(self.state, self.parameters, self.optimizer, self.device)

    def _show(self) -> None:
        state, epochs = self.state, self.configuration.epochs
        loss = self.log.recent_loss()
        note = f"epoch {state.epoch + 1}/{epochs}" + (f", loss {loss:.3f}" if loss is not None else "")
        if state.history:
            note += f", valid nDCG@5 {state.history[-1][CRITERION]:.2f} (best {state.best_score:.2f})"
        self.progress("training", (state.epoch + state.step / self.steps) / epochs, note)


def sample_labels(
    positives: NDArray[np.int64], labels: int, negatives: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the batch's positive labels and `negatives` random others (all of them where there are fewer), sorted.

    >>> sample_labels(np.array([3, 1, 3]), 5, 9, np.random.default_rng(0)).tolist()
    [0, 1, 2, 3, 4]
    """
    positives = np.unique(positives)
    others = labels - len(positives)
    drawn = np.sort(rng.choice(others, min(negatives, others), replace=False, shuffle=False))
    # The i-th label that is not positive lies behind all the positives p with p - (positives before p) <= i.
    drawn += np.searchsorted(positives - np.arange(len(positives)), drawn, side="right")
    return np.sort(np.concatenate([positives, drawn]))


def schedule_factor(schedule: str, done: float) -> float:
    """Return what the learning rate is multiplied by when a fraction of all steps is done.

    >>> schedule_factor("constant", 0.9), schedule_factor("linear", 0.75), schedule_factor("one-cycle", 0.1)
    (1.0, 0.25, 1.0)
    """
    if schedule == "linear":
        return 1.0 - done
    if schedule == "one-cycle":
        return 0.04 + 0.96 * done / 0.1 if done < 0.1 else 0.5 * (1 + math.cos(math.pi * (done - 0.1) / 0.9))
    return 1.0


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Turn Ctrl-C and SIGTERM into a question the loop asks between steps; a second Ctrl-C interrupts at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before: list[tuple[int, Any]] = [(number, signal.signal(number, ask)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
