"""A deep estimator whose network has attention, so that it can show the words behind every label."""

from __future__ import annotations

from collections.abc import Sequence

from laha.deep_estimator import DeepEstimator
from laha.errors import LahaError, nearest
from laha.explain import Explanation, explain_labels
from laha.vocabulary import Tokenizer, WordIds


class AttentionEstimator(DeepEstimator):
    """Adds `explain`; its network has `attend`."""

    def explain(self, text: str, labels: Sequence[str] | None = None, top: int = 5) -> Explanation:
        """Return the words behind the given labels, or behind the `top` best."""
        spans, words = self._read(text)
        return self._attend(text, spans, words, self._chosen(words, labels, top))

    def _read(self, text: str) -> tuple[list[tuple[str, int, int]], WordIds]:
        """Return the words of a text with their places, and as the ids of one document."""
        self.check_fitted()
        if not isinstance(text, str):
            raise LahaError("explain takes one text, a string")
        spans = list(Tokenizer().spans(text))[: self.configuration_.max_words]
        return spans, self.vocabulary_.encode([[word for word, _, _ in spans]])

    def _chosen(self, words: WordIds, labels: Sequence[str] | None, top: int) -> list[tuple[int, str]]:
        """Return the labels to explain, ids and names: the given ones, or the best."""
        names = [label.name for label in self.labels_]
        if labels is None:
            return [(int(number), names[number]) for number in self.predict(words, top).ids[0] if number >= 0]
        index = {name: number for number, name in enumerate(names)}
        for name in labels:
            if name not in index:
                raise LahaError(f"the model has no label '{name}': {_hint(name, names)}")
        return [(index[name], name) for name in labels]

    def _attend(
        self, text: str, spans: list[tuple[str, int, int]], words: WordIds, labels: Sequence[tuple[int, str]]
    ) -> Explanation:
        ((_, padded, lengths),) = self.scorer_.batches(words)
        return explain_labels(self.network_, padded, lengths, text, spans, labels)


def _hint(name: str, names: list[str]) -> str:
    # Listing thousands of labels helps nobody; only a near one is worth naming.
    hint = nearest(name, names)
    return hint if hint.startswith("did you mean") else "its labels are in labels.jsonl of the model folder"
