"""The page's files, which come with the package: nothing is built, nothing is fetched from elsewhere."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import APIRouter, Request, Response

TYPES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "app.js": "text/javascript; charset=utf-8",
    "state.js": "text/javascript; charset=utf-8",
    "text.js": "text/javascript; charset=utf-8",
    "labels.js": "text/javascript; charset=utf-8",
    "files.js": "text/javascript; charset=utf-8",
    "card.js": "text/javascript; charset=utf-8",
}


def page_routes() -> APIRouter:
    """Return a route for each file; `/` is the page."""
    router = APIRouter(include_in_schema=False)
    for name, type in TYPES.items():
        _add(router, "/" if name == "index.html" else f"/page/{name}", name, type)
    return router


def _add(router: APIRouter, path: str, name: str, type: str) -> None:
    content = (files("laha.serve") / "page" / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    @router.get(path)
    async def file(request: Request) -> Response:
        headers = {"cache-control": "no-cache", "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=type, headers=headers)
