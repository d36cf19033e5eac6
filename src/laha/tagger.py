"""LAHA: the estimator and its configuration; what other deep models have too is in deep_estimator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor, nn

from laha.attention_estimator import AttentionEstimator
from laha.budget import NETWORK_FROM, ON_CPU, Budget
from laha.configuration import build, check_choice, check_range
from laha.deep_estimator import DeepConfiguration, Work
from laha.errors import ConfigurationError, nearest
from laha.estimator import Documents
from laha.experts.evidence import KINDS, Evidence
from laha.experts.hearing import Hearing
from laha.experts.network import network_shortlisted, network_top
from laha.experts.panel import Panel, Source
from laha.experts.proposals import DEPTH, Proposals, best_of
from laha.explain import Explanation, explain_by_omission
from laha.head_training import train_head
from laha.label_content import with_content
from laha.network.laha import ATTENTIONS, FUSIONS, LAHANetwork
from laha.prepared import Prepared
from laha.progress import Progress, silent
from laha.ranking import TopK
from laha.scoring.folded import FoldedScoring
from laha.scoring.label_index import INDEX_ABOVE, LabelIndex, index_available
from laha.scoring.scorer import Scorer
from laha.scoring.shortlist import Shortlist
from laha.stems import Stems
from laha.storage import read_tensors, write_tensors
from laha.training import ALL_LABELS_UP_TO, CRITERION, Examples, Trained, Trainer
from laha.vocabulary import WordIds

# What each preset changes of LAHAConfiguration's defaults, which are the paper's. What each part of "best" brought, and
# what did not pay, is in experiments/README.md.
PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "best": {
        "experts": "all",
        "own_outputs": True,
        "document_loss": 1.0,
        "hard_negatives": 20,  # where labels are sampled at all
        "schedule": "one-cycle",
        "batch": 128,
        "learning_rate": 0.002,  # as twice the documents a step want
        "epochs": 10,
        "patience": 100,  # a one-cycle ends well only at its end
    },
}
SHORTLIST = 512  # labels of many that attention scores on a CPU, where the head's other proposals count by themselves
EXPERTS = "experts.safetensors"
KEPT_AFTER = ("names", "tree", "lexical")  # experts after which there is a model worth keeping
WORTH_LOOKING = 0.5  # of the joint nDCG@5 that the attention must reach alone for its words to explain a label
KEEP_EVERY = 10  # a model is kept when that takes at most such a part of the time


@dataclass(frozen=True, kw_only=True)
class LAHAConfiguration(DeepConfiguration):
    """The settings of LAHA; the defaults are the paper's where it names a value."""

    preset: str = "best"
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
    document_loss: float = 0.0  # above 0 the head learns beside the attention, by a loss of its own of this weight
    document_dropout: float = 0.0  # on the head's document vectors
    own_outputs: bool = False  # an output row of its own for each label, beside the shared W_o
    label_content: bool = False  # the words of labels' names beside node2vec's vectors in L
    experts: str = "none"  # beside the network: "all", or some of neighbours,names,tree,lexical
    # Seconds that fit may take, from when the corpus has been read. 0: as long as it takes; None: so on a GPU, and on a
    # CPU, where experts are asked for, half an hour: its network is so slow there that nobody would wait for the end.
    budget: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, ("units", "attention_units", "document_units"), 1)
        check_range(self, ("shortlist",), 0)
        check_range(self, ("document_loss", "budget"), 0)
        check_range(self, ("word_dropout", "state_dropout", "document_dropout"), 0, 0.95)
        check_choice(self, "preset", PRESETS)
        check_choice(self, "attention", ATTENTIONS)
        check_choice(self, "fusion", FUSIONS)
        for kind in self.expert_kinds:
            if kind not in KINDS:
                raise ConfigurationError(f"experts={self.experts}: {nearest(kind, ['all', 'none', *KINDS])}")

    @property
    def expert_kinds(self) -> tuple[str, ...]:
        """The experts asked for, the cheapest first."""
        asked = {"all": KINDS, "none": ()}.get(self.experts, tuple(self.experts.split(",")))
        return tuple(sorted(asked, key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS)))


