"""The service: a model, loaded beside the requests, and all that they ask of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from laha.corpus import Corpus
from laha.errors import LahaError
from laha.estimator import KIND, Estimator
from laha.feedback import FeedbackStore, text_sha256
from laha.results import model_bytes
from laha.serve.batching import Batcher, Pairs
from laha.serve.configuration import ServeConfiguration
from laha.serve.label_details import LabelDetails, group_of
from laha.serve.monitoring import Monitoring
from laha.serve.problems import RequestProblem
from laha.statistics import histogram
from laha.storage import read_manifest

log = logging.getLogger("laha.serve")
LIMITS = ("max_body", "max_text", "max_texts", "max_top", "max_decisions", "explained")


class Service:
    """What the routes call. `load` makes it ready; until then every question of the model is a 503."""

    def __init__(
        self,
        folder: Path,
        load: Callable[[], Estimator],
        configuration: ServeConfiguration,
        feedback: FeedbackStore | None = None,
        examples: Callable[[], Corpus] | None = None,
    ):
        self.name = folder.resolve().name
        self.configuration = configuration
        self.monitoring = Monitoring()
        self.in_work = 0  # requests
        self.failure: Exception | None = None
        self._folder, self._load, self._feedback, self._load_examples = folder, load, feedback, examples
        self._model: Estimator | None = None
        self._details: LabelDetails | None = None
        self._batcher: Batcher | None = None
        self._card: dict[str, Any] | None = None
        self.monitoring.watch(
            lambda: float(self.ready), lambda: self._batcher.waiting if self._batcher else 0, lambda: self.in_work
        )

    @property
    def ready(self) -> bool:
        """Whether the model can answer: it has, once."""
        return self._batcher is not None

    def load(self) -> None:
        """Load the model, let it answer once, and open."""
        try:
            model = self._load()
            details = LabelDetails(model, self._load_examples() if self._load_examples is not None else None)
            self.manifest = read_manifest(self._folder, KIND, check=False)
            self.modified = datetime.fromtimestamp(self._folder.stat().st_mtime, UTC).isoformat()
            for texts in (1, 8):  # what is computed once, and the threads that many texts share, are made now
                model.predict(["a first text, and what all texts have in common"] * texts, 8)
            self.calibrated = _calibrated(model)
        except Exception as error:
            self.failure = error
            raise
        self._model, self._details = model, details
        bounds = self.configuration
        self._batcher = Batcher(
            self._predict, bounds.batch_texts, bounds.batch_milliseconds, bounds.max_queue, self.monitoring.batch
        )

    def close(self) -> None:
        """Finish what waits for the model, and close the feedback."""
        if self._batcher is not None:
            self._batcher.stop()
        if self._feedback is not None:
            self._feedback.close()

    def _predict(self, texts: Sequence[str], depth: int) -> list[Pairs]:
        best = self.model.predict(texts, depth)
        rows = zip(best.ids.tolist(), best.scores.tolist(), strict=True)
        return [[(label, score) for label, score in zip(*row, strict=True) if label >= 0] for row in rows]

    @property
    def model(self) -> Estimator:
        """The model, or a 503."""
        if self._model is None:
            raise RequestProblem(503, "the model is being loaded: ask /ready when it can answer")
        return self._model

    @property
    def details(self) -> LabelDetails:
        """What is known of the labels, or a 503."""
        _ = self.model
        assert self._details is not None
        return self._details

    @property
    def batcher(self) -> Batcher:
        """The model's queue, or a 503."""
        if self._batcher is None:
            raise RequestProblem(503, "the model is being loaded: ask /ready when it can answer")
        return self._batcher

    @property
    def feedback(self) -> FeedbackStore:
        """The feedback, or a 409 where none is kept."""
        if self._feedback is None:
            raise RequestProblem(409, "this server keeps no feedback: start it with keep_feedback=true")
        return self._feedback

    async def tag(
        self,
        texts: list[str],
        top: int,
        min_score: float = 0.0,
        min_precision: float | None = None,
        exclude: Sequence[str] = (),
    ) -> list[Pairs]:
        """Return the labels of each text, best first, as label ids with scores."""
        self.check_texts(texts)
        self.check_bound("top", top, "max_top")
        self.check_bound("excluded labels", len(exclude), "max_top")
        unwanted = {self.details.find(name) for name in exclude}
        threshold = max(min_score, 0.0 if min_precision is None else self.score_at_precision(min_precision))
        rows = await self.batcher.best(texts, top + len(unwanted))
        return [
            [(label, score) for label, score in row if label not in unwanted and score >= threshold][:top]
            for row in rows
        ]

    def score_at_precision(self, precision: float) -> float:
        """Return the score that holds a precision, or a 422 where the model cannot promise one."""
        try:
            return self.model.score_at_precision(precision)
        except LahaError as error:
            raise RequestProblem(422, str(error)) from error

    async def explain(self, text: str, labels: list[str] | None, top: int | None) -> dict[str, Any]:
        """Return what `laha explain --json` prints."""
        explain = getattr(self.model, "explain", None)
        if explain is None:
            raise RequestProblem(409, f"{self.model.model_name} has no attention to explain")
        self.check_texts([text])
        names = None if labels is None else [self.details.labels[self.known(name)].name for name in labels]
        count = top or min(self.configuration.explained, len(self.details.labels))
        self.check_bound("labels to explain", max(count, len(names or ())), "explained", 2)
        if names == []:
            return {"text": text, "labels": []}
        top = min(count, len(self.details.labels))
        unique = None if names is None else list(dict.fromkeys(names))
        try:
            explained: dict[str, Any] = await self.batcher.call(lambda: _lean(explain(text, unique, top)))
        except LahaError as error:  # such as of a model whose budget held no network
            raise RequestProblem(409, str(error)) from error
        return explained

    def known(self, name: str) -> int:
        """Return a label's id, or a 404."""
        number = self.details.find(name)
        if number is None:
            raise RequestProblem(404, f"the model has no label {name[:100]!r}")
        return number

    def decide(self, text: str, decisions: list[tuple[str, str]], who: str | None) -> tuple[str, dict[str, str]]:
        """Keep decisions on a text; return its hash and what stands on it. Blocks until they are on disk."""
        self.check_texts([text])
        self.check_bound("decisions", len(decisions), "max_decisions")
        if who is not None and len(who) > 200:
            raise RequestProblem(422, "the name of who decided is longer than 200 characters")
        named = [(self._decided_label(label), decision) for label, decision in decisions]
        sha256 = self.feedback.add(text, named, who)
        for _, decision in named:
            self.monitoring.decision(decision)
        return sha256, self.feedback.standing(sha256)

    def _decided_label(self, given: str) -> str:
        number = self.details.find(given)
        if number is not None:
            return self.details.labels[number].name
        if not self.configuration.new_labels:
            raise RequestProblem(404, f"the model has no label {given[:100]!r}: none of the decisions was kept")
        if not given.strip() or len(given) > 1_000:
            raise RequestProblem(422, "a new label needs a name of 1 to 1,000 characters")
        return given.strip()

    def check_texts(self, texts: Sequence[str]) -> None:
        """Refuse too many texts, and too long ones."""
        self.check_bound("texts", len(texts), "max_texts")
        for text in texts:
            if len(text) > self.configuration.max_text:
                most = f"{self.configuration.max_text:,}"
                raise RequestProblem(422, f"a text of {len(text):,} characters, where {most} are the most: cut it")

    def check_bound(self, what: str, count: int, bound: str, times: int = 1) -> None:
        """Refuse what is over a bound."""
        most = times * int(getattr(self.configuration, bound))
        if count > most:
            raise RequestProblem(422, f"{count:,} {what}, where {most:,} are the most ({bound}): ask for fewer at once")

    def card(self) -> dict[str, Any]:
        """Return the model card."""
        if self._card is None:
            self._card = self._describe()
        return self._card

    def _describe(self) -> dict[str, Any]:
        model, training = self.model, self.manifest["training"]
        frequency = np.array([label.frequency for label in model.labels_], dtype=np.int64)
        groups = Counter(group_of(int(count)) for count in frequency)
        validation = training.get("validation") or {}
        return {
            "name": self.name,
            "model": self.manifest["model"],
            "corpus": training.get("corpus"),
            "labels": len(model.labels_),
            "words": self.manifest["words"],
            "train_documents": model.train_documents_,
            "bytes": model_bytes(self.manifest),
            "device": str(getattr(getattr(model, "scorer_", None), "device", "cpu")),
            "calibrated": self.calibrated,
            "explains": hasattr(model, "explain"),
            "feedback": self._feedback is not None,
            "keeps_texts": self._feedback is not None and self.configuration.keep_texts,
            "new_labels": self.configuration.new_labels,
            "configuration": self.manifest["configuration"],
            "validation": {name: value for name, value in validation.items() if type(value) in (int, float)},
            "training": {key: training.get(key) for key in ("seconds", "device", "best_epoch", "corpus_sha256")},
            "label_frequencies": histogram(frequency[frequency > 0]),
            "groups": {name: groups.get(name, 0) for name in ("head", "torso", "tail", "unseen")},
            "limits": {name: getattr(self.configuration, name) for name in LIMITS},
        }

    def document(self, text: str, pairs: Pairs) -> dict[str, Any]:
        """Describe a tagged text."""
        labels = [self.details.entry(label) | {"score": round(score, 6)} for label, score in pairs]
        return {"sha256": text_sha256(text), "labels": labels}


def _calibrated(model: Estimator) -> bool:
    try:
        model.score_at_precision(0.5)
    except LahaError:
        return False
    return True


def _lean(explanation: Any) -> dict[str, Any]:
    """Write an explanation as JSON has it, with as many digits as a person can use."""
    return {
        "text": explanation.text,
        "labels": [
            {
                "label": label.label,
                "score": round(label.score, 6),
                "alpha": round(label.alpha, 4),
                "beta": round(label.beta, 4),
                "words": [
                    {
                        "word": word.word,
                        "start": word.start,
                        "end": word.end,
                        "self": round(word.self, 6),
                        "interaction": round(word.interaction, 6),
                        "fused": round(word.fused, 6),
                    }
                    for word in label.words
                ],
                "experts": {name: round(share, 4) for name, share in label.experts.items()},
            }
            for label in explanation.labels
        ],
    }
