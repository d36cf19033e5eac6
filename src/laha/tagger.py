"""LAHA: the estimator and its configuration; what other deep models have too is in deep_estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from warnings import warn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laha.attention_estimator import AttentionEstimator
from laha.configuration import build, check_choice, check_range
from laha.deep_estimator import DeepConfiguration
from laha.head_training import train_head
from laha.network.laha import ATTENTIONS, FUSIONS, LAHANetwork
from laha.prepared import Prepared
from laha.progress import Progress, silent
from laha.scoring.label_index import INDEX_ABOVE, LabelIndex, index_available
from laha.scoring.scorer import Scorer
from laha.training import ALL_LABELS_UP_TO, Examples

# What each preset changes of LAHAConfiguration's defaults, which are the paper's.
PRESETS: dict[str, dict[str, Any]] = {"paper": {}}


@dataclass(frozen=True, kw_only=True)
class LAHAConfiguration(DeepConfiguration):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("units", "attention_units", "document_units"), 1)
        check_range(self, ("shortlist",), 0)
        check_range(self, ("word_dropout", "state_dropout"), 0, 0.95)
        check_choice(self, "preset", PRESETS)
        check_choice(self, "attention", ATTENTIONS)
        check_choice(self, "fusion", FUSIONS)


class LAHA(AttentionEstimator):
    """Label-aware document representation by hybrid attention, for label sets too large to read.

    >>> model = LAHA(units=64, epochs=3)
    >>> model.configuration.units, model.configuration.batch
    (64, 64)
    """

    Configuration = LAHAConfiguration

    configuration_: LAHAConfiguration
    network_: LAHANetwork
    index_: LabelIndex | None  # of the document head's label vectors, where labels are very many

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

    def _begin(self, prepared: Prepared, logit: float) -> LAHANetwork:
        network = _network(self.configuration_, prepared.word_vectors.shape, prepared.label_vectors.shape)
        with torch.no_grad():
            network.prediction.W_o.bias.fill_(logit)
            if network.interaction_attention is not None:
                network.interaction_attention.L.weight.copy_(torch.from_numpy(prepared.label_vectors))
        return network

    def _complete(self, prepared: Prepared, progress: Progress) -> None:
        self.index_, wanted = None, self.configuration_.shortlist
        if wanted or (wanted is None and prepared.train_labels > ALL_LABELS_UP_TO):
            self.train_shortlist(prepared, progress)

    def train_shortlist(self, prepared: Prepared, progress: Progress = silent) -> None:
        """Learn which labels to propose, and measure how many of the exact five best are among them."""
        configuration = self.configuration_
        units, max_words, seed = configuration.document_units, configuration.max_words, configuration.seed
        train, held_out = prepared.part("train"), prepared.part("valid")
        examples = Examples(train.words, train.labels[:, : prepared.train_labels])
        train_head(self.network_, examples, units, max_words, seed, progress)
        self.index_, self._scorer = _label_index(self.network_), None
        scorer = Scorer(self.network_, max_words, index=self.index_)
        facts = scorer.measure(held_out.words, held_out.labels, configuration.shortlist, seed, progress)
        self.trained_["shortlist"] = facts

    def vectors_of_labels(self) -> NDArray[np.float32] | None:
        """Return the vectors of the label graph, where interaction attention keeps them."""
        attention = self.network_.interaction_attention
        return None if attention is None else attention.L.weight.detach().float().cpu().numpy()

    def _make_scorer(self, precision: str) -> Scorer:
        shortlist = self.trained_.get("shortlist", {}).get("labels", 0)
        return Scorer(self.network_, self.configuration_.max_words, shortlist, self.index_, precision)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return super()._arrays() | ({} if self.index_ is None else self.index_.arrays())

    def _restore(self, arrays: dict[str, NDArray[Any]], device: torch.device) -> None:
        cells = {name: arrays.pop(name) for name in list(arrays) if name.startswith("index.")}
        super()._restore(arrays, device)
        self.index_ = _label_index(self.network_, cells)

    def _shape(self, weights: Mapping[str, Tensor]) -> LAHANetwork:
        words = weights.get("encoder.word_vectors.weight", torch.zeros(0, 0))
        vectors = weights.get("interaction_attention.L.weight", torch.zeros(len(self.labels_), 1))
        head = "document_head.hidden.weight" in weights
        return _network(self.configuration_, tuple(words.shape), tuple(vectors.shape), head)


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