class LAHA(AttentionEstimator):
    """Label-aware document representation by hybrid attention, for label sets too large to read.

    With the preset "best", the default, the network is one expert among several: neighbours, names, label trees and a
    lexical network propose labels too, and a fusion learned on held-out documents weighs them. "paper" is the network
    of the paper alone.

    >>> model = LAHA(units=64, epochs=3)
    >>> model.configuration.preset, model.configuration.units, model.configuration.epochs
    ('best', 64, 3)
    """

    Configuration = LAHAConfiguration

    configuration_: LAHAConfiguration
    network_: Any = None  # a LAHANetwork; none where a budget did not reach so far
    index_: LabelIndex | None = None  # of the document head's label vectors, where labels are very many
    evidence_: Evidence | None = None  # the experts beside the network
    panel_: Panel | None = None  # how they and the network are weighed
    _hearing: Hearing | None = None  # while learning
    _budget = Budget(0)

    @property
    def configuration(self) -> LAHAConfiguration:
        """The settings with the preset's values and every default filled in, checked."""
        given = {name: value for name, value in self.get_params().items() if value is not None}
        preset = given.get("preset", LAHAConfiguration.preset)
        return build(LAHAConfiguration, {**PRESETS.get(preset, {}), **given})

    @property
    def model_name(self) -> str:
        """The name of the paper's variant that the settings make."""
        configuration = self.configuration
        if configuration.preset == "paper" and configuration.attention != "hybrid":
            return f"laha-{configuration.attention}"
        if configuration.preset == "paper" and configuration.fusion == "mean":
            return "laha-mean"
        return f"laha-{configuration.preset}"

    @property
    def repeatable(self) -> bool:
        """Whether the same seed gives the same model: label trees are drawn without one."""
        return "tree" not in self.configuration.expert_kinds

    def _begin(self, prepared: Prepared, logit: float) -> LAHANetwork:
        configuration = self.configuration_
        vectors = with_content(prepared) if configuration.label_content else prepared.label_vectors
        head = configuration.document_loss > 0
        network = _network(configuration, prepared.word_vectors.shape, vectors.shape, head)
        with torch.no_grad():
            network.prediction.W_o.bias.fill_(logit)
            if network.interaction_attention is not None:
                network.interaction_attention.L.weight.copy_(torch.from_numpy(vectors))
            if network.document_head is not None:
                network.document_head.labels.weight.zero_()
                network.document_head.labels.bias.fill_(logit)
        return network

    def _companion(self) -> float:
        return self.configuration_.document_loss

    def _labels_of(self, prepared: Prepared) -> int:
        # By its name a label can be proposed that no training document has.
        return prepared.known_labels if "names" in self.configuration.expert_kinds else prepared.train_labels

    def _learn_first(self, prepared: Prepared, work: Work) -> bool:
        """Learn the experts that need no vectors, keeping the model as it grows; say whether the network pays."""
        configuration = self.configuration_
        self.network_ = self.evidence_ = self.panel_ = self._hearing = None
        kinds = configuration.expert_kinds
        unasked = ON_CPU if kinds and work.device.type == "cpu" else 0.0
        self._budget = Budget(unasked if configuration.budget is None else configuration.budget)
        if not kinds:
            return True
        began, evidence = time.perf_counter(), Evidence(Stems(prepared.vocabulary), self.labels_)
        hearing = Hearing(prepared, len(self.labels_), configuration.seed)
        many = prepared.train_labels > ALL_LABELS_UP_TO
        for kind in kinds:
            quick = self._budget.quick and many
            if not evidence.learn(kind, prepared, work.device, configuration.seed, self._budget, quick, work.progress):
                continue
            self.evidence_, self._hearing = evidence, hearing
            hearing.heard[kind] = evidence.propose_by(kind, hearing.words)
            self.trained_["seconds"] = time.perf_counter() - began
            if work.keep is not None and kind in KEPT_AFTER:
                self._join(few=True, progress=work.progress)
                work.keep()
        return self.evidence_ is None or self._network_pays(prepared, work)

    def _network_pays(self, prepared: Prepared, work: Work) -> bool:
        """Say whether word vectors and network fit into what is left of a budget."""
        words = len(prepared.part("train").words.ids)
        epochs = self._budget.network_epochs(words, work.device.type, prepared.has_vectors)
        if epochs < NETWORK_FROM:
            self.trained_["network"] = f"left out: about {max(0.0, epochs):.1f} epochs of it fit into the budget"
        return epochs >= NETWORK_FROM

    def _word_passes(self, prepared: Prepared) -> int | None:
        return self._budget.word_passes(len(prepared.part("train").words.ids))

    def _train(self, prepared: Prepared, work: Work) -> Trained:
        configuration = self.configuration_
        if self.evidence_ is not None and configuration.negatives is None and work.device.type == "cuda":
            # A GPU scores all labels about as fast as some, and rare ones gain most from being seen in every step.
            self.configuration_ = replace(self.configuration_, negatives=0)
        if self._budget.seconds:
            self.configuration_ = replace(self.configuration_, limit_seconds=max(1.0, self._budget.left))
        return super()._train(prepared, work)

    def _trainer(self, network: nn.Module, train: Examples, valid: Examples, work: Work) -> Trainer:
        trainer = super()._trainer(network, train, valid, work)
        if self.evidence_ is not None and work.keep is not None:
            trainer.improved = self._keep_improved(work.keep)
        return trainer

    def _keep_improved(self, keep: Callable[[], None]) -> Callable[[], None]:
        """Return what joins the network as it is to the experts and keeps that, when it is time again."""
        last, cost = time.perf_counter(), 0.0

        def improved() -> None:
            nonlocal last, cost
            began = time.perf_counter()
            if began - last >= KEEP_EVERY * cost:
                self._join_network()
                self._join(few=True)
                keep()
                last = time.perf_counter()
                cost = last - began

        return improved

    def _complete(self, prepared: Prepared, work: Work) -> None:
        wanted, self.index_ = self.configuration_.shortlist, None
        many = prepared.train_labels > ALL_LABELS_UP_TO
        if self.network_ is not None and (wanted or (wanted is None and many)):
            self.train_shortlist(prepared, work.progress)
        if self._hearing is not None:
            if self.network_ is not None:
                self._join_network()
            self._join(progress=work.progress)
            self._hearing = None

    def _join_network(self) -> None:
        assert self._hearing is not None
        self._scorer = None  # the network has changed
        self._hearing.hear(self._ask_network)

    def _join(self, few: bool = False, progress: Progress = silent) -> None:
        assert self._hearing is not None
        self.panel_, facts = self._hearing.join(few, progress)
        self.trained_ |= {"experts": facts, "validation": facts["together"]}

    def train_shortlist(self, prepared: Prepared, progress: Progress = silent) -> None:
        """Learn which labels to propose, and measure how many of the exact five best are among them."""
        configuration = self.configuration_
        units, max_words, seed = configuration.document_units, configuration.max_words, configuration.seed
        train, held_out = prepared.part("train"), prepared.part("valid")
        examples = Examples(train.words, train.labels[:, : prepared.train_labels])
        if not configuration.document_loss:  # else it has learned already
            train_head(self.network_, examples, units, max_words, seed, progress)
        self.index_, self._scorer = _label_index(self.network_), None
        scorer = Scorer(self.network_, max_words, index=self.index_)
        facts = scorer.measure(held_out.words, held_out.labels, configuration.shortlist, seed, progress)
        self.trained_["shortlist"] = facts

    def vectors_of_labels(self) -> NDArray[np.float32] | None:
        """Return the vectors of the label graph, where interaction attention keeps them; of training's labels alone."""
        attention = None if self.network_ is None else self.network_.interaction_attention
        return None if attention is None else attention.L.weight.detach().float().cpu().numpy()

    def _ask_network(self, words: WordIds) -> dict[str, Proposals]:
        """Return what the attention and, where it learned beside it, the document head propose."""
        scorer, head = self.scorer_, self.network_.document_head
        many = self.network_.labels > ALL_LABELS_UP_TO and scorer.device.type == "cpu"
        if many and head is not None and not self.exact and isinstance(scorer.scoring, FoldedScoring):
            found = network_shortlisted(scorer, Shortlist(scorer.scoring, SHORTLIST), words, DEPTH)
        else:
            found = network_top(scorer, words, DEPTH)
        return {name: Proposals(*best) for name, best in found.items()}

    def _sources(self) -> list[Source]:
        """Return whom to ask: only experts that the panel weighs."""
        assert self.evidence_ is not None
        assert self.panel_ is not None
        evidence, weighed = self.evidence_, self.panel_.names
        heard = [name for name in evidence.experts if name in weighed]
        asks_network = self.network_ is not None and not {"attention", "document"}.isdisjoint(weighed)
        return [lambda words: evidence.propose(words, heard), *([self._ask_network] if asks_network else [])]

    def predict(self, texts: Documents, top: int = 5) -> TopK:
        """Return the `top` best labels of each text with their probabilities."""
        if self.panel_ is None:
            return super().predict(texts, top)
        if top < 1:
            raise ConfigurationError(f"top={top}: ask for at least one label")
        scores = self.predict_scores(texts)
        best = best_of(scores, min(top, len(self.labels_)))
        return TopK(best.ids, best.scores, [label.name for label in self.labels_])

    def predict_scores(self, texts: Documents) -> csr_matrix:
        """Return probabilities (documents, labels): of every label that some expert proposes."""
        if self.panel_ is None:
            return super().predict_scores(texts)
        return self.panel_.scores(self._encode(texts), self._sources())

    def explain(self, text: str, labels: Sequence[str] | None = None, top: int = 5) -> Explanation:
        """Return the words behind the given labels, or behind the `top` best, and every expert's share."""
        if self.panel_ is None:
            return super().explain(text, labels, top)
        spans, words = self._read(text)
        asked = self._chosen(words, labels, top)
        known = self.network_.labels if self._attention_counts() else 0
        attended = [label for label in asked if label[0] < known]
        found = list(self._attend(text, spans, words, attended).labels) if attended else []
        # What no attention knows is explained by what its score loses without a word.
        others = [label for label in asked if label[0] >= known]
        found += explain_by_omission(self.predict_scores, words, spans, others)
        ids = {name: number for number, name in asked}
        shares = self.panel_.shares(words, self._sources(), [ids[entry.label] for entry in found])
        entries = [replace(entry, score=score, experts=own) for entry, (score, own) in zip(found, shares, strict=True)]
        return Explanation(text, sorted(entries, key=lambda entry: -entry.score))

    def _attention_counts(self) -> bool:
        """Say whether the attention is worth looking at: not where it is far behind what all experts reach together."""
        if self.network_ is None or self.panel_ is None or "attention" not in self.panel_.names:
            return False
        facts = self.trained_["experts"]
        return bool(facts["alone"]["attention"][CRITERION] >= WORTH_LOOKING * facts["together"][CRITERION])

    def score_at_precision(self, precision: float) -> float:
        """Return the score from which on labels held that precision (0 to 1) on held-out documents; inf: none did."""
        return (
            super().score_at_precision(precision) if self.panel_ is None else self.panel_.score_at_precision(precision)
        )

    def _make_scorer(self, precision: str) -> Scorer:
        shortlist = self.trained_.get("shortlist", {}).get("labels", 0)
        return Scorer(self.network_, self.configuration_.max_words, shortlist, self.index_, precision)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        network = {} if self.network_ is None else super()._arrays()
        return network | ({} if self.index_ is None else self.index_.arrays())

    def _restore(self, arrays: dict[str, NDArray[Any]], device: torch.device) -> None:
        if not arrays:
            return
        cells = {name: arrays.pop(name) for name in list(arrays) if name.startswith("index.")}
        super()._restore(arrays, device)
        self.index_ = _label_index(self.network_, cells)

    def _write_more(self, folder: Path) -> None:
        if self.panel_ is not None and self.evidence_ is not None:
            own = {f"panel.{name}": array for name, array in self.panel_.tensors().items()}
            names = {"experts": json.dumps([*self.evidence_.experts]), "panel": json.dumps(self.panel_.names)}
            write_tensors(folder / EXPERTS, self.evidence_.tensors() | own, names)

    def _read_more(self, folder: Path, device: torch.device) -> None:
        if not (folder / EXPERTS).is_file():
            return
        tensors, names = read_tensors(folder / EXPERTS)
        own = {name.removeprefix("panel."): array for name, array in tensors.items() if name.startswith("panel.")}
        frequency = np.array([label.frequency for label in self.labels_])
        self.panel_ = Panel.restore(json.loads(names["panel"]), frequency, own)
        experts = json.loads(names["experts"])
        self.evidence_ = Evidence.restore(self.vocabulary_, self.labels_, experts, tensors, device)

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
        own_outputs=configuration.own_outputs,
        document_dropout=configuration.document_dropout,
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
