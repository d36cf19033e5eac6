"""The server's interfaces over HTTP: REST, Annif's through its own client, bounds, key, headers, metrics, readiness."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from annif_client import AnnifClient
from tests.conftest import PAPER, SMALL
from tests.live_server import LiveServer

from laha.baselines.popular import Popular
from laha.corpus import Corpus, LabelDetail, Parts
from laha.errors import LahaError
from laha.feedback import text_sha256
from laha.tagger import LAHA

ODD = "odd/../<b>name</b> 100% \u2028é"


@pytest.fixture(scope="module")
def model(parts: Parts) -> LAHA:
    train = parts.train_part()
    details = {"fruit": LabelDetail("http://example.org/fruit", ("produce",))}
    records = [*train.records()]
    corpus = Corpus.from_lists(
        [*train.texts, *["weird thing"] * 3], [*[record.labels for record in records], *[[ODD]] * 3], "topics"
    )
    corpus.label_details = details
    return LAHA(**{**PAPER, "epochs": 12}).fit(Parts(corpus, parts.valid, None, "topics"))


@pytest.fixture(scope="module")
def folder(model: LAHA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "my-topics"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def live(model: LAHA, folder: Path, parts: Parts) -> Iterator[LiveServer]:
    with LiveServer(model, folder, examples=parts.train_part) as server:
        yield server


def copied(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the model folder, with feedback of its own beside it."""
    target = tmp_path / folder.name
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


# REST


def test_tags_are_those_of_predict(live: LiveServer, model: LAHA) -> None:
    texts = ["apple and owl", "iron hammer tin", "red rhine"]
    answer = live.post("/api/tag", {"text": texts, "top": 3}).json()["documents"]
    best = model.predict(texts, 3).named()
    for document, expected, text in zip(answer, best, texts, strict=True):
        assert document["sha256"] == text_sha256(text)
        assert [(entry["label"], entry["score"]) for entry in document["labels"]] == [
            (label, pytest.approx(score, abs=1e-4)) for label, score in expected
        ]
    one = live.post("/api/tag", {"text": texts[0], "top": 3}).json()["documents"]
    assert [entry["label"] for entry in one[0]["labels"]] == [entry["label"] for entry in answer[0]["labels"]]
    assert answer[0]["labels"][0].keys() == {"label", "uri", "frequency", "group", "score"}


def test_labels_are_left_out_by_score_and_by_name(live: LiveServer) -> None:
    every = live.post("/api/tag", {"text": "apple owl", "top": 7}).json()["documents"][0]["labels"]
    assert len(every) == 7
    middle = every[3]["score"]
    kept = live.post("/api/tag", {"text": "apple owl", "top": 7, "min_score": middle}).json()["documents"][0]["labels"]
    assert [entry["label"] for entry in kept] == [e["label"] for e in every if e["score"] >= middle]
    exclude = [every[0]["label"], every[2]["uri"], "unknown"]
    kept = live.post("/api/tag", {"text": "apple owl", "top": 2, "exclude": exclude}).json()["documents"][0]["labels"]
    assert [entry["label"] for entry in kept] == [every[1]["label"], every[3]["label"]]


def test_a_precision_needs_a_calibrated_model(live: LiveServer, model: LAHA, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"text": "apple owl", "top": 7, "min_precision": 0.5}
    refused = live.post("/api/tag", asked)
    assert refused.status_code == 422
    assert refused.json()["detail"].endswith("is not calibrated and can promise no precision: train laha-best instead")
    every = live.post("/api/tag", {"text": "apple owl", "top": 7}).json()["documents"][0]["labels"]
    monkeypatch.setattr(model, "score_at_precision", lambda precision: every[2]["score"], raising=False)
    kept = live.post("/api/tag", asked).json()["documents"][0]["labels"]
    assert [entry["label"] for entry in kept] == [entry["label"] for entry in every[:3]]
    monkeypatch.setattr(model, "score_at_precision", lambda precision: float("inf"))
    assert live.post("/api/tag", asked).json()["documents"][0]["labels"] == []


def test_explanations_are_those_of_explain(live: LiveServer, model: LAHA) -> None:
    answer = live.post("/api/explain", {"text": "apple, iron", "labels": ["fruit", "http://example.org/fruit"]}).json()
    (expected,) = model.explain("apple, iron", ["fruit"]).labels
    (found,) = answer["labels"]
    assert [word["word"] for word in found["words"]] == ["apple", "iron"]
    assert [word["fused"] for word in found["words"]] == pytest.approx([w.fused for w in expected.words], abs=1e-4)
    assert found["alpha"] == pytest.approx(expected.alpha, abs=1e-3)
    assert found["experts"] == {}
    assert len(live.post("/api/explain", {"text": "apple"}).json()["labels"]) == 7
    assert live.post("/api/explain", {"text": "apple", "labels": []}).json()["labels"] == []
    unknown = live.post("/api/explain", {"text": "apple", "labels": ["fruits"]})
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "the model has no label 'fruits'")


