"""The network and the lexical expert of laha-best on a prepared corpus: what each proposes of valid and test, in DIR.

    python experiments/best_network.py PREPARED --out DIR [--set key=value …] [--depth 100] [--limit-seconds 330]

Writes DIR/{attention,document,lexical}.npz (ids and logits of `--depth` labels a document) for
experiments/best_panel.py, and DIR/run.json: settings, versions, device, seconds, validation history, metrics.
Several may run side by side on one GPU; within the limit the schedule is laid over the steps that fit.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from laha.configuration import parse_settings
from laha.deep_estimator import choose_device
from laha.experts.lexical import Lexical, LexicalConfiguration
from laha.experts.network import network_top
from laha.experts.proposals import Proposals
from laha.metrics import RankingMetrics, top_labels
from laha.prepared import Prepared
from laha.results import versions
from laha.tagger import LAHA, LAHAConfiguration

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
NETWORK: dict[str, Any] = {  # what --set changes
    "preset": "paper",  # no experts beside the network: they have scripts of their own
    "own_outputs": True,
    "document_loss": 1.0,
    "negatives": 0,
    "schedule": "one-cycle",
    "batch": 128,
    "shortlist": 0,
    "patience": 1000,  # a one-cycle ends well only at its end
}
LEXICAL_SHARE = 0.2  # of the time


class Log:
    """Prints how far a task is every so many seconds: for files and several runs side by side."""

    def __init__(self, name: str, every: float = 15.0):
        self.name, self.every, self.started, self.last = name, every, time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        """How long the run has taken."""
        return time.perf_counter() - self.started

    def __call__(self, task: str, done: float, note: str = "") -> None:
        """Print a task's progress, where it is time to."""
        if self.seconds - self.last >= self.every:
            self.last = self.seconds
            self.say(f"{task} {done:.0%} {note}")

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"[{self.name} {self.seconds:.0f} s] {text}", flush=True)


def measure(prepared: Prepared, ids: np.ndarray, part: str) -> dict[str, float]:
    """Return the metrics of a ranking of a part."""
    train = prepared.part("train")
    metrics = RankingMetrics(np.asarray(train.labels.sum(axis=0)).ravel()[: prepared.train_labels], len(train))
    metrics.add(ids[:, :5], prepared.part(part).labels)
    return metrics.metrics()


def plain_mean(found: dict[str, Proposals], labels: int) -> np.ndarray:
    """Rank by the mean probability, that of a label an expert does not propose being 0."""
    total = csr_matrix((len(next(iter(found.values()))[0]), labels), dtype=np.float32)
    for ids, logits in found.values():
        rows, columns = np.nonzero(ids >= 0)
        scores = 1 / (1 + np.exp(-logits[rows, columns].astype(np.float32)))
        total += csr_matrix((scores, (rows, ids[rows, columns])), shape=total.shape)
    return top_labels(total, 5)


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the network")
    parser.add_argument("--lexical", action="append", default=[], metavar="KEY=VALUE", help="a setting of that expert")
    parser.add_argument("--without-lexical", action="store_true")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--limit-seconds", type=float, default=0.0)
    parser.add_argument("--documents", type=int, help="learn from so many documents: to try the script")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    log = Log(given.out.name)
    settings = NETWORK | parse_settings(LAHAConfiguration, given.set)
    prepared = Prepared.load(given.prepared, check=False)
    if given.documents:
        prepared = first(prepared, given.documents)
    device = choose_device(settings.get("device", "auto"))
    log.say(f"{prepared.name}: {len(prepared.part('train'))} documents, {prepared.train_labels} labels, {device}")
    found: dict[str, dict[str, Proposals]] = {"valid": {}, "test": {}}
    facts: dict[str, Any] = {"corpus": prepared.name, "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}

    if not given.without_lexical:
        chosen = parse_settings(LexicalConfiguration, given.lexical)
        chosen.setdefault("seconds", LEXICAL_SHARE * given.limit_seconds)
        lexical = Lexical(LexicalConfiguration(**chosen)).fit(prepared, device, settings.get("seed", 0), log)
        facts["lexical"] = {"settings": vars(lexical.configuration), "history": lexical.history}
        facts["lexical"]["seconds"] = log.seconds
        log.say("lexical, valid nDCG@5 by epoch: " + curve(lexical.history, "nDCG@5"))
        for part, own in found.items():
            own["lexical"] = lexical.top(prepared.part(part).words, given.depth)
        del lexical

    began = log.seconds
    if given.limit_seconds:
        settings["limit_seconds"] = max(1.0, given.limit_seconds - began)
    model = LAHA(**settings).fit(prepared, progress=log)
    history = model.trained_["history"]
    facts |= {"settings": vars(model.configuration_), "training": model.trained_, "seconds": log.seconds - began}
    planned = model.configuration_.epochs
    steps = f"{len(history)} epochs (the last perhaps in part) of {planned}, kept {model.trained_['best_epoch']}"
    log.say(f"network trained: {steps}, {log.seconds - began:.0f} s, {versions()}")
    for name in ("nDCG@5", "attention nDCG@5", "document nDCG@5"):
        log.say(f"network, valid {name} by epoch: {curve(history, name)}")
    for part, own in found.items():
        for name, top in network_top(model.scorer_, prepared.part(part).words, given.depth).items():
            own[name] = Proposals(*top)
    if device.type == "cuda":
        facts["peak_memory_bytes"] = torch.cuda.max_memory_allocated(device)

    facts["metrics"] = {}
    for part, own in found.items():
        ranked = {name: ids for name, (ids, _) in own.items()} | {"mean": plain_mean(own, prepared.train_labels)}
        facts["metrics"][part] = {name: measure(prepared, ids, part) for name, ids in ranked.items()}
        for name, metrics in facts["metrics"][part].items():
            log.say(f"{part} {name:9} " + "  ".join(f"{key} {metrics[key]:.2f}" for key in SHOWN))
    keep(found, prepared.train_labels, given.out)
    facts["versions"], facts["device"] = versions(), model.trained_["device"]
    (given.out / "run.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    log.say("done")


def curve(history: list[dict[str, float]], name: str) -> str:
    """Write a metric's course over the epochs."""
    return " ".join(f"{row[name]:.2f}" for row in history if name in row)


def keep(found: dict[str, dict[str, Proposals]], labels: int, out: Path) -> None:
    """Write a file an expert, as small as a transfer wants it: 16-bit ids where they fit (65535 is none) and logits."""
    small = np.uint16 if labels < 2**16 - 1 else np.int32
    for name in found["valid"]:
        arrays = {}
        for part, own in found.items():
            ids, logits = own[name]
            arrays[f"{part}_ids"] = ids.astype(small)  # -1 becomes 65535
            arrays[f"{part}_scores"] = np.clip(logits, -60000, 60000).astype(np.float16)
        np.savez_compressed(out / f"{name}.npz", **arrays)


def first(prepared: Prepared, documents: int) -> Prepared:
    """Return the corpus with so many documents in every part."""
    from dataclasses import replace

    from laha.vocabulary import WordIds

    parts = {}
    for name, part in prepared.parts.items():
        offsets = part.words.offsets[: documents + 1]
        words = WordIds(part.words.ids[: offsets[-1]], offsets)
        parts[name] = replace(part, words=words, labels=part.labels[:documents])
    return replace(prepared, parts=parts)


if __name__ == "__main__":
    main()
