"""A deep estimator whose network has attention, so that it can show the words behind every label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from laha.deep_estimator import DeepEstimator
from laha.errors import LahaError, nearest
from laha.explain import Explanation, LabelExplanation, explain_labels
from laha.vocabulary import Tokenizer


class AttentionEstimator(DeepEstimator):
    """Adds `explain`; its network has `attend`."""

    def explain(self, text: str, labels: Sequence[str] | None = None, top: int = 5) -> Explanation:
        """Return the words behind the given labels, or behind the `top` best."""
        self.check_fitted()
        if not isinstance(text, str):
            raise LahaError("explain takes one text, a string")
        spans = list(Tokenizer().spans(text))[: self.configuration_.max_words]
        words = self.vocabulary_.encode([[word for word, _, _ in spans]])
        names = [label.name for label in self.labels_]
        if labels is None:
            chosen = [int(number) for number in self.predict(words, top).ids[0] if number >= 0]
        else:
            index = {name: number for number, name in enumerate(names)}
            for name in labels:
                if name not in index:
                    raise LahaError(f"the model has no label '{name}': {_hint(name, names)}")
            chosen = [index[name] for name in labels]
        ((_, padded, lengths),) = self.scorer_.batches(words)
        # A label known by its name alone has no attention: it is explained without words.
        attended = getattr(self.network_, "labels", len(names))
        known = [(number, names[number]) for number in chosen if number < attended]
        explanation = explain_labels(self.network_, padded, lengths, text, spans, known)
        unheard = [LabelExplanation(names[number], 0.0, 0.0, 0.0, []) for number in chosen if number >= attended]
        return replace(explanation, labels=[*explanation.labels, *unheard])


def _hint(name: str, names: list[str]) -> str:
    # Listing thousands of labels helps nobody; only a near one is worth naming.
    hint = nearest(name, names)
    return hint if hint.startswith("did you mean") else "see 'laha info' for the labels it has"