def test_labels_are_found_and_described(live: LiveServer) -> None:
    found = live.get("/api/labels", params={"q": "prod"}).json()["labels"]
    assert [entry["label"] for entry in found] == ["fruit"]  # by another name of it
    about = live.get("/api/labels/fruit").json()
    assert about["uri"] == "http://example.org/fruit"
    assert about["other_names"] == ["produce"]
    assert about["group"] == "head"
    assert about == live.get("/api/labels/http://example.org/fruit").json()
    shared = [entry["documents"] for entry in about["neighbours"]["graph"]]
    assert shared == sorted(shared, reverse=True)
    assert len(about["neighbours"]["vectors"]) == 6
    assert len(about["examples"]) == 3
    odd = live.get("/api/labels/" + requests.utils.quote("label:" + ODD, safe=""))  # type: ignore[attr-defined]
    assert odd.json()["label"] == ODD
    assert live.get("/api/labels/nothing").status_code == 404


def test_the_model_card_says_what_the_model_is(live: LiveServer) -> None:
    card = live.get("/api/model").json()
    assert (card["name"], card["model"], card["corpus"]) == ("my-topics", "laha-paper", "topics")
    assert sum(entry["labels"] for entry in card["label_frequencies"]) == card["labels"] == 7
    assert card["groups"]["tail"] == 1
    assert card["explains"] is True
    assert card["calibrated"] is False
    assert card["limits"]["max_texts"] == 256
    assert "nDCG@5" in card["validation"]


def test_decisions_are_kept_told_and_exported(model: LAHA, folder: Path, tmp_path: Path) -> None:
    with LiveServer(model, copied(folder, tmp_path)) as server:
        decisions = [{"label": "fruit", "decision": "accepted"}, {"label": "label:bird", "decision": "rejected"}]
        kept = server.post(
            "/api/feedback", {"text": "apple", "decisions": decisions}, headers={"X-User": "%C5%81ukasz"}
        )
        assert kept.json() == {"sha256": text_sha256("apple"), "decisions": {"fruit": "accepted", "bird": "rejected"}}
        undone = {"text": "apple", "decisions": [{"label": "bird", "decision": "withdrawn"}]}
        assert server.post("/api/feedback", undone).json()["decisions"] == {"fruit": "accepted"}
        assert server.get(f"/api/feedback/{text_sha256('apple')}").json()["decisions"] == {"fruit": "accepted"}
        rows = [json.loads(line) for line in server.get("/api/feedback/export").text.splitlines()]
        assert [(row["label"], row["decision"], row["who"]) for row in rows] == [
            ("fruit", "accepted", "Łukasz"),
            ("bird", "rejected", "Łukasz"),
            ("bird", "withdrawn", None),
        ]
        typo = [*decisions, {"label": "frut", "decision": "added"}]
        refused = server.post("/api/feedback", {"text": "apple", "decisions": typo})
        assert refused.status_code == 404
        assert "none of the decisions was kept" in refused.json()["detail"]
        assert len(server.get("/api/feedback/export").text.splitlines()) == 3
        assert server.get("/api/feedback/NOHASH").status_code == 422


def test_new_labels_and_no_texts_where_the_settings_say_so(model: LAHA, folder: Path, tmp_path: Path) -> None:
    with LiveServer(model, copied(folder, tmp_path), new_labels=True, keep_texts=False) as server:
        decisions = [{"label": "brand new", "decision": "added"}]
        kept = server.post("/api/feedback", {"text": "a secret", "decisions": decisions})
        assert kept.json()["decisions"] == {"brand new": "added"}
        assert '"text": null' in server.get("/api/feedback/export").text


def test_a_server_without_feedback_says_so(model: LAHA, folder: Path) -> None:
    with LiveServer(model, folder, keep_feedback=False) as server:
        body = {"text": "apple", "decisions": [{"label": "fruit", "decision": "accepted"}]}
        assert server.post("/api/feedback", body).status_code == 409
        assert server.get("/api/feedback/export").status_code == 409
        assert server.get("/api/model").json()["feedback"] is False


