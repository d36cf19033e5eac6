"""The training loop: what it optimises, when it stops, and that it can be stopped and continued without a trace."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import PAPER

from laha.errors import Interrupted, LahaError, ModelError
from laha.prepared import Prepared
from laha.tagger import LAHA
from laha.training import Examples, Trainer, TrainingConfiguration, sample_labels, schedule_factor


def fit(prepared: Prepared, folder: Path | None = None, resume: bool = False, **settings: Any) -> LAHA:
    return LAHA(**{**PAPER, **settings}).fit(prepared, folder=folder, resume=resume)


def weights(model: LAHA) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.network_.state_dict().items()}


def assert_same(left: LAHA, right: LAHA) -> None:
    for name, array in weights(left).items():
        assert array.tobytes() == weights(right)[name].tobytes(), name


def stop_after(steps: int) -> Callable[..., None]:
    """Return a progress callback that sends the process Ctrl-C once so many steps are done."""
    seen: list[float] = []

    def progress(task: str, done: float, note: str = "") -> None:
        if task == "training":
            seen.append(done)
            if len(seen) == steps:
                os.kill(os.getpid(), signal.SIGINT)

    return progress


def test_it_learns_the_rule(prepared: Prepared) -> None:
    history = fit(prepared, epochs=25, patience=25, units=16, word_dropout=0.0, state_dropout=0.0).trained_["history"]
    assert history[-1]["nDCG@5"] > 90
    assert history[-1]["nDCG@5"] > history[0]["nDCG@5"]


def test_one_seed_gives_the_same_bytes_and_another_seed_others(prepared: Prepared) -> None:
    first = fit(prepared)
    torch.rand(7)  # whatever ran before must not matter
    assert_same(first, fit(prepared))
    other = weights(fit(prepared, seed=1))
    assert any(array.tobytes() != other[name].tobytes() for name, array in weights(first).items())


@pytest.mark.parametrize("steps", [1, 7, 10, 23])
@pytest.mark.parametrize("settings", [{}, {"negatives": 2, "average_from": 2, "schedule": "one-cycle"}])
def test_interrupted_anywhere_and_resumed_it_ends_with_the_same_bytes(
    prepared: Prepared, tmp_path: Path, steps: int, settings: dict[str, Any]
) -> None:
    whole = fit(prepared, **settings)
    with pytest.raises(Interrupted):
        LAHA(**{**PAPER, **settings}).fit(prepared, folder=tmp_path, progress=stop_after(steps))
    assert_same(whole, fit(prepared, folder=tmp_path, resume=True, **settings))


def test_a_resumed_log_has_every_step_once(prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        LAHA(**PAPER).fit(prepared, folder=tmp_path, progress=stop_after(13))
    with (tmp_path / "log.jsonl").open("a") as log:  # as if more steps had run after the checkpoint, then a crash
        log.write('{"epoch": 2, "step": 4, "loss": 1.0}\n')
    fit(prepared, folder=tmp_path, resume=True)
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    steps = [(row["epoch"], row["step"]) for row in rows if "step" in row]
    assert steps == [(epoch, step) for epoch in (1, 2, 3) for step in range(1, 11)]
    assert {"loss", "gradient_norm", "learning_rate", "words", "labels", "seconds"} <= rows[0].keys()
    assert len([row for row in rows if "valid nDCG@5" in row]) == 3


def test_a_checkpoint_of_another_network_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        LAHA(**PAPER).fit(prepared, folder=tmp_path, progress=stop_after(3))
    with pytest.raises(ModelError, match="belongs to another network"):
        fit(prepared, folder=tmp_path, resume=True, units=9)


def test_a_damaged_checkpoint_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(ModelError, match=r"checkpoint\.safetensors cannot be read"):
        fit(prepared, folder=tmp_path, resume=True)


def test_training_stops_when_validation_no_longer_improves_and_keeps_the_best(prepared: Prepared) -> None:
    model = fit(prepared, epochs=40, patience=2, learning_rate=0.05)
    history = [row["nDCG@5"] for row in model.trained_["history"]]
    best = model.trained_["best_epoch"]
    assert len(history) == best + 2 < 40
    assert max(history) == history[best - 1]
    trainer = trainer_of(model, prepared)
    assert trainer._valid_metrics()["nDCG@5"] == pytest.approx(history[best - 1])


def trainer_of(model: LAHA, prepared: Prepared, **settings: Any) -> Trainer:
    train, valid = prepared.part("train"), prepared.part("valid")
    configuration = replace(TrainingConfiguration(batch=16, precision="float32"), **settings)
    return Trainer(
        model.network_,
        Examples(train.words, train.labels[:, : prepared.train_labels]),
        Examples(valid.words, valid.labels),
        configuration,
        max_words=50,
        seed=0,
        device=torch.device("cpu"),
    )


def test_the_loss_is_the_sum_over_labels_averaged_over_documents(prepared: Prepared) -> None:
    model = fit(prepared)
    trainer = trainer_of(model, prepared)
    documents = np.arange(5)
    words, lengths = trainer._tensors(trainer.train.words, documents)
    with torch.no_grad():
        predicted = model.network_.eval()(words, lengths).sigmoid().double().numpy()
    truth = trainer.train.labels[documents].toarray()
    expected = -(truth * np.log(predicted) + (1 - truth) * np.log(1 - predicted)).sum() / 5
    assert float(trainer._step(documents)["loss"]) == pytest.approx(expected, rel=1e-5)


def test_sampled_labels_and_targets_belong_together(prepared: Prepared) -> None:
    model = fit(prepared)
    trainer = trainer_of(model, prepared, negatives=2)
    documents = np.array([0, 3, 8])
    labels, targets = trainer._targets(documents, None)
    assert labels is not None
    truth = trainer.train.labels[documents].toarray()
    np.testing.assert_array_equal(targets.numpy(), truth[:, labels.numpy()])
    assert targets.sum() == truth.sum()  # no positive is left out


def test_averaging_gives_the_mean_of_the_epochs_weights(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each epoch counts as better than the one before, so that the last one's weights are kept.
    monkeypatch.setattr(Trainer, "_valid_metrics", lambda self: {"nDCG@5": float(self.state.epoch)})
    first, second = (weights(fit(prepared, epochs=epochs)) for epochs in (1, 2))
    averaged = weights(fit(prepared, epochs=2, average_from=1))
    for name, mean in averaged.items():
        np.testing.assert_allclose(mean, (first[name] + second[name]) / 2, atol=1e-6, err_msg=name)
    assert not np.array_equal(first["prediction.W_f.weight"], second["prediction.W_f.weight"])


@given(
    labels=st.integers(1, 40),
    negatives=st.integers(1, 60),
    seed=st.integers(0, 9),
    positives=st.lists(st.integers(0, 39), max_size=8),
)
def test_a_sample_holds_all_positives_and_so_many_others(
    labels: int, negatives: int, seed: int, positives: list[int]
) -> None:
    mine = np.array([p for p in positives if p < labels], dtype=np.int64)
    sample = sample_labels(mine, labels, negatives, np.random.default_rng(seed))
    assert len(set(sample.tolist())) == len(sample)
    assert set(mine.tolist()) <= set(sample.tolist()) <= set(range(labels))
    assert (np.diff(sample) > 0).all()
    distinct = len(set(mine.tolist()))
    assert len(sample) == distinct + min(negatives, labels - distinct)


def test_every_other_label_is_drawn_alike_often() -> None:
    counts = np.zeros(10)
    for seed in range(4000):
        counts[sample_labels(np.array([2, 7]), 10, 2, np.random.default_rng(seed))] += 1
    assert counts[2] == counts[7] == 4000
    others = np.delete(counts, [2, 7])
    assert abs(others - 1000).max() < 120  # 2 of 8, 4 standard deviations


@pytest.mark.parametrize(("schedule", "start", "end"), [("constant", 1, 1), ("linear", 1, 0), ("one-cycle", 0.04, 0)])
def test_schedules_begin_and_end_where_they_should(schedule: str, start: float, end: float) -> None:
    assert schedule_factor(schedule, 0.0) == pytest.approx(start)
    assert schedule_factor(schedule, 1.0) == pytest.approx(end, abs=1e-9)


def test_training_needs_documents_and_validation_labels(prepared: Prepared) -> None:
    model = fit(prepared)
    empty = Examples(prepared.part("valid").words, prepared.part("valid").labels * 0)
    trainer = trainer_of(model, prepared)
    trainer.valid = empty
    with pytest.raises(LahaError, match="no validation document has a label"):
        trainer._valid_metrics()


def test_validation_reads_at_most_so_many_documents(prepared: Prepared) -> None:
    part = prepared.part("valid")
    examples = Examples(part.words, part.labels).take(7, seed=0)
    assert len(examples) == 7
    assert examples.labels.shape[0] == 7
    again = Examples(part.words, part.labels).take(7, seed=0)
    assert np.array_equal(examples.words.ids, again.words.ids)


def test_a_document_head_comes_after_the_network_and_changes_nothing_in_it(prepared: Prepared) -> None:
    without, after = fit(prepared), fit(prepared, shortlist=3)
    for name, array in weights(without).items():
        assert array.tobytes() == weights(after)[name].tobytes(), name
    assert weights(after).keys() - weights(without).keys() == {
        f"document_head.{layer}.{kind}" for layer in ("hidden", "labels") for kind in ("weight", "bias")
    }


def test_a_run_with_a_document_head_is_resumed_to_the_same_bytes(prepared: Prepared, tmp_path: Path) -> None:
    tmp_path.joinpath("run").mkdir()
    with pytest.raises(Interrupted):
        LAHA(**PAPER, shortlist=3).fit(prepared, folder=tmp_path / "run", progress=stop_after(14))
    assert_same(fit(prepared, shortlist=3), fit(prepared, tmp_path / "run", resume=True, shortlist=3))


def test_each_better_validation_is_told_with_its_weights_in_place_and_changes_nothing(prepared: Prepared) -> None:
    settings: dict[str, Any] = {"epochs": 6, "patience": 6, "average_from": 2, "learning_rate": 0.05}
    plain = fit(prepared, **settings)
    model = LAHA(**{**PAPER, **settings})
    told: list[float] = []
    make = model._trainer

    def listening(*arguments: Any) -> Trainer:
        trainer = make(*arguments)
        trainer.improved = lambda: told.append(trainer._valid_metrics()["nDCG@5"])
        return trainer

    model._trainer = listening  # type: ignore[method-assign, assignment]
    model.fit(prepared)
    assert_same(plain, model)
    history = [row["nDCG@5"] for row in model.trained_["history"]]
    better = [score for epoch, score in enumerate(history) if score > max(history[:epoch], default=-1.0)]
    assert told == pytest.approx(better)
    assert len(better) < len(history)


def test_the_heads_best_labels_are_scored_beside_the_random_ones(prepared: Prepared, tmp_path: Path) -> None:
    settings = {**PAPER, "negatives": 1, "document_loss": 1.0, "epochs": 1}

    def scored(folder: Path, **more: int) -> list[float]:
        folder.mkdir()
        LAHA(**settings, **more).fit(prepared, folder=folder)
        rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        return [row["labels"] for row in rows if "step" in row]

    def sampled(**more: int) -> list[int]:
        shown: list[int] = []
        original = Trainer._targets

        def targets(self: Trainer, documents: Any, encoded: Any) -> Any:
            labels, wanted = original(self, documents, encoded)
            assert labels is not None
            hard = set(self._hard_labels(encoded).tolist())
            assert hard <= set(labels.tolist())
            shown.append(len(hard))
            return labels, wanted

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Trainer, "_targets", targets)
            LAHA(**settings, **more).fit(prepared)
        return shown

    assert set(sampled()) == {0}
    assert min(sampled(hard_negatives=2)) >= 2
    few, many = scored(tmp_path / "few"), scored(tmp_path / "many", hard_negatives=6)
    assert all(count <= 6 for count in few)
    assert set(many) == {6.0}  # of six labels all are among the six best
