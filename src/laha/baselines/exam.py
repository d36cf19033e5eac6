"""EXAM: Du, Chen, Feng, Zhu, Gan and Nie 2019, *Explicit Interaction Model towards Text Classification*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from laha.configuration import check_range
from laha.deep_estimator import DeepConfiguration, DeepEstimator
from laha.network.exam import EXAMNetwork
from laha.prepared import Prepared


@dataclass(frozen=True, kw_only=True)
class EXAMConfiguration(DeepConfiguration):
    """The settings of EXAM; `max_words` is also how many word positions its aggregation has weights for.

    The paper's text could not be had to check them: what it is said to name comes from memory.
    """

    units: int = 256  # GRU units a direction; as LAHA's encoder, so that they differ in what follows it
    aggregation_units: int = 60  # of the layer over a label's dot products: twice the paper's 30 words
    word_dropout: float = 0.3  # on word vectors; as LAHA's, to be chosen on validation
    state_dropout: float = 0.4  # on encoder states; likewise

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("units", "aggregation_units"), 1)
        check_range(self, ("word_dropout", "state_dropout"), 0, 0.95)


class EXAM(DeepEstimator):
    """Dot products of all words with all labels; a small network turns a label's row of them into its score."""

    Configuration = EXAMConfiguration

    configuration_: EXAMConfiguration
    network_: EXAMNetwork

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "exam"

    def _begin(self, prepared: Prepared, logit: float) -> EXAMNetwork:
        network = self._network(*prepared.word_vectors.shape)
        with torch.no_grad():
            network.output.bias.fill_(logit)
        return network

    def _shape(self, weights: Mapping[str, Tensor]) -> EXAMNetwork:
        return self._network(*weights["encoder.word_vectors.weight"].shape)

    def _network(self, words: int, word_dimensions: int) -> EXAMNetwork:
        settings = self.configuration_
        return EXAMNetwork(
            words=words,
            word_dimensions=word_dimensions,
            labels=len(self.labels_),
            max_words=settings.max_words,
            units=settings.units,
            aggregation_units=settings.aggregation_units,
            word_dropout=settings.word_dropout,
            state_dropout=settings.state_dropout,
        )
