"""What the shortlist and half precision cost in quality: a trained model's metrics on a test part, way by way.

    python benchmarks/shortlist_quality.py MODEL CORPUS

The committed figures are of a small LAHA on tibkat-en (22,625 labels) that two CPU cores can train:

    laha prepare tibkat-en --data DATA --out prepared/tibkat-small --set max_words=120 --set min_count=4 \\
        --set word_dimensions=128 --set word_epochs=4 --set label_dimensions=128
    laha train prepared/tibkat-small --out runs/tibkat-small --model laha-paper --set units=128 \\
        --set attention_units=128 --set negatives=1000 --set epochs=5 --set patience=5 --set schedule=one-cycle \\
        --set learning_rate=0.003 --set valid_documents=500
    python benchmarks/shortlist_quality.py runs/tibkat-small prepared/tibkat-small
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import laha
from laha.prepared import open_prepared
from record import record, row

BAR = 0.2  # points that a shortlist may cost; it may also gain, where the head knows better than attention
WAYS = {
    "exact": (True, "float32"),
    "shortlist": (False, "float32"),
    "shortlist, bfloat16": (False, "bfloat16"),
}


def main() -> None:
    path, corpus = sys.argv[1:3]
    model: Any = laha.load(Path(path), device="cpu")
    prepared = open_prepared(corpus)
    source = laha.open_corpus(corpus, "test") if prepared is None else prepared
    metrics = {}
    for name, (model.exact, model.scoring_precision) in WAYS.items():
        metrics[name] = laha.evaluate(model, source).metrics
        print(name, {key: round(value, 2) for key, value in metrics[name].items()}, flush=True)
    facts = model.trained_["shortlist"]
    of = f"{model.trained_['corpus']}, test, {len(model.labels_):,} labels, a shortlist of {facts['labels']}"
    rows = [
        row(
            "cpu-shortlist-recall",
            f"share of the exact five best on the shortlist, {facts['documents']} validation documents: {of}",
            100 * facts["recall@5"],
            "%",
            None,
            None,
            None,
            "higher",
        )
    ]
    for way in list(WAYS)[1:]:
        for metric in ("P@1", "P@5", "nDCG@5", "PSP@5"):
            value, exact = metrics[way][metric], metrics["exact"][metric]
            claim = f"{metric} by {way}, at most {BAR} points below exact: {of}"
            id = f"cpu-{way.replace(', ', '-')}-{metric}"
            rows.append(row(id, claim, value, "%", exact - BAR, value >= exact - BAR, exact, "higher"))
    record("shortlist_quality", rows)


if __name__ == "__main__":
    main()
