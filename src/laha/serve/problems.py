"""Problems: errors that a client is told of, as JSON by RFC 9457, never as a traceback."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel

PROBLEM_JSON = "application/problem+json"


class Problem(BaseModel):
    """What went wrong, and what to do."""

    title: str
    status: int
    detail: str


class RequestProblem(Exception):
    """A request that gets an error for its answer."""

    def __init__(self, status: int, detail: str):
        super().__init__(detail)
        self.status, self.detail = status, detail


def problem_body(status: int, detail: str) -> bytes:
    """Write a problem; what UTF-8 cannot spell is escaped, as JSON allows.

    >>> problem_body(429, "come back later")
    b'{"title": "Too Many Requests", "status": 429, "detail": "come back later"}'
    """
    return json.dumps({"title": HTTPStatus(status).phrase, "status": status, "detail": detail}).encode()


def problem_headers(status: int) -> dict[str, str]:
    """Return the headers that go with a status."""
    if status in (429, 503):
        return {"retry-after": "1"}
    return {"www-authenticate": "Bearer"} if status == 401 else {}


REASONS = {
    401: "the server wants its API key",
    404: "there is no such thing",
    408: "the body did not arrive in time",
    409: "this model cannot do that",
    413: "the body is larger than the server takes",
    415: "a packed body, or one that is not JSON",
    422: "the request is not as described, or over a bound",
    429: "more requests or texts than the server takes at once",
    503: "the model is being loaded, or the server stops",
}


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe, for the OpenAPI document, the problems that a route answers with."""
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": REASONS[status], "content": content} for status in statuses}
