"""The page at ``/docs``: what ``/openapi.json`` describes, with a form that tries each operation.

It is static and asks this gateway alone, as a gateway may stand where no other host is reachable.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
from fastapi import APIRouter
from fastapi.responses import Response

from gateway.web.static_file import StaticFile

_HERE = Path(__file__).parent
_SHARED = ("page.css", "parts.js", "request.js", "icon.svg")  # with the chat page, which may be off
_FILES = {
    "/docs": _HERE / "docs" / "docs.html",
    **{f"/docs/{name}": _HERE / "docs" / name for name in ("docs.css", "docs.js")},
    **{f"/docs/{name}": _HERE / "page" / name for name in _SHARED},
}
DOCS_PATHS = frozenset({"/openapi.json", *_FILES})
"""The paths of the document and of the page that shows it."""


def api_page_router(document: Callable[[], bytes]) -> APIRouter:
    """The routes of ``/openapi.json``, ``/docs`` and the files of that page.

    Args:
        document: makes the OpenAPI document; it may take its time.
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/openapi.json")
    async def openapi() -> Response:
        """Describe the API; making the document for the first time would hold up other requests' tokens."""
        return Response(await anyio.to_thread.run_sync(document), media_type="application/json")

    for path, file in _FILES.items():
        router.get(path)(StaticFile(file))
    return router
