"""The demo: train on Python's own documentation and compare with ranking labels by frequency."""

from __future__ import annotations

from pathlib import Path

from laha.baselines.popular import Popular
from laha.datasets import open_parts
from laha.evaluation import Report, evaluate
from laha.progress import Progress, silent
from laha.tagger import LAHA
from laha.training_folder import train_to_folder

CORPUS = "builtin:pydocs"
# A network small enough for two cores in a few minutes; everything else is the default's.
SETTINGS = {
    "units": 96,
    "attention_units": 96,
    "word_dimensions": 100,
    "label_dimensions": 96,
    "max_words": 100,
    "negatives": 150,
    "batch": 64,
    "epochs": 4,
    "learning_rate": 0.004,
    "word_dropout": 0.1,
    "state_dropout": 0.2,
}
TEXTS = (
    "Compute the eigenvalues of a symmetric sparse matrix. If the iteration does not converge, a ValueError is raised.",
    "Fit a random forest classifier on the training data X with the class labels y and return the fitted estimator.",
)


def run_demo(out: Path, progress: Progress = silent, command: str = "laha demo") -> tuple[Report, Report, LAHA]:
    """Train and save the demo's model; return its report on the test part, the floor's, and the model."""
    parts = open_parts(CORPUS)
    model = LAHA(**SETTINGS)
    train_to_folder(model, lambda: parts, out, resume=True, facts={"command": command}, progress=progress)
    test = parts.test
    assert test is not None  # builtin corpora have all their parts
    return evaluate(model, test, progress=progress), evaluate(Popular().fit(parts), test), model
