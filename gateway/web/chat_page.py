"""The page at ``/``: a chat in the browser. It is static and asks this gateway alone; its requests need keys as any."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter

from gateway.web.routing import DirectRoute
from gateway.web.static_file import StaticFile

_FOLDER = Path(__file__).with_name("page")
_FILES = ("page.css", "page.js", "parts.js", "request.js", "icon.svg")
# Links of the page are relative: it works wherever a proxy puts it. Without its slash the path is an empty one.
_PATHS = {"/": "page.html", **{f"/page/{name}": name for name in _FILES}}
PAGE_PATHS = frozenset(path.removesuffix("/") for path in _PATHS)
"""The paths that it takes, without a slash at their end."""


def chat_page_router() -> APIRouter:
    """Make the routes of the page and of its files."""
    router = APIRouter(include_in_schema=False, route_class=DirectRoute)
    for path, name in _PATHS.items():
        router.get(path)(StaticFile(_FOLDER / name))
    return router
