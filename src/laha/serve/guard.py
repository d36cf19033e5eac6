"""The guard before the app: bounds, API key, security headers, the log and the metrics of every request."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from laha.serve.problems import PROBLEM_JSON, RequestProblem, problem_body, problem_headers
from laha.serve.service import Service

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("laha.serve")

PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        *("script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'", "manifest-src 'self'"),
        *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
        *("require-trusted-types-for 'script'", "trusted-types 'none'"),
    )
)
SECURITY = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
ALWAYS = ("/health", "/ready", "/metrics")  # answered however much is in work
SECRET = ("/api/", "/v1/", "/metrics")  # what an API key opens; the page itself holds nothing
DRAINED = 16  # times the largest body that is read on and thrown away, so that the sender reads the answer


class Guard:
    """An ASGI app around the app."""

    def __init__(self, app: App, service: Service, api_key: str | None = None):
        self._app, self._service = app, service
        self._key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; whatever goes wrong, the answer is JSON and no traceback."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        answer = _Answer(send)
        began = time.perf_counter()
        always = scope["path"] in ALWAYS
        self._service.in_work += 1
        try:
            self._check(scope, always)
            body = b"" if scope["method"] in ("GET", "HEAD") else await self._body(scope, receive)
            await self._app(scope, _replay(body, receive), answer)
        except RequestProblem as problem:
            await answer.problem(problem.status, problem.detail)
        except Exception as error:
            # The traceback of an error may quote a text: the log has its kind and place alone.
            log.error("%s %s failed: %s", scope["method"], _route(scope), _where(error))
            await answer.problem(500, "the server failed at this request; its log says where")
        finally:
            self._service.in_work -= 1
            seconds = time.perf_counter() - began
            self._service.monitoring.request(scope["method"], _route(scope), answer.status, seconds)
            if self._service.configuration.log_requests:
                log.info("%s %s %d %.0f ms", scope["method"], _route(scope), answer.status, 1000 * seconds)

    def _check(self, scope: Scope, always: bool) -> None:
        """Refuse what can be refused before the body is read."""
        if self._key is not None and f"{scope['path']}/".startswith(SECRET) and not self._has_key(scope):
            raise RequestProblem(401, "give the server's key: Authorization: Bearer KEY, or X-API-Key: KEY")
        if not always and self._service.in_work > self._service.configuration.max_requests:
            raise RequestProblem(429, f"{self._service.in_work - 1} requests are in work: ask again in a moment")
        if _header(scope, b"content-encoding").lower() not in (b"", b"identity"):
            raise RequestProblem(415, "the body is packed: send it as it is")

    def _has_key(self, scope: Scope) -> bool:
        scheme, _, bearer = _header(scope, b"authorization").partition(b" ")
        given = bearer.strip() if scheme.lower() == b"bearer" else _header(scope, b"x-api-key")
        return hmac.compare_digest(given, self._key or b"")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the body, up to the bound and within its time."""
        try:
            return await asyncio.wait_for(self._read(scope, receive), self._service.configuration.body_seconds)
        except TimeoutError:
            raise RequestProblem(408, "the body did not arrive in time") from None

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        most = self._service.configuration.max_body
        parts: list[bytes] = []
        size = 0
        announced = _header(scope, b"content-length")
        too_long = announced.isdigit() and (len(announced) > 15 or int(announced) > most)
        more = not (too_long and len(announced) > 15)
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestProblem(408, "the body did not arrive in full")
            size += len(message.get("body", b""))
            more = message.get("more_body", False) and size <= DRAINED * most
            too_long = too_long or size > most
            if too_long:
                parts.clear()
            else:
                parts.append(message.get("body", b""))
        if too_long:
            raise RequestProblem(413, f"the body is larger than {most:,} bytes (max_body): send fewer texts at once")
        return b"".join(parts)


class _Answer:
    """Sends on what the app sends, with the security headers, and remembers the status."""

    def __init__(self, send: Send):
        self._send = send
        self.status = 499  # what logs write of a client that left before the answer

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", [])}
            added = [(n.encode(), v.encode()) for n, v in SECURITY.items() if n.encode() not in present]
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await self._send(message)

    async def problem(self, status: int, detail: str) -> None:
        """Send a problem, unless an answer has begun already."""
        if self.status != 499:
            return
        body = problem_body(status, detail)
        headers = {"content-type": PROBLEM_JSON, "content-length": str(len(body)), **problem_headers(status)}
        if status in (408, 413):  # what is left of the body must not be taken for the next request
            headers["connection"] = "close"
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": status, "headers": pairs})
        await self({"type": "http.response.body", "body": body})


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body that was read, then what comes after it: the client's leaving."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key.lower() == name), b"")


def _route(scope: Scope) -> str:
    """Return the route's pattern: a path itself may hold a label, and any number of them exist."""
    route = scope.get("route")
    return str(getattr(route, "path_format", None) or getattr(route, "path", "unknown"))


def _where(error: BaseException) -> str:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}"
    return f"{type(error).__name__}{where}"
