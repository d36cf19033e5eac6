"""Annif's REST interface (/v1), so that its clients work unchanged: the model is the one project."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Form, Query, Response

from laha import __version__
from laha.serve.batching import Pairs
from laha.serve.problems import RequestProblem, answers
from laha.serve.routes import GET, JSON, POST, json_response
from laha.serve.schemas import (
    AnnifBatchResult,
    AnnifDocuments,
    AnnifInfo,
    AnnifLearned,
    AnnifProject,
    AnnifProjects,
    AnnifResults,
    AnnifSubject,
    Text,
)
from laha.serve.service import Service

Limit = Annotated[int, Query(ge=1)]
Threshold = Annotated[float, Query(ge=0, le=1)]


def annif_routes(service: Service) -> APIRouter:
    """Return the routes of a service."""
    router = APIRouter(prefix="/v1")

    @router.get("", include_in_schema=False)
    @router.get("/", response_model=AnnifInfo, responses=answers(401, 429), summary="What answers here")
    async def info() -> Response:
        return json_response({"title": "Annif's REST interface, by laha", "version": __version__})

    @router.get("/projects", response_model=AnnifProjects, responses=GET, summary="List projects: the model")
    async def projects() -> Response:
        return json_response({"projects": [_project(service)]})

    @router.get(
        "/projects/{project_id}", response_model=AnnifProject, responses=GET | answers(404), summary="Describe it"
    )
    async def project(project_id: str) -> Response:
        _check(service, project_id)
        return json_response(_project(service))

    @router.post(
        "/projects/{project_id}/suggest",
        response_model=AnnifResults,
        responses=POST | answers(404),
        summary="Suggest subjects for a text",
    )
    async def suggest(
        project_id: str,
        text: Annotated[Text, Form(min_length=1)],
        limit: Annotated[int, Form(ge=1)] = 10,
        threshold: Annotated[float, Form(ge=0, le=1)] = 0.0,
        language: Annotated[str | None, Form(description="not used: labels have one name")] = None,
    ) -> Response:
        _check(service, project_id)
        (pairs,) = await service.tag([text], limit, threshold)
        return json_response({"results": _results(service, pairs)})

    @router.post(
        "/projects/{project_id}/suggest-batch",
        dependencies=JSON,
        response_model=list[AnnifBatchResult],
        responses=POST | answers(404),
        summary="Suggest subjects for many texts",
    )
    async def suggest_batch(
        project_id: str,
        batch: AnnifDocuments,
        limit: Limit = 10,
        threshold: Threshold = 0.0,
        language: Annotated[str | None, Query(description="not used: labels have one name")] = None,
    ) -> Response:
        _check(service, project_id)
        rows = await service.tag([document.text for document in batch.documents], limit, threshold)
        return json_response(
            [
                {"document_id": document.document_id, "results": _results(service, pairs)}
                for document, pairs in zip(batch.documents, rows, strict=True)
            ]
        )

    @router.post(
        "/projects/{project_id}/learn",
        dependencies=JSON,
        status_code=204,
        response_class=Response,
        responses=POST | answers(404, 409),
        summary="Keep documents with their subjects as feedback, for the next training; unknown subjects are left out",
    )
    async def learn(project_id: str, documents: list[AnnifLearned]) -> Response:
        _check(service, project_id)
        await anyio.to_thread.run_sync(_learn, service, documents)
        return Response(status_code=204)

    return router


def _check(service: Service, project_id: str) -> None:
    if project_id != service.name:
        raise RequestProblem(404, f"there is no project {project_id[:100]!r}, only {service.name!r}")


def _project(service: Service) -> dict[str, Any]:
    model = service.model
    corpus = service.manifest["training"].get("corpus")
    return {
        "project_id": service.name,
        "name": f"{model.model_name} of {corpus}" if corpus else model.model_name,
        "language": service.configuration.language,
        "backend": {"backend_id": model.model_name},
        "is_trained": True,
        "modification_time": service.modified,
    }


def _results(service: Service, pairs: Pairs) -> list[dict[str, Any]]:
    entries = [(service.details.entry(label), score) for label, score in pairs]
    return [
        {"uri": entry["uri"], "label": entry["label"], "notation": None, "score": round(score, 6)}
        for entry, score in entries
    ]


def _learn(service: Service, documents: list[AnnifLearned]) -> None:
    service.check_texts([document.text for document in documents])
    for document in documents:
        service.check_bound("subjects", len(document.subjects), "max_decisions")
    known = [(document.text, _labels(service, document.subjects)) for document in documents]
    _ = service.feedback
    for text, labels in known:
        if labels:
            service.decide(text, [(label, "added") for label in labels], "annif")


def _labels(service: Service, subjects: list[AnnifSubject]) -> list[str]:
    """Return the labels that subjects mean; Annif too leaves out those it does not know."""
    found: dict[str, None] = {}
    for subject in subjects:
        given = [name for name in (subject.uri, subject.label) if name]
        numbers = [number for number in map(service.details.find, given) if number is not None]
        if numbers:
            found[service.details.labels[numbers[0]].name] = None
        elif given and service.configuration.new_labels:
            found[subject.label or given[0]] = None
    return list(found)
