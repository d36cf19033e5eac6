"""The app: routes, page and guard in one; every error is a problem in JSON."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from laha import __version__
from laha.serve.annif import annif_routes
from laha.serve.configuration import ServeConfiguration
from laha.serve.guard import Guard
from laha.serve.pages import page_routes
from laha.serve.problems import PROBLEM_JSON, Problem, RequestProblem, problem_body, problem_headers
from laha.serve.routes import api_routes, state_routes
from laha.serve.service import Service


def create_app(service: Service, api_key: str | None = None) -> Guard:
    """Return the ASGI app of a service; the model is loaded elsewhere, the service closed when the app ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="laha",
        version=__version__,
        description="Tags texts from a large label set, and shows the words behind every tag. Errors are problems "
        "(RFC 9457); the server's bounds are in /api/model under `limits`.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages fetch their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in (api_routes(service), annif_routes(service), state_routes(service), page_routes()):
        app.include_router(router)
    for kind, answer in (
        (RequestProblem, _of_problem),
        (RequestValidationError, _of_validation),
        (HTTPException, _of_http),
        (sqlite3.OperationalError, _of_disk),
        (Exception, _of_bug),
    ):
        app.add_exception_handler(kind, answer)
    _describe(app, service.configuration, api_key is not None)
    logging.getLogger("uvicorn.access").disabled = True  # it writes whole addresses, which may hold labels
    return Guard(app, service, api_key)


def _describe(app: FastAPI, bounds: ServeConfiguration, secret: bool) -> None:
    """Complete the OpenAPI document: bounds, problems, and the key where one is needed."""
    document = app.openapi()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which nothing here answers with
        schemas.pop(name, None)
    if secret:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
    for name, limits in _bounds(bounds).items():
        for field, limit in limits.items():
            _bound(schemas[name]["properties"][field], limit)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if path.endswith("/learn"):
                operation["requestBody"]["content"]["application/json"]["schema"]["maxItems"] = bounds.max_texts
            for parameter in operation.get("parameters", ()):
                if path.endswith("/suggest-batch") and parameter["name"] == "limit":
                    parameter["schema"]["maximum"] = bounds.max_top
            if secret and path not in ("/health", "/ready"):
                operation["security"] = [{"bearer": []}, {"header": []}]
            elif not secret:
                operation["responses"].pop("401", None)


def _bounds(bounds: ServeConfiguration) -> dict[str, dict[str, dict[str, int]]]:
    """Return what the settings bound, by schema and field, in JSON Schema's words."""
    text, texts, top = {"maxLength": bounds.max_text}, {"maxItems": bounds.max_texts}, {"maximum": bounds.max_top}
    form = "Body_suggest_v1_projects__project_id__suggest_post"  # FastAPI's name for that form
    return {
        "TagRequest": {
            "text": text | texts,
            "top": top,
            "exclude": {"maxItems": bounds.max_top},
        },
        "ExplainRequest": {
            "text": text,
            "top": {"maximum": 2 * bounds.explained},
            "labels": {"maxItems": 2 * bounds.explained},
        },
        "FeedbackRequest": {"text": text, "decisions": {"maxItems": bounds.max_decisions}},
        "AnnifDocuments": {"documents": texts},
        "AnnifDocument": {"text": text},
        "AnnifLearned": {"text": text, "subjects": {"maxItems": bounds.max_decisions}},
        form: {"text": text | {"minLength": 1}, "limit": top},
    }


def _bound(schema: dict[str, Any], limits: dict[str, int]) -> None:
    """Put limits where their type is, in one of several alternatives too."""
    kinds = {"minLength": "string", "maxLength": "string", "maxItems": "array", "maximum": "integer"}
    for part in (schema, *schema.get("anyOf", ())):
        part.update({name: value for name, value in limits.items() if part.get("type") == kinds[name]})
        if part.get("type") == "array" and "maxLength" in limits and part["items"].get("type") == "string":
            part["items"]["maxLength"] = limits["maxLength"]


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return Response(problem_body(status, detail), status, {**problem_headers(status), **(headers or {})}, PROBLEM_JSON)


async def _of_problem(request: Request, error: Any) -> Response:
    return _problem(error.status, error.detail)


async def _of_validation(request: Request, error: Any) -> Response:
    """Say what is wrong where, and nothing of the value, which may be anything."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return _problem(422, f"{place}: {first['msg']}")


async def _of_http(request: Request, error: Any) -> Response:
    """Answer as Starlette and FastAPI do, but in the one form; a body that cannot be read is a 422 like any other."""
    if error.status_code == 400:
        return _problem(422, f"the body cannot be read: {error.detail}")
    detail = {404: "there is nothing at this address: see /openapi.json", 405: "not with this method"}
    known = detail.get(error.status_code, HTTPStatus(error.status_code).phrase)
    return _problem(error.status_code, known, error.headers)


async def _of_bug(request: Request, error: Any) -> Response:
    return _problem(500, "the server failed at this request; its log says where")


async def _of_disk(request: Request, error: Any) -> Response:
    return _problem(503, "the feedback cannot be written at the moment: nothing was kept, ask again")
