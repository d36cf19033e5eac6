"""What runs in the second interpreter, with libpecos and numpy 1: it answers each JSON line on stdin with another."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    model: Any = None
    for line in sys.stdin:
        try:
            model = answer(model, json.loads(line))
            reply: dict[str, Any] = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
        except Exception as error:
            reply = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def answer(model: Any, request: dict[str, Any]) -> Any:
    """Train, load or score; return the model for the next request."""
    from pecos.xmc.xlinear.model import XLinearModel
    from scipy.sparse import load_npz, save_npz

    place = Path(request["place"])
    if request["do"] == "load":
        return XLinearModel.load(str(place / "model"), is_predict_only=True)
    rows = load_npz(place / "rows.npz")
    if request["do"] == "train":
        return train(rows, load_npz(place / "labels.npz"), request, str(place / "model"))
    scores = model.predict(rows, only_topk=request["top"], beam_size=request["beam"], threads=request["workers"])
    save_npz(place / "scores.npz", scores, compressed=False)
    return model


def train(rows: Any, labels: Any, request: dict[str, Any], folder: str) -> Any:
    """Index the labels by the features of their documents, train, and read back what was saved."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    vectors = LabelEmbeddingFactory.create(labels, rows, method="pifa")
    clusters = Indexer.gen(
        vectors, indexer_type="hierarchicalkmeans", threads=request["workers"], **request["clusters"]
    )
    XLinearModel.train(rows, labels, C=clusters, threads=request["workers"], **request["rankers"]).save(folder)
    return XLinearModel.load(folder, is_predict_only=True)


if __name__ == "__main__":
    main()
