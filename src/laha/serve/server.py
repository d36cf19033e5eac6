"""Run the server: listen at once, load the model beside, drain on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import uvicorn

from laha.corpus import Corpus
from laha.errors import LahaError
from laha.estimator import KIND, Estimator
from laha.feedback import ENDING, FeedbackStore
from laha.serve.app import create_app
from laha.serve.configuration import ServeConfiguration
from laha.serve.service import Service
from laha.storage import read_manifest

MAX_HEAD = 65_536  # bytes of a request's line and headers
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def feedback_path(model: Path) -> Path:
    """Return where a model's feedback is kept: beside the model, which training replaces as a whole."""
    return model.resolve().with_name(model.resolve().name + ".feedback" + ENDING)


def read_api_key(file: Path | None) -> str | None:
    """Return the key in a file, else in LAHA_API_KEY; on the command line every user of the machine would see it."""
    try:
        key = os.environ.get("LAHA_API_KEY", "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise LahaError(f"{file} cannot be read ({error}): name a file that holds the key") from error
    if file is not None and not key.strip():
        raise LahaError(f"{file} is empty: write the key into it")
    return key.strip() or None


def serve(
    model: Path,
    load: Callable[[], Estimator],
    host: str,
    port: int,
    configuration: ServeConfiguration,
    feedback: Path | None = None,
    examples: Callable[[], Corpus] | None = None,
    api_key: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Serve a model folder until SIGTERM or SIGINT; requests in work are answered first."""
    read_manifest(model, KIND, check=False)  # what is no model is told before anything else
    store = None
    if configuration.keep_feedback:
        store = FeedbackStore(feedback or feedback_path(model), configuration.keep_texts)
    listening = _listen(host, port)
    service = Service(model, load, configuration, store, examples)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    if host not in LOOPBACK and api_key is None:
        tell("anyone who reaches this address can use the server: LAHA_API_KEY or --api-key-file asks for a key")
    tell(f"loading {model}; {address}/health answers already")
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(service, api_key),
            log_config=None,
            access_log=False,  # the guard writes it, without paths, which may hold labels
            server_header=False,
            date_header=True,
            timeout_graceful_shutdown=int(configuration.drain_seconds + 0.999),
            http="h11",  # bounds the head of a request, which other parsers do not
            h11_max_incomplete_event_size=MAX_HEAD,
            ws="none",
        )
    )
    Thread(target=_load, args=(service, server, address, tell), name="laha-load", daemon=True).start()
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # uvicorn raises it anew once all is drained
    try:
        asyncio.run(server.serve(sockets=[listening]))
    except KeyboardInterrupt:
        tell("stopped")
    finally:
        listening.close()
    if service.failure is not None:
        raise service.failure


def _load(service: Service, server: uvicorn.Server, address: str, tell: Callable[[str], None]) -> None:
    try:
        service.load()
    except Exception:
        server.should_exit = True
        return
    tell(f"ready: {address}")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise LahaError(f"cannot listen on {host}, port {port} ({error.strerror or error}): name another") from error


def log_to_stderr() -> None:
    """Write the server's log, a line a request, on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("laha.serve")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    errors = logging.getLogger("uvicorn.error")
    errors.addHandler(handler)
    errors.setLevel(logging.WARNING)
