"""The REST interface: /api, and the server's state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import unquote

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from laha.serve.problems import RequestProblem, answers
from laha.serve.schemas import (
    ExplainAnswer,
    ExplainRequest,
    FeedbackAnswer,
    FeedbackRequest,
    LabelAnswer,
    LabelsAnswer,
    ModelAnswer,
    StateAnswer,
    TagAnswer,
    TagRequest,
)
from laha.serve.service import Service

GET = answers(401, 422, 429, 503)
POST = answers(401, 408, 413, 415, 422, 429, 503)
Who = Annotated[str | None, Header(alias="X-User", description="who decides, percent-encoded; kept with the decisions")]


def json_body(request: Request) -> None:
    """Refuse a body that does not say it is JSON: a form of another site could send any other kind."""
    type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if type != "application/json":
        raise RequestProblem(415, "send JSON, with the header Content-Type: application/json")


JSON = [Depends(json_body)]


def json_response(content: Any) -> Response:
    """Answer with JSON in ASCII, which can spell every string; FastAPI's own checks every value again."""
    return Response(json.dumps(content, allow_nan=False, separators=(",", ":")), media_type="application/json")


def api_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter()

    @router.post(
        "/api/tag", dependencies=JSON, response_model=TagAnswer, responses=POST, summary="Tag one text or many"
    )
    async def tag(request: TagRequest) -> Response:
        texts = [request.text] if isinstance(request.text, str) else request.text
        rows = await service.tag(texts, request.top, request.min_score, request.min_precision, request.exclude)
        return json_response(
            {"documents": [service.document(text, pairs) for text, pairs in zip(texts, rows, strict=True)]}
        )

    @router.post(
        "/api/explain",
        dependencies=JSON,
        response_model=ExplainAnswer,
        responses=POST | answers(404, 409),
        summary="Show the words behind the labels of a text",
    )
    async def explain(request: ExplainRequest) -> Response:
        return json_response(await service.explain(request.text, request.labels, request.top))

    @router.get("/api/labels", response_model=LabelsAnswer, responses=GET, summary="Find labels by a part of a name")
    async def labels(
        q: Annotated[str, Query(max_length=200, description="without, the most frequent labels")] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 10,
    ) -> Response:
        details = service.details
        return json_response({"labels": [details.entry(number) for number in details.search.find(q, limit)]})

    @router.get(
        "/api/labels/{label:path}",
        response_model=LabelAnswer,
        responses=GET | answers(404),
        summary="Describe a label, given by name, identifier or label:NAME",
    )
    async def label(label: Annotated[str, Path(min_length=1)]) -> Response:
        number = service.known(label)
        # On a thread: a million vectors take a moment, in which others can be answered.
        return json_response(await anyio.to_thread.run_sync(service.details.describe, number))

    @router.get("/api/model", response_model=ModelAnswer, responses=GET, summary="The model card")
    async def model() -> Response:
        return json_response(await anyio.to_thread.run_sync(service.card))

    @router.post(
        "/api/feedback",
        dependencies=JSON,
        response_model=FeedbackAnswer,
        responses=POST | answers(404, 409),
        summary="Keep decisions on the labels of a text; answered once they are on disk",
    )
    async def decide(request: FeedbackRequest, who: Who = None) -> Response:
        decisions: list[tuple[str, str]] = [(entry.label, entry.decision) for entry in request.decisions]
        kept = await anyio.to_thread.run_sync(service.decide, request.text, decisions, who and unquote(who))
        return json_response({"sha256": kept[0], "decisions": kept[1]})

    @router.get(
        "/api/feedback/export",
        response_class=StreamingResponse,
        responses=GET
        | answers(409)
        | {200: {"description": "a JSON object a line", "content": {"application/x-ndjson": {}}}},
        summary="Every decision that was ever made, a JSON object a line",
    )
    async def export() -> Response:
        rows = service.feedback.rows()
        return StreamingResponse(_lines(rows), media_type="application/x-ndjson")

    @router.get(
        "/api/feedback/{sha256}",
        response_model=FeedbackAnswer,
        responses=GET | answers(409),
        summary="The decisions that stand on a text, given by its hash",
    )
    async def decided(sha256: Annotated[str, Path(pattern="^[0-9a-f]{64}$")]) -> Response:
        standing = await anyio.to_thread.run_sync(service.feedback.standing, sha256)
        return json_response({"sha256": sha256, "decisions": standing})

    return router


def state_routes(service: Service) -> APIRouter:
    """Return the routes by which those who run the server watch it."""
    router = APIRouter()

    @router.get("/health", response_model=StateAnswer, summary="Whether the process answers")
    async def health() -> Response:
        return json_response({"status": "ok"})

    @router.get("/ready", response_model=StateAnswer, responses=answers(503), summary="Whether the model can answer")
    async def ready() -> Response:
        if not service.ready:
            raise RequestProblem(503, "the model is being loaded")
        return json_response({"status": "ready"})

    @router.get(
        "/metrics",
        response_class=Response,
        responses=answers(401) | {200: {"description": "Prometheus' text format", "content": {"text/plain": {}}}},
        summary="Figures for Prometheus",
    )
    async def metrics() -> Response:
        return Response(service.monitoring.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(row) + "\n"
