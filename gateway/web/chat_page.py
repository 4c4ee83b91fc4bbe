"""The page at ``/``: a chat in the browser. It is static and asks this gateway alone; its requests need keys as any.

Its files are read once. Browsers ask for them again each time (``no-cache``), and get 304 while they have not changed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.web.routing import DirectRoute

_FOLDER = Path(__file__).with_name("page")
_TYPES = {
    "page.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "request.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
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
# Links of the page are relative: it works wherever a proxy puts it. Without its slash the path is an empty one.
_PATHS = {"/": "page.html", **{f"/page/{name}": name for name in _TYPES if name != "page.html"}}
PAGE_PATHS = frozenset(path.removesuffix("/") for path in _PATHS)
"""The paths that it takes, without a slash at their end."""


def chat_page_router() -> APIRouter:
    """Make the routes of the page and of its files."""
    router = APIRouter(include_in_schema=False, route_class=DirectRoute)
    for path, name in _PATHS.items():
        router.get(path)(_File(name))
    return router


class _File:
    """Answers with a file of the page."""

    def __init__(self, name: str) -> None:
        """Read the file ``name``."""
        self._content = (_FOLDER / name).read_bytes()
        etag = f'"{hashlib.sha256(self._content).hexdigest()[:32]}"'
        self._headers = {**_HEADERS, "ETag": etag, "Content-Type": _TYPES[name]}

    async def __call__(self, request: Request) -> Response:
        """Answer 304 to who has it, else all of it."""
        known = request.headers.get("if-none-match", "").replace("W/", "").split(",")
        if self._headers["ETag"] in (each.strip() for each in known):
            kept = {name: value for name, value in self._headers.items() if name != "Content-Type"}
            return Response(status_code=304, headers=kept)
        return Response(self._content, headers=self._headers)
