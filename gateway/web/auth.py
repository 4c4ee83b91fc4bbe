"""API keys: ``Authorization: Bearer KEY`` or ``x-api-key: KEY``, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.web.routing import header

# Asked without a key by load balancers, Prometheus and readers of the documentation. None of them shows prompts.
OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/version", "/docs", "/openapi.json"})


class AuthMiddleware:
    """Passes requests that carry one of the keys, or ask for one of ``OPEN_PATHS`` (also with a slash behind it)."""

    def __init__(self, app: ASGIApp, *, keys: Sequence[str], refuse: Callable[[str], ASGIApp]) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            keys: accepted keys, at least one.
            refuse: makes the answer to a request without a valid key from one sentence.
        """
        self._app = app
        # Digests have one length, so that a comparison takes the same time whatever the key.
        self._digests = tuple(hashlib.sha256(key.encode()).digest() for key in keys)
        self._refuse = refuse

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"].removesuffix("/") in OPEN_PATHS:
            return self._app(scope, receive, send)
        keys = _given(scope)
        digests = [hashlib.sha256(key).digest() for key in keys if key]
        known = next((digest for digest in digests if self._known(digest)), None)
        if known is not None:
            scope.setdefault("state", {})["owner"] = known
            answer = self._app
        elif keys:
            answer = self._refuse("Incorrect API key provided.")
        else:
            answer = self._refuse("You didn't provide an API key: send it in the header 'Authorization: Bearer KEY'.")
        return answer(scope, receive, send)

    def _known(self, digest: bytes) -> bool:
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all of them, always
        return any(matches)


def owner_of(scope: MutableMapping[str, Any]) -> str:
    """Whose request this is: the SHA-256 of its key as hexadecimal digits; empty where there are no keys."""
    digest: bytes = scope.get("state", {}).get("owner", b"")
    return digest.hex()


def _given(scope: Scope) -> list[bytes]:
    """The keys of a request, of which some clients send two; an empty one where its scheme is not known."""
    keys = []
    if given := header(scope, b"authorization"):
        scheme, _, key = given.strip().partition(b" ")
        keys.append(key.strip() if scheme.lower() == b"bearer" else b"")
    if given := header(scope, b"x-api-key"):
        keys.append(given.strip())
    return keys
