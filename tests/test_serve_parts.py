"""The parts of the server that need no server: batches, type-ahead, labels."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laha.baselines.popular import Popular
from laha.errors import ConfigurationError, LahaError
from laha.prepared import Label
from laha.serve.batching import Batcher, Pairs
from laha.serve.configuration import ServeConfiguration
from laha.serve.label_details import LabelDetails
from laha.serve.label_search import LabelSearch
from laha.serve.problems import RequestProblem
from laha.serve.server import feedback_path, read_api_key, serve


class Model:
    """Answers each text with its length; notes what it was asked, and can be held."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], int]] = []
        self.free = threading.Event()
        self.free.set()

    def __call__(self, texts: Sequence[str], depth: int) -> list[Pairs]:
        self.free.wait(10)
        self.calls.append((list(texts), depth))
        if "bad" in texts:
            raise ValueError("a bad text")
        return [[(len(text), 1.0)] for text in texts]


def gather(batcher: Batcher, *asked: tuple[list[str], int]) -> list[Any]:
    async def ask() -> list[Any]:
        return await asyncio.gather(*(batcher.best(*one) for one in asked), return_exceptions=True)

    return asyncio.run(ask())


def test_requests_that_come_together_go_through_the_model_together_and_get_their_own() -> None:
    model = Model()
    batcher = Batcher(model, 16, 200, 100)
    found = gather(batcher, (["a"], 5), (["bb", "ccc"], 8), ([], 3), (["dddd"], 1))
    assert found == [[[(1, 1.0)]], [[(2, 1.0)], [(3, 1.0)]], [], [[(4, 1.0)]]]
    assert model.calls == [(["a", "bb", "ccc", "dddd"], 8)]
    batcher.stop()


def test_a_deep_request_goes_alone_and_a_large_one_in_pieces() -> None:
    model = Model()
    batcher = Batcher(model, 3, 50, 100)
    gather(batcher, (["a"], 5), (["b"], 50), (["c"], 6), (list("defgh"), 5))
    assert sorted(model.calls) == sorted([(["a", "c"], 8), (["b"], 64), (list("def"), 8), (list("gh"), 8)])
    batcher.stop()


def test_a_full_batch_does_not_wait() -> None:
    model = Model()
    batcher = Batcher(model, 2, 1_000, 100)
    began = time.perf_counter()
    gather(batcher, (["a"], 5), (["b"], 5))
    assert time.perf_counter() - began < 0.9
    batcher.stop()


def test_a_bad_text_spoils_no_other() -> None:
    model = Model()
    batcher = Batcher(model, 16, 100, 100)
    good, bad, other = gather(batcher, (["a"], 5), (["bad"], 5), (["b"], 5))
    assert (good, other) == ([[(1, 1.0)]], [[(1, 1.0)]])
    assert isinstance(bad, ValueError)
    batcher.stop()


def test_what_does_not_fit_the_queue_is_refused_and_the_rest_answered() -> None:
    model = Model()
    model.free.clear()
    batcher = Batcher(model, 1, 0, 3)

    async def ask() -> list[Any]:
        first = asyncio.create_task(batcher.best(["x"], 5))
        await asyncio.sleep(0.05)  # the model has it now, and nothing waits
        waiting = [asyncio.create_task(batcher.best([str(n)], 5)) for n in range(5)]
        await asyncio.sleep(0.05)
        model.free.set()
        return await asyncio.gather(first, *waiting, return_exceptions=True)

    found = asyncio.run(ask())
    refused = [one for one in found if isinstance(one, RequestProblem)]
    assert [problem.status for problem in refused] == [429, 429]
    assert "ask again" in refused[0].detail
    assert sum(isinstance(one, list) for one in found) == 4
    batcher.stop()


def test_stopping_finishes_what_waits() -> None:
    model = Model()
    model.free.clear()
    batcher = Batcher(model, 1, 0, 100)

    async def ask() -> Any:
        task = asyncio.gather(*(batcher.best([str(n)], 5) for n in range(4)))
        await asyncio.sleep(0.05)
        threading.Timer(0.05, model.free.set).start()
        await asyncio.to_thread(batcher.stop)
        with pytest.raises(RequestProblem, match="the server stops"):
            await batcher.best(["late"], 5)
        return await task

    assert len(asyncio.run(ask())) == 4


def test_a_client_that_left_costs_the_model_nothing() -> None:
    model = Model()
    model.free.clear()
    batcher = Batcher(model, 1, 0, 100)

    async def ask() -> None:
        first = asyncio.create_task(batcher.best(["first"], 5))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.best(["gone"], 5))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.sleep(0.05)
        model.free.set()
        await first
        await batcher.best(["last"], 5)

    asyncio.run(ask())
    assert [texts for texts, _ in model.calls] == [["first"], ["last"]]
    batcher.stop()


