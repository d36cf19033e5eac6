"""The lexical expert: a small network of its own that reads a document as a weighted bag of its words."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional as F

from laha.configuration import check_choice, check_range
from laha.experts.proposals import DEPTH, Proposals
from laha.features import Features
from laha.metrics import RankingMetrics
from laha.pace import Pace
from laha.prepared import Prepared
from laha.progress import Progress, silent
from laha.scoring.streaming import budget
from laha.training import CRITERION, SCHEDULES, schedule_factor
from laha.vocabulary import WordIds

LOSSES = ("softmax", "binary")
START = 0.1  # of words' vectors: at 1, as torch starts them, what is not learned drowns what is


@dataclass(frozen=True, kw_only=True)
class LexicalConfiguration:
    """How the lexical expert is trained; each default with its reason.

    Validation nDCG@5 when it learned for 6 epochs from 6,000 documents of stackexchange-4sites (batch 64): binary 51.4,
    softmax 49.7; softmax at rates 0.001 and 0.01 33.7 and 48.7, and from vectors ten times as large 42.7.
    """

    width: int = 512  # of a document's vector
    dropout: float = 0.2  # on it
    word_dropout: float = 0.0  # on whole words of the bag
    loss: str = "binary"  # a loss a label; "softmax" (labels share one distribution) ranked worse, see below
    batch: int = 128  # documents a step
    epochs: int = 12  # at most: early stopping ends it
    patience: int = 2  # epochs without a better validation nDCG@5 before training stops
    learning_rate: float = 0.004  # the highest of the schedule; likewise
    schedule: str = "one-cycle"
    valid_documents: int = 5_000  # validation reads at most so many
    seconds: float = 0.0  # training ends by then; 0: no limit

    def __post_init__(self) -> None:
        check_range(self, ("width", "batch", "epochs", "patience", "valid_documents"), 1)
        check_range(self, ("dropout", "word_dropout"), 0, 0.95)
        check_range(self, ("learning_rate",), 1e-12)
        check_range(self, ("seconds",), 0)
        check_choice(self, "loss", LOSSES)
        check_choice(self, "schedule", SCHEDULES)


class LexicalNetwork(nn.Module):
    """A bag of words with weights -> logits of all labels."""

    def __init__(self, words: int, width: int, labels: int, dropout: float = 0.0):
        super().__init__()
        # A step touches few words: sparse gradients leave all others alone.
        self.words = nn.EmbeddingBag(words, width, mode="sum", sparse=True)
        nn.init.normal_(self.words.weight, std=START)
        self.bias = nn.Parameter(torch.zeros(width))
        self.dropout = nn.Dropout(dropout)
        self.labels = nn.Linear(width, labels)
        nn.init.zeros_(self.labels.weight)

    def forward(self, ids: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        """Return the logits (documents, labels) of documents whose words begin at `offsets`."""
        bag = self.words(ids, offsets, per_sample_weights=weights)  # (documents, width)
        logits: Tensor = self.labels(self.dropout(torch.tanh(bag + self.bias)))
        return logits


class Lexical:
    """Ranks labels by the words of a document: TF-IDF of length 1 -> 512, tanh -> a vector and a bias a label."""

    network: LexicalNetwork
    features: Features
    history: list[dict[str, float]]

    def __init__(self, configuration: LexicalConfiguration | None = None):
        self.configuration = configuration or LexicalConfiguration()

    def fit(
        self, prepared: Prepared, device: torch.device | str = "cpu", seed: int = 0, progress: Progress = silent
    ) -> Self:
        """Learn from the train part; the epoch that ranks the validation part best is kept."""
        configuration, device = self.configuration, torch.device(device)
        train, valid = prepared.part("train"), prepared.part("valid")
        self.features = Features.fit(train.words, len(prepared.vocabulary.words), "tfidf")
        rows, truth = self.features.rows(train.words), train.labels[:, : prepared.train_labels]
        held_out = np.random.default_rng([seed, 77]).permutation(len(valid))[: configuration.valid_documents]
        valid_rows, valid_truth = self.features.rows(valid.words)[held_out], valid.labels[held_out]
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            self.network = LexicalNetwork(rows.shape[1], configuration.width, truth.shape[1], configuration.dropout)
            self._set_biases(truth)
            self.network.to(device)
            self._learn(rows, truth, valid_rows, valid_truth, seed, progress)
        return self

    @torch.no_grad()
    def _set_biases(self, truth: csr_matrix) -> None:
        share = (np.asarray(truth.sum(axis=0)).ravel() + 0.5) / (truth.shape[0] + 1)
        log_odds = np.log(share / (1 - share))
        self.network.labels.bias.copy_(torch.from_numpy(log_odds))

    def _learn(
        self,
        rows: csr_matrix,
        truth: csr_matrix,
        valid_rows: csr_matrix,
        valid_truth: csr_matrix,
        seed: int,
        progress: Progress,
    ) -> None:
        configuration, network = self.configuration, self.network
        frequency = np.asarray(truth.sum(axis=0)).ravel()
        rate = configuration.learning_rate
        others = [p for name, p in network.named_parameters() if name != "words.weight"]
        optimizers = [torch.optim.SparseAdam([network.words.weight], lr=rate), torch.optim.Adam(others, lr=rate)]
        steps, step, done, started = math.ceil(rows.shape[0] / configuration.batch), 0, 0.0, time.perf_counter()
        limit = configuration.seconds or math.inf
        pace = Pace(limit, configuration.epochs * steps)
        best_score, best_epoch, best = -1.0, 0, {}
        self.history = []
        for epoch in range(1, configuration.epochs + 1):
            order = np.random.default_rng([seed, epoch]).permutation(rows.shape[0])
            network.train()
            for start in range(0, len(order), configuration.batch):
                if step and pace.over(time.perf_counter() - started):
                    break
                documents = order[start : start + configuration.batch]
                loss = self._loss(rows[documents], truth[documents])
                for optimizer in optimizers:
                    optimizer.param_groups[0]["lr"] = rate * schedule_factor(configuration.schedule, done)
                    optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                for optimizer in optimizers:
                    optimizer.step()
                step += 1
                done = pace.advance(done, step, time.perf_counter() - started)
                progress("lexical expert", step / (steps * configuration.epochs), f"epoch {epoch}")
            metrics = RankingMetrics(frequency, rows.shape[0])
            metrics.add(self._top(valid_rows, 5)[0], valid_truth)
            seconds = time.perf_counter() - started
            self.history.append({"epoch": epoch, "seconds": seconds, **metrics.metrics()})
            score = self.history[-1][CRITERION]
            if score > best_score:
                best_score, best_epoch = score, epoch
                best = {name: tensor.clone() for name, tensor in network.state_dict().items()}
            if epoch - best_epoch >= configuration.patience or pace.over(seconds):
                break
        network.load_state_dict(best)
        progress("lexical expert", 1.0, f"valid nDCG@5 {best_score:.2f}")

    def _loss(self, rows: csr_matrix, truth: csr_matrix) -> Tensor:
        device = self.network.bias.device
        ids, offsets, weights = self._bags(rows)
        if self.configuration.word_dropout:
            weights = F.dropout(weights, self.configuration.word_dropout)
        logits = self.network(ids, offsets, weights)
        pairs = truth.tocoo()
        places = torch.from_numpy(pairs.row.astype(np.int64) * truth.shape[1] + pairs.col).to(device)
        targets = torch.zeros(logits.numel(), device=device)
        if self.configuration.loss == "binary":
            targets[places] = 1.0
            entropy = F.binary_cross_entropy_with_logits(logits, targets.view_as(logits), reduction="sum")
            return entropy / len(logits)
        share = 1 / np.maximum(1, np.diff(truth.indptr))[pairs.row]
        targets[places] = torch.from_numpy(share).float().to(device)
        return F.cross_entropy(logits, targets.view_as(logits))

    def _bags(self, rows: csr_matrix) -> tuple[Tensor, Tensor, Tensor]:
        device = self.network.bias.device
        ids, offsets = rows.indices.astype(np.int64), rows.indptr[:-1].astype(np.int64)
        return tuple(torch.from_numpy(part).to(device) for part in (ids, offsets, rows.data))  # type: ignore[return-value]

    def top(self, words: WordIds, depth: int = DEPTH) -> Proposals:
        """Return the best labels of documents with their log-odds."""
        return self._top(self.features.rows(words), depth)

    @torch.inference_mode()
    def _top(self, rows: csr_matrix, depth: int) -> Proposals:
        network = self.network.eval()
        ids = np.full((rows.shape[0], depth), -1, np.int64)
        logits = np.zeros((rows.shape[0], depth), np.float32)
        for some in self._batches(rows.shape[0]):
            scores = network(*self._bags(rows[some]))
            if self.configuration.loss == "softmax":  # as log-odds, like every other expert's
                scores = (scores - scores.logsumexp(dim=1, keepdim=True)).clamp(max=-1e-7)
                scores -= torch.log(-torch.expm1(scores))
            best = scores.topk(min(depth, scores.shape[1]), dim=1)
            width = best.values.shape[1]
            ids[some, :width], logits[some, :width] = best.indices.cpu().numpy(), best.values.cpu().numpy()
        return Proposals(ids, logits)

    def _batches(self, documents: int) -> Iterator[slice]:
        size = max(1, budget(self.network.bias.device) // self.network.labels.out_features)
        yield from (slice(start, start + size) for start in range(0, documents, size))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return all that scoring needs."""
        own = {name: tensor.detach().cpu().numpy() for name, tensor in self.network.state_dict().items()}
        return own | {"rarity": self.features.rarity}

    @classmethod
    def from_tensors(
        cls,
        tensors: dict[str, NDArray[Any]],
        configuration: LexicalConfiguration | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Restore an expert from what `tensors` gave."""
        expert = cls(configuration)
        weights = {name: torch.from_numpy(array) for name, array in tensors.items() if name != "rarity"}
        words, width = weights["words.weight"].shape
        expert.network = LexicalNetwork(words, width, len(weights["labels.bias"]), expert.configuration.dropout)
        expert.network.load_state_dict(weights)
        expert.network.to(device)
        expert.features, expert.history = Features("tfidf", tensors["rarity"]), []
        return expert
