"""The pages of the gateway: a chat at ``/``, and ``/docs``, where the operations of ``/openapi.json`` can be tried.

They are static and ask this gateway alone, as it may stand where no other host is reachable; their requests need keys
as any. Their files are read once; browsers ask again each time, and get 304 while nothing has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.http.routing import DirectRoute

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but these files runs or is shown, and no text can become markup.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class StaticFile:
    """An endpoint that responds with a file."""

    def __init__(self, file: Path) -> None:
        """Read ``file``, whose type its suffix tells."""
        self._content = file.read_bytes()
        etag = f'"{hashlib.sha256(self._content).hexdigest()[:32]}"'
        self._headers = {**_HEADERS, "ETag": etag, "Content-Type": _TYPES[file.suffix]}

    async def __call__(self, request: Request) -> Response:
        """Respond with 304 to a client that has it, else all of it."""
        known = request.headers.get("if-none-match", "").replace("W/", "").split(",")
        if self._headers["ETag"] in (each.strip() for each in known):
            kept = {name: value for name, value in self._headers.items() if name != "Content-Type"}
            return Response(status_code=304, headers=kept)
        return Response(self._content, headers=self._headers)


_CHAT, _DOCS = (Path(__file__).parent / name for name in ("chat", "docs"))
# Links of the page are relative: it works wherever a proxy puts it. Without its slash the path is an empty one.
_PATHS = {"/": _CHAT / "page.html", **{f"/page/{file.name}": file for file in sorted(_CHAT.glob("*.[!h]*"))}}
PAGE_PATHS = frozenset(path.removesuffix("/") for path in _PATHS)
"""The paths that it takes, without a slash at their end."""


def chat_page_router() -> APIRouter:
    """Make the routes of the chat page and its files."""
    router = APIRouter(include_in_schema=False, route_class=DirectRoute)
    for path, file in _PATHS.items():
        router.get(path)(StaticFile(file))
    return router


_SHARED = ("page.css", "parts.js", "request.js", "icon.svg")  # with the chat page, which may be off
_FILES_OF_DOCS = (_DOCS / "docs.css", _DOCS / "docs.js", *(_CHAT / name for name in _SHARED))
_DOCS_FILES = {"/docs": _DOCS / "docs.html", **{f"/docs/{file.name}": file for file in _FILES_OF_DOCS}}
DOCS_PATHS = frozenset({"/openapi.json", *_DOCS_FILES})
"""The paths of the document and of the page that shows it."""


def api_page_router(document: Callable[[], bytes]) -> APIRouter:
    """Make the routes of ``/openapi.json``, ``/docs`` and the files of that page.

    Args:
        document: reads the OpenAPI document.
    """
    router = APIRouter(include_in_schema=False, route_class=DirectRoute)

    @router.get("/openapi.json")
    async def openapi(_request: Request) -> Response:
        """Describe the API."""
        return Response(document(), media_type="application/json")

    for path, file in _DOCS_FILES.items():
        router.get(path)(StaticFile(file))
    return router