def test_a_model_without_attention_tags_and_says_that_it_cannot_explain(parts: Parts, tmp_path: Path) -> None:
    model = Popular().fit(parts)
    model.save(tmp_path / "popular")
    with LiveServer(model, tmp_path / "popular") as server:
        assert len(server.post("/api/tag", {"text": "apple"}).json()["documents"][0]["labels"]) == 6
        refused = server.post("/api/explain", {"text": "apple"})
        assert (refused.status_code, refused.json()["detail"]) == (409, "popular has no attention to explain")
        assert server.get("/api/model").json()["explains"] is False
        assert server.get("/api/labels/fruit").json()["neighbours"] == {"graph": None, "vectors": None}
        assert server.get("/api/labels/fruit").json()["examples"] is None


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")  # of a head for no label at all
def test_several_experts_are_served_with_their_shares_and_their_precision(parts: Parts, tmp_path: Path) -> None:
    train, valid = parts.train_part(), parts.valid
    assert valid is not None
    named = [[*(record.labels or ()), "noise1"] for record in valid.records()]  # a label that only its name tells
    held_out = Corpus.from_lists(valid.texts, named, "topics")
    held_out.label_details = {"noise1": LabelDetail("http://example.org/noise1")}
    model = LAHA(**{**SMALL, "preset": "best", "epochs": 2}).fit(Parts(train, held_out, None, "topics"))
    model.save(tmp_path / "best")
    with LiveServer(model, tmp_path / "best") as server:
        card = server.get("/api/model").json()
        assert (card["model"], card["calibrated"], card["labels"]) == ("laha-best", True, 7)
        asked = {"text": "apple iron noise1", "top": 7, "min_precision": 0.9}
        (document,) = server.post("/api/tag", asked).json()["documents"]
        threshold = model.score_at_precision(0.9)
        assert all(entry["score"] >= threshold - 1e-6 for entry in document["labels"])
        explained = server.post("/api/explain", {"text": asked["text"], "labels": ["fruit", "noise1"]}).json()["labels"]
        by_label = {entry["label"]: entry for entry in explained}
        assert len(by_label["fruit"]["experts"]) > 1
        assert len(by_label["fruit"]["words"]) == 3
        assert len(by_label["noise1"]["words"]) == 3  # no attention has ever seen it: by what its score loses
        about = server.get("/api/labels/noise1").json()
        assert (about["frequency"], about["group"]) == (0, "unseen")
        assert about["neighbours"] == {"graph": [], "vectors": None}


# Annif's interface, by its client


def test_annifs_client_lists_projects_and_suggests(live: LiveServer, model: LAHA) -> None:
    client = AnnifClient(live.url + "/v1/")
    assert client.api_info["title"]
    (project,) = client.projects
    assert project["project_id"] == "my-topics"
    assert client.get_project("my-topics") == project
    text = "apple and plum"
    found = client.suggest("my-topics", text, limit=2)
    assert [result["label"] for result in found] == [label for label, _ in model.predict([text], 2).named()[0]]
    assert all(result["uri"] for result in found)
    assert client.suggest("my-topics", text, limit=7, threshold=found[0]["score"]) == found[:1]
    uris = {result["label"]: result["uri"] for result in client.suggest("my-topics", text)}
    assert uris["fruit"] == "http://example.org/fruit"
    assert uris["bird"] == "label:bird"
    with pytest.raises(ValueError, match="there is no project 'other'"):
        client.suggest("other", text)
    with pytest.raises(ValueError, match="there is no project 'other'"):
        client.get_project("other")


def test_annifs_client_suggests_in_batches(live: LiveServer) -> None:
    client = AnnifClient(live.url + "/v1/")
    documents = [{"text": "apple"}, {"text": "owl", "document_id": "second"}]
    first, second = client.suggest_batch("my-topics", documents, limit=1, threshold=0.0)
    assert first["results"] == client.suggest("my-topics", "apple", limit=1)
    assert second["document_id"] == "second"
    assert len(second["results"]) == 1


def test_annifs_client_teaches(model: LAHA, folder: Path, tmp_path: Path) -> None:
    with LiveServer(model, copied(folder, tmp_path)) as server:
        client = AnnifClient(server.url + "/v1/")
        subjects = [{"uri": "http://example.org/fruit", "label": "x", "score": 1.0}, {"uri": "u:none"}]
        client.learn("my-topics", [{"text": "a plum", "subjects": subjects}, {"text": "nothing", "subjects": []}])
        (row,) = [json.loads(line) for line in server.get("/api/feedback/export").text.splitlines()]
        assert (row["text"], row["label"], row["decision"], row["who"]) == ("a plum", "fruit", "added", "annif")


