"""Files of the gateway's pages: read once; browsers ask again each time, and get 304 while nothing has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

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
    """An endpoint that answers with a file."""

    def __init__(self, file: Path) -> None:
        """Read ``file``, whose type its suffix tells."""
        self._content = file.read_bytes()
        etag = f'"{hashlib.sha256(self._content).hexdigest()[:32]}"'
        self._headers = {**_HEADERS, "ETag": etag, "Content-Type": _TYPES[file.suffix]}

    async def __call__(self, request: Request) -> Response:
        """Answer 304 to a client that has it, else all of it."""
        known = request.headers.get("if-none-match", "").replace("W/", "").split(",")
        if self._headers["ETag"] in (each.strip() for each in known):
            kept = {name: value for name, value in self._headers.items() if name != "Content-Type"}
            return Response(status_code=304, headers=kept)
        return Response(self._content, headers=self._headers)
