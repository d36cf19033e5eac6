"""AttentionXML: You, Zhang, Wang, Dai, Mamitsuka and Zhu 2019, *AttentionXML: Label Tree-based Attention-Aware Deep
Model for High-Performance Extreme Multi-Label Text Classification*. Written from the paper alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from laha.attention_estimator import AttentionEstimator
from laha.candidates import Candidates, with_ancestors
from laha.configuration import check_range
from laha.deep_estimator import DeepConfiguration, Work
from laha.label_tree import LabelTree, build_label_tree, label_features
from laha.network.attention_xml import AttentionXMLNetwork
from laha.network.attention_xml_tree import AttentionXMLTree
from laha.prepared import Prepared, PreparedPart
from laha.scoring.beam import Beam
from laha.scoring.scorer import Scorer
from laha.training import Examples, Trained


@dataclass(frozen=True, kw_only=True)
class AttentionXMLConfiguration(DeepConfiguration):
    """The settings of AttentionXML; the defaults are the paper's where it names a value.

    Units, layers, dropout, K and C were checked against what LibMultiLabel publishes for EUR-Lex, AmazonCat-13K and
    Amazon-670K. Its batches hold 40 documents on the first and 200 on the second; here they hold 64 as LAHA's do.
    """

    units: int = 256  # LSTM units a direction; the paper, on EUR-Lex and Wiki10-31K (512 on larger ones)
    hidden_units: int = 256  # of the layers all labels share; the paper, on the same
    hidden_layers: int = 1  # likewise (on larger ones two, of 512 and 256)
    word_dropout: float = 0.2  # on word vectors; the paper
    state_dropout: float = 0.5  # on encoder states; the paper
    negatives: int | None = 0  # all labels, as the paper: where they are too many, the tree takes over
    average_from: int = 4  # the paper averages weights (SWA), from when on is open: LibMultiLabel from the 6th of 10
    tree_above: int = 8_000  # labels; up to so many attention is spent on all of them at once
    splits: int = 3  # halvings from a level to the next: 2**3 children a node, the paper's K = M = 8
    first_level: int = 2_048  # nodes at most: the paper's tree of Amazon-670K begins with so many
    candidates: int = 160  # C, the nodes of a level whose children are scored; the paper, on Amazon-670K

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("units", "hidden_units", "tree_above", "splits", "first_level", "candidates"), 1)
        check_range(self, ("hidden_layers",), 0)
        check_range(self, ("word_dropout", "state_dropout"), 0, 0.95)


class AttentionXML(AttentionEstimator):
    """One attention vector a label over a Bi-LSTM's states; with many labels, a network for each level of a tree."""

    Configuration = AttentionXMLConfiguration

    configuration_: AttentionXMLConfiguration
    network_: AttentionXMLNetwork | AttentionXMLTree
    _tree: LabelTree | None = None

    @property
    def model_name(self) -> str:
        """Its name on the command line."""
        return "attentionxml"

    def _begin(self, prepared: Prepared, logit: float) -> AttentionXMLNetwork | AttentionXMLTree:
        shape, settings, labels = prepared.word_vectors.shape, self.configuration_, prepared.train_labels
        self._tree = None
        if labels <= max(2, settings.tree_above):
            network = self._network(shape, labels)
            set_bias(network, logit)
            return network
        train = prepared.part("train")
        features = label_features(train.words, train.labels[:, :labels], shape[0])
        tree = self._tree = build_label_tree(features, settings.splits, settings.first_level, settings.seed)
        levels = [self._network(shape, nodes) for nodes in tree.nodes]
        set_bias(levels[0], min(0.0, logit + math.log(labels / tree.first)))  # as often right as its labels together
        return AttentionXMLTree(levels, [torch.from_numpy(parents) for parents in tree.parents])

    def _shape(self, weights: Mapping[str, Tensor]) -> AttentionXMLNetwork | AttentionXMLTree:
        count = sum(name.endswith("attention.weight") for name in weights)
        prefixes = [f"levels.{number}." for number in range(count)] if "parents_1" in weights else [""]
        levels = [
            self._network(weights[f"{name}encoder.word_vectors.weight"].shape, len(weights[f"{name}attention.weight"]))
            for name in prefixes
        ]
        if "parents_1" not in weights:
            return levels[0]
        return AttentionXMLTree(levels, [weights[f"parents_{number}"] for number in range(1, count)])

    def _network(self, words: tuple[int, ...], labels: int) -> AttentionXMLNetwork:
        settings = self.configuration_
        return AttentionXMLNetwork(
            words=words[0],
            word_dimensions=words[1],
            labels=labels,
            units=settings.units,
            hidden_units=settings.hidden_units,
            hidden_layers=settings.hidden_layers,
            word_dropout=settings.word_dropout,
            state_dropout=settings.state_dropout,
        )

    def _make_scorer(self, precision: str) -> Scorer:
        tree = isinstance(self.network_, AttentionXMLTree)  # without one there is no beam, and every label is scored
        width = self.configuration_.candidates if tree else 0
        return Scorer(self.network_, self.configuration_.max_words, width, precision=precision)

    def _train(self, prepared: Prepared, work: Work) -> Trained:
        """Train the levels from the root down; a finished one's checkpoint lets a resumed run pass it by."""
        tree, network = self._tree, self.network_
        if tree is None or not isinstance(network, AttentionXMLTree):
            return super()._train(prepared, work)
        network.to(work.device)
        seconds, self._level_scores = 0.0, list[float]()
        for number, level in enumerate(network.networks):
            place = work.folder
            if number:
                begin_from(network.networks[number - 1], level)
                place = level_folder(work.folder, number)
            train, valid = (self._examples(tree, network, prepared, part, number) for part in ("train", "valid"))
            log = work.track / f"level-{number}" if work.track else None
            trained = self._trainer(level, train, valid, replace(work, folder=place, track=log)).run(work.resume)
            seconds += trained.seconds
            self._level_scores.append(trained.best_score)
        return replace(trained, seconds=seconds)

    def _complete(self, prepared: Prepared, work: Work) -> None:
        if self._tree is not None:
            pairs = zip(self._tree.nodes, self._level_scores, strict=True)
            self.trained_["levels"] = [{"nodes": nodes, "validation nDCG@5": score} for nodes, score in pairs]

    def _examples(
        self, tree: LabelTree, network: AttentionXMLTree, prepared: Prepared, name: str, level: int
    ) -> Examples:
        part = prepared.part(name)
        labels = part.labels[:, : prepared.train_labels] if name == "train" else part.labels
        truth = tree.truth(labels, level)
        if level == 0:
            return Examples(part.words, truth)
        ids, shares = self._best_nodes(network, part, level)
        if name == "train":
            ids, shares = with_ancestors(ids, shares, tree.truth(labels, level - 1))
        children = network.below(level).cpu().numpy()
        return Examples(part.words, truth, Candidates(ids.astype(np.int32), shares, children))

    def _best_nodes(
        self, network: AttentionXMLTree, part: PreparedPart, depth: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the best nodes of the level above `depth` for each document, with their log probabilities."""
        scorer = Scorer(network, self.configuration_.max_words)
        beam = Beam(network, self.configuration_.candidates)
        width = min(beam.width, network.networks[depth - 1].labels)
        ids, shares = np.zeros((len(part), width), np.int64), np.zeros((len(part), width), np.float32)
        for documents, words, lengths in scorer.batches(part.words):
            nodes, found = beam.search(words, lengths, depth)
            found, places = found.topk(width, dim=1)
            ids[documents], shares[documents] = nodes.gather(1, places).cpu().numpy(), found.cpu().numpy()
        return ids, shares


def level_folder(folder: Path | None, level: int) -> Path | None:
    """Make the folder for the checkpoints of a level below the first."""
    if folder is None:
        return None
    place = folder / f"level-{level}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def set_bias(network: AttentionXMLNetwork, logit: float) -> None:
    """Let all scores begin at a logit."""
    with torch.no_grad():
        network.output.bias.fill_(logit)


def begin_from(above: AttentionXMLNetwork, level: AttentionXMLNetwork) -> None:
    """Give a level the weights of the one above it, except for its attention, whose nodes are others."""
    weights = {name: weight for name, weight in above.state_dict().items() if name != "attention.weight"}
    level.load_state_dict(weights, strict=False)
