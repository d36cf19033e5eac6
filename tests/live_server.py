"""A server in a thread of the tests, on a free port of the loopback."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from threading import Thread
from typing import Any, Self

import requests
import uvicorn

from laha.estimator import Estimator
from laha.feedback import FeedbackStore
from laha.serve.app import create_app
from laha.serve.configuration import ServeConfiguration
from laha.serve.service import Service


class LiveServer:
    """Serves a model that is saved in a folder and loaded already; `with` ends it."""

    def __init__(
        self,
        model: Estimator,
        folder: Path,
        api_key: str | None = None,
        examples: Any = None,
        load: Any = None,
        **settings: Any,
    ):
        configuration = ServeConfiguration(**settings)
        store = None
        if configuration.keep_feedback:
            store = FeedbackStore(folder.with_name(folder.name + ".feedback.sqlite"), configuration.keep_texts)
        self.service = Service(folder, load or (lambda: model), configuration, store, examples)
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        app = create_app(self.service, api_key)
        self.server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, http="h11", ws="none", server_header=False)
        )
        self.thread = Thread(target=lambda: asyncio.run(self.server.serve(sockets=[self.socket])))
        self.waits = load is not None

    def __enter__(self) -> Self:
        if not self.waits:
            self.service.load()
        self.thread.start()
        deadline = time.monotonic() + 30
        while not self.server.started:
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.01)
        return self

    def __exit__(self, *problem: object) -> None:
        self.server.should_exit = True
        self.thread.join(30)
        self.socket.close()

    def get(self, path: str, **options: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=30, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> requests.Response:
        return requests.post(self.url + path, json=body, timeout=30, **options)
