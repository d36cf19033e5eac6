"""XML-CNN: Liu, Chang, Wu and Yang 2017, *Deep Learning for Extreme Multi-label Text Classification*."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from laha.configuration import check_range
from laha.deep_estimator import DeepConfiguration, DeepEstimator
from laha.network.xml_cnn import XMLCNNNetwork
from laha.prepared import Prepared

WIDTHS = (2, 4, 8)  # words a window reads; the paper


@dataclass(frozen=True, kw_only=True)
class XMLCNNConfiguration(DeepConfiguration):
    """The settings of XML-CNN; the defaults are the paper's (section 4.6) where it names a value.

    Maps, widths, bottleneck and dropout are also what LibMultiLabel publishes for EUR-Lex.
    """

    maps: int = 128  # features a width; the paper, up to 12,000 labels (32 above, for its memory)
    chunks: int = 8  # p of dynamic max pooling, over each document's own words; open in the paper, others take 2 to 8
    bottleneck: int = 512  # the paper
    dropout: float = 0.5  # on the bottleneck; the paper
    word_dropout: float = 0.0  # on word vectors; the paper names none (LibMultiLabel has 0.5)
    negatives: int | None = 0  # all labels, as the paper: one product of (documents, 512) with (512, labels)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("maps", "chunks", "bottleneck"), 1)
        check_range(self, ("dropout", "word_dropout"), 0, 0.95)


class XMLCNN(DeepEstimator):
    """Convolutions over word vectors, dynamic max pooling, a bottleneck; one vector a document for all labels."""

    Configuration = XMLCNNConfiguration

    configuration_: XMLCNNConfiguration
    network_: XMLCNNNetwork

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "xml-cnn"

    def _begin(self, prepared: Prepared, logit: float) -> XMLCNNNetwork:
        network = self._network(*prepared.word_vectors.shape)
        with torch.no_grad():
            network.output.bias.fill_(logit)
        return network

    def _shape(self, weights: Mapping[str, Tensor]) -> XMLCNNNetwork:
        return self._network(*weights["encoder.word_vectors.weight"].shape)

    def _network(self, words: int, word_dimensions: int) -> XMLCNNNetwork:
        settings = self.configuration_
        return XMLCNNNetwork(
            words=words,
            word_dimensions=word_dimensions,
            labels=len(self.labels_),
            widths=WIDTHS,
            maps=settings.maps,
            chunks=settings.chunks,
            bottleneck=settings.bottleneck,
            word_dropout=settings.word_dropout,
            dropout=settings.dropout,
        )