def naive(labels: list[Label], query: str) -> list[set[str]]:
    """Return the names of each kind: that begin with the query, that have it at a later word's start, that hold it."""
    lower = {label.name: " ".join(label.name.lower().split()) for label in labels}
    begins = {name for name, low in lower.items() if low.startswith(query)}
    later = {name for name, low in lower.items() if f" {query}" in f" {low}"} - begins
    return [begins, later, {name for name, low in lower.items() if query in low} - begins - later]


@given(
    st.lists(st.text("ab c", min_size=1, max_size=8).filter(str.strip), unique=True, max_size=12),
    st.text("abc", min_size=1, max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_type_ahead_finds_what_a_naive_search_does_in_its_order(names: list[str], query: str) -> None:
    labels = [Label(name, frequency) for frequency, name in enumerate(names)]
    found = [labels[number] for number in LabelSearch(labels).find(query, 50)]
    expected = naive(labels, query)
    place = 0
    for kind in expected:
        part = found[place : place + len(kind)]
        assert {label.name for label in part} == kind
        assert [label.frequency for label in part] == sorted((label.frequency for label in part), reverse=True)
        place += len(kind)
    assert len(found) == place


def test_type_ahead_knows_other_names_accents_and_several_words() -> None:
    labels = [
        Label("Heart attack", 9, None, ("Myocardial infarction", "heart stroke")),
        Label("École normale", 3),
        Label("C++", 2),
    ]
    search = LabelSearch(labels)
    for query, found in (("myoc", [0]), ("infar", [0]), ("ECOLE", [1]), ("école no", [1]), ("c++", [2])):
        assert search.find(query, 5) == found, query
    assert search.find("heart", 5) == [0]  # both its names begin so, and it is given once
    assert search.find("", 2) == [0, 1]
    assert search.find("\n\x01\0", 5) == []
    assert LabelSearch([]).find("x", 5) == []


def test_type_ahead_is_quick_with_many_labels() -> None:
    labels = [Label(f"label {number} of many", number % 97) for number in range(200_000)]
    search = LabelSearch(labels)

    def seconds(query: str) -> float:
        began = time.perf_counter()
        search.find(query, 10)
        return time.perf_counter() - began

    for query in ("l", "many", "199999", "zebra"):
        assert median(seconds(query) for _ in range(5)) < 0.05, query


def test_labels_are_found_by_name_identifier_and_uri() -> None:
    model = Popular()
    model.labels_ = [Label("law", 9, "http://x/1"), Label("label:odd", 1), Label("a b", 2)]
    details = LabelDetails(model)
    known = {"law": 0, "http://x/1": 0, "label:law": 0, "label:odd": 1, "label:label:odd": 1, "label:a%20b": 2}
    assert {given: details.find(given) for given in known} == known
    assert details.find("nothing") is None
    assert details.entry(0)["uri"] == "http://x/1"
    assert details.entry(1)["uri"] == "label:label:odd"
    assert details.describe(0)["neighbours"] == {"graph": None, "vectors": None}


def test_settings_are_checked() -> None:
    for wrong in ({"max_text": 0}, {"batch_milliseconds": -1.0}, {"drain_seconds": 0.0}, {"max_body": 3}):
        with pytest.raises(ConfigurationError, match="the value must be"):
            ServeConfiguration(**wrong)  # type: ignore[arg-type]


def test_the_key_comes_from_a_file_or_the_environment(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAHA_API_KEY", raising=False)
    assert read_api_key(None) is None
    monkeypatch.setenv("LAHA_API_KEY", "from-there")
    assert read_api_key(None) == "from-there"
    (tmp_path / "key").write_text("secret\n")
    assert read_api_key(tmp_path / "key") == "secret"
    (tmp_path / "key").write_text("\n")
    with pytest.raises(LahaError, match="is empty"):
        read_api_key(tmp_path / "key")
    with pytest.raises(LahaError, match="cannot be read"):
        read_api_key(tmp_path / "none")


def test_what_is_no_model_is_told_before_a_port_is_taken(tmp_path: Any) -> None:
    with pytest.raises(LahaError, match="there is no model"):
        serve(tmp_path / "none", Popular, "127.0.0.1", 0, ServeConfiguration())
    Popular().fit(["a"], [["x"]]).save(tmp_path / "model")
    with pytest.raises(LahaError, match=r"cannot listen on no\.such\.host\.invalid, port 0"):
        serve(tmp_path / "model", Popular, "no.such.host.invalid", 0, ServeConfiguration())
    labels = tmp_path / "model" / "labels.jsonl"
    with pytest.raises(LahaError, match="cannot keep feedback there"):
        serve(tmp_path / "model", Popular, "127.0.0.1", 0, ServeConfiguration(), feedback=labels)
    assert feedback_path(tmp_path / "model") == tmp_path.resolve() / "model.feedback.sqlite"