# Bounds


def test_over_its_bounds_a_request_gets_its_status_and_a_reason(model: LAHA, folder: Path, tmp_path: Path) -> None:
    bounds = {"max_body": 2_000, "max_text": 100, "max_texts": 3, "max_top": 5, "max_decisions": 2, "explained": 2}
    with LiveServer(model, copied(folder, tmp_path), **bounds) as server:
        decision = {"label": "fruit", "decision": "accepted"}
        for path, body, status, reason in (
            ("/api/tag", {"text": "a" * 101}, 422, "a text of 101 characters, where 100 are the most"),
            ("/api/tag", {"text": ["a"] * 4}, 422, "4 texts, where 3 are the most (max_texts)"),
            ("/api/tag", {"text": "a", "top": 6}, 422, "6 top, where 5 are the most (max_top)"),
            ("/api/tag", {"text": "a", "top": 5, "exclude": ["x"] * 6}, 422, "6 excluded labels, where 5 are"),
            ("/api/tag", {"text": ["a" * 100] * 30}, 413, "larger than 2,000 bytes (max_body)"),
            ("/api/explain", {"text": "a", "top": 5}, 422, "5 labels to explain, where 4 are the most"),
            ("/api/feedback", {"text": "a", "decisions": [decision] * 3}, 422, "3 decisions, where 2 are the most"),
            ("/v1/projects/my-topics/suggest-batch", {"documents": [{"text": "a"}] * 4}, 422, "4 texts"),
            ("/v1/projects/my-topics/learn", [{"text": "a" * 101, "subjects": []}], 422, "101 characters"),
        ):
            answer = server.post(path, body)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path
            assert reason in answer.json()["detail"]
        assert server.post("/api/tag", {"text": ["a" * 100] * 3, "top": 5}).status_code == 200


def test_a_body_is_bounded_whether_or_not_it_says_its_length(live: LiveServer) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b"a" * 100_000

    headers = {"content-type": "application/json"}
    for body in (b"a" * 10_000_000, pieces()):
        answer = requests.post(live.url + "/api/tag", data=body, headers=headers, timeout=30)
        assert (answer.status_code, answer.json()["status"]) == (413, 413)


def test_a_body_that_never_ends_is_given_up(model: LAHA, folder: Path) -> None:
    import socket

    with LiveServer(model, folder, body_seconds=0.3, keep_feedback=False) as server:
        host, port = server.socket.getsockname()
        with socket.create_connection((host, port), timeout=10) as slow:
            slow.sendall(b"POST /api/tag HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            slow.sendall(b'Content-Length: 100\r\n\r\n{"te')
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


def test_more_requests_than_allowed_at_once_are_told_to_come_back(model: LAHA, folder: Path) -> None:
    with LiveServer(model, folder, max_requests=2, batch_milliseconds=400.0, keep_feedback=False) as server:
        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda _: server.post("/api/tag", {"text": "apple"}), range(12)))
        assert {answer.status_code for answer in answers} == {200, 429}
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["title"] == "Too Many Requests"
        assert server.get("/health").status_code == 200


def test_a_full_queue_is_a_429(model: LAHA, folder: Path) -> None:
    settings = {"max_queue": 3, "batch_milliseconds": 300.0, "keep_feedback": False}
    with LiveServer(model, folder, **settings) as server:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: server.post("/api/tag", {"text": ["a", "b"]}), range(8)))
        assert {answer.status_code for answer in answers} == {200, 429}


# The key, the headers, the log, the figures, readiness


def test_a_key_opens_all_but_the_page_and_the_state(model: LAHA, folder: Path) -> None:
    with LiveServer(model, folder, api_key="sesame", keep_feedback=False) as server:
        for path in ("/api/model", "/v1/projects", "/v1/", "/metrics", "/api/labels", "/api/none"):
            refused = server.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["www-authenticate"] == "Bearer"
            for headers in ({"X-API-Key": "sesame"}, {"Authorization": "bearer  sesame"}):
                assert server.get(path, headers=headers).status_code != 401, path
            for headers in ({"X-API-Key": "sesam"}, {"Authorization": "Basic sesame"}, {"X-API-Key": "sésame"}):
                assert server.get(path, headers=headers).status_code == 401, path
        for path in ("/health", "/ready", "/", "/page/app.js"):
            assert server.get(path).status_code == 200, path
        document = server.get("/openapi.json").json()
        assert document["paths"]["/api/tag"]["post"]["security"] == [{"bearer": []}, {"header": []}]


