"""The server as a process: what it says, kill -9, SIGTERM, a model that cannot be loaded, a short load."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, Self

import pytest
import requests

from laha.baselines.popular import Popular
from laha.corpus import Parts
from laha.feedback import read_feedback, text_sha256

ROOT = Path(__file__).parent.parent


class Process:
    """`laha serve` on a free port; `with` kills what is left of it."""

    def __init__(self, model: Path, *options: str, environment: dict[str, str] | None = None):
        command = [sys.executable, "-m", "laha", "serve", str(model), "--port", "0", *options]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables)
        assert self.process.stderr is not None
        self.said: list[str] = []
        self.url = ""
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"; (http://\S+)/health answers already", line):
                self.url = found[1]
                break
        self.reader = Thread(target=lambda: self.said.extend(self.process.stderr or ()), daemon=True)
        self.reader.start()

    def until_ready(self) -> Self:
        deadline = time.monotonic() + 60
        while requests.get(self.url + "/ready", timeout=10).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.process.kill()
        self.process.wait(60)
        self.reader.join(10)
        if self.process.stderr is not None:
            self.process.stderr.close()


@pytest.fixture
def model(parts: Parts, tmp_path: Path) -> Path:
    Popular().fit(parts).save(tmp_path / "popular")
    return tmp_path / "popular"


def test_kill_9_loses_no_decision_that_was_acknowledged(model: Path) -> None:
    acknowledged: list[str] = []
    with Process(model) as server:
        server.until_ready()

        def post(number: int) -> None:
            decision = {"label": "fruit", "decision": "accepted" if number % 2 else "rejected"}
            body = {"text": f"text {number}", "decisions": [decision]}
            try:
                answer = requests.post(server.url + "/api/feedback", json=body, timeout=30)
            except requests.RequestException:
                return  # the server is gone
            if answer.ok:
                acknowledged.append(f"text {number}")
                if len(acknowledged) == 400:
                    server.process.send_signal(signal.SIGKILL)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(post, range(1_000)))
        assert server.process.wait(60) == -signal.SIGKILL
    assert 400 <= len(acknowledged) < 1_000
    with Process(model) as again:
        again.until_ready()
        lines = requests.get(again.url + "/api/feedback/export", timeout=30).text.splitlines()
        kept = {json.loads(line)["text"] for line in lines}
        assert kept >= set(acknowledged)
        standing = requests.get(f"{again.url}/api/feedback/{text_sha256(acknowledged[0])}", timeout=30).json()
        assert list(standing["decisions"]) == ["fruit"]
        assert again.end(signal.SIGTERM) == 0
    assert {decided.text for decided in read_feedback(model.with_name("popular.feedback.sqlite"))} == kept


def test_sigterm_answers_what_is_in_work_and_ends_well(model: Path) -> None:
    with Process(model, "--set", "batch_milliseconds=1000", "--set", "keep_feedback=false") as server:
        server.until_ready()
        with ThreadPoolExecutor(4) as pool:
            asked = [
                pool.submit(requests.post, server.url + "/api/tag", json={"text": f"apple {n}"}, timeout=30)
                for n in range(4)
            ]
            while "laha_requests_in_work 5.0" not in requests.get(server.url + "/metrics", timeout=10).text:
                time.sleep(0.01)
            assert server.end(signal.SIGTERM) == 0
            assert [answer.result().status_code for answer in asked] == [200] * 4
        with pytest.raises(requests.ConnectionError):
            requests.get(server.url + "/health", timeout=5)
    assert not model.with_name("popular.feedback.sqlite").exists()


def test_a_damaged_model_ends_the_server_with_one_line(model: Path) -> None:
    (model / "labels.jsonl").write_text("{}\n")
    with Process(model) as server:
        assert server.process.wait(60) == 1
        server.reader.join(10)
    assert server.said[-1].startswith("laha: ")
    assert "labels.jsonl does not match its sha256" in server.said[-1]
    assert "Traceback" not in "".join(server.said)


def test_a_wrong_setting_is_told_in_one_line(model: Path) -> None:
    command = [sys.executable, "-m", "laha", "serve", str(model), "--port", "0", "--set", "max_txt=5"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1
    assert refused.stderr == "laha: there is no setting 'max_txt': did you mean 'max_text'?\n"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("serve_load")


def test_a_short_load_has_no_errors_and_batches_fill(load: Any, tmp_path: Path) -> None:
    load.make_model(tmp_path / "random", labels=500)
    with load.Server(tmp_path / "random", threads=1) as server:
        load.under_load(server, clients=12, requests=60, words=20)
        found = load.under_load(server, clients=12, seconds=2.0, words=20)
        assert found.errors == 0
        assert found.requests > 50
        assert found.p99 < 2.0  # the tests share the cores; the bar is the benchmark's
        assert server.texts_a_batch() > 2
        counted = load.under_load(server, clients=12, requests=300, words=20)
        assert (counted.errors, counted.requests) == (0, 300)
        assert server.resident() > 0