def test_every_answer_has_the_security_headers_and_no_other_origin_is_let_in(live: LiveServer) -> None:
    for path in ("/", "/page/app.js", "/api/model", "/none", "/api/labels/none", "/metrics", "/openapi.json"):
        headers = live.get(path, headers={"Origin": "http://evil.example"}).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.lower().startswith("access-control-")]
    assert live.get("/api/model").headers["cache-control"] == "no-store"


def test_the_log_holds_no_text_and_no_label(
    live: LiveServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    live.post("/api/tag", {"text": "secretword"})
    live.get("/api/labels", params={"q": "secretword"})
    live.get("/api/labels/secretword")
    live.get("/secretword")
    live.post("/api/tag", {"text": 5, "secretword": "secretword"})

    def fail(texts: Any, depth: int) -> None:
        raise ValueError(f"cannot read {texts}")

    monkeypatch.setattr(live.service.batcher, "_predict", fail)
    failed = live.post("/api/tag", {"text": "secretword"})
    assert failed.status_code == 500
    assert failed.json()["detail"] == "the server failed at this request; its log says where"
    for _ in range(100):  # the answer may be there before the line
        if "ValueError at" in caplog.text:
            break
        time.sleep(0.02)
    assert "ValueError at" in caplog.text
    assert "/api/labels/{label} 404" in caplog.text
    assert "secretword" not in caplog.text


def test_the_figures_count_requests_batches_and_decisions(model: LAHA, folder: Path, tmp_path: Path) -> None:
    with LiveServer(model, copied(folder, tmp_path)) as server:
        server.post("/api/tag", {"text": ["a", "b", "c"]})
        server.post("/api/tag", {"text": 1})
        server.get("/none")
        server.get("/nothing")
        server.post("/api/feedback", {"text": "a", "decisions": [{"label": "fruit", "decision": "accepted"}]})
        lines = server.get("/metrics").text.splitlines()
        for line in (
            'laha_requests_total{method="POST",route="/api/tag",status="200"} 1.0',
            'laha_requests_total{method="POST",route="/api/tag",status="422"} 1.0',
            'laha_requests_total{method="GET",route="unknown",status="404"} 2.0',
            'laha_decisions_total{decision="accepted"} 1.0',
            "laha_batch_texts_sum 3.0",
            "laha_ready 1.0",
        ):
            assert line in lines, line


def test_it_is_ready_only_when_the_model_can_answer(model: LAHA, folder: Path) -> None:
    loading = threading.Event()

    def load() -> LAHA:
        assert loading.wait(30)
        return model

    with LiveServer(model, folder, load=load, keep_feedback=False) as server:
        thread = threading.Thread(target=server.service.load)
        thread.start()
        assert server.get("/health").status_code == 200
        assert server.get("/").status_code == 200
        for answer in (server.get("/ready"), server.post("/api/tag", {"text": "a"}), server.get("/v1/projects")):
            assert answer.status_code == 503
            assert "being loaded" in answer.json()["detail"]
        assert "laha_ready 0.0" in server.get("/metrics").text
        loading.set()
        thread.join(30)
        assert server.get("/ready").json() == {"status": "ready"}
        assert server.post("/api/tag", {"text": "a"}).status_code == 200


def test_a_model_that_cannot_be_loaded_never_becomes_ready(model: LAHA, folder: Path) -> None:
    def load() -> LAHA:
        raise LahaError("a damaged model")

    with LiveServer(model, folder, load=load, keep_feedback=False) as server:
        with pytest.raises(LahaError, match="a damaged model"):
            server.service.load()
        assert server.get("/ready").status_code == 503
        assert isinstance(server.service.failure, LahaError)


def test_pages_files_are_cached_by_their_content(live: LiveServer) -> None:
    first = live.get("/page/app.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = live.get("/page/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert live.get("/page/none.js").status_code == 404


def test_many_at_once_get_each_their_own(live: LiveServer, model: LAHA) -> None:
    texts = ["apple pear plum", "iron tin zinc", "owl crane heron", "red blue green", "rhine nile volga"]
    expected = {text: model.predict([text], 1).named()[0][0][0] for text in texts}
    began = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        asked = texts * 40
        answers = list(pool.map(lambda text: live.post("/api/tag", {"text": text, "top": 1}).json(), asked))
    assert time.perf_counter() - began < 30
    for text, answer in zip(asked, answers, strict=True):
        assert answer["documents"][0]["labels"][0]["label"] == expected[text]
