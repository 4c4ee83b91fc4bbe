"""API keys and tokens: ``Authorization: Bearer KEY`` or ``x-api-key: KEY``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.caller import enter
from gateway.access.identity import Identity, Refused
from gateway.access.key_ring import Key
from gateway.web.access_log import record_of
from gateway.web.api_page import DOCS_PATHS
from gateway.web.routing import header

# Asked without a key by load balancers, Prometheus and readers of the documentation. None of them shows prompts.
OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/version"}) | DOCS_PATHS


class AuthMiddleware:
    """Passes requests that carry a key or a token, or ask for an open path (also with a slash behind it)."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        identity: Identity,
        refuse: Callable[[str], ASGIApp],
        open_paths: frozenset[str] = OPEN_PATHS,
        half_open_paths: frozenset[str] = frozenset(),
    ) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            identity: knows whose keys and tokens there are.
            refuse: makes the answer to a request without a valid key from one sentence.
            open_paths: that need none.
            half_open_paths: that need none, and show more to whoever has one.
        """
        self._app = app
        self._identity = identity
        self._refuse = refuse
        self._open_paths = open_paths
        self._half_open_paths = half_open_paths

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"].removesuffix("/") in self._open_paths:
            return self._app(scope, receive, send)
        given = _given(scope)
        if not given and scope["path"].removesuffix("/") in self._half_open_paths:
            return self._app(scope, receive, send)
        found = self._identity.look(given)
        if found is None:
            return self._check(given, scope, receive, send)
        return self._serve(found, scope, receive, send)

    async def _check(self, given: list[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(await self._identity.check(given), scope, receive, send)

    def _serve(self, found: Key | Refused, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        record = record_of(scope)
        if isinstance(found, Refused):
            record.key = found.name or None
            return self._refuse(found.message)(scope, receive, send)
        record.key = found.caller.name or None
        scope.setdefault("state", {})["owner"] = found.owner
        enter(found.caller)
        return self._app(scope, receive, send)


def owner_of(scope: MutableMapping[str, Any]) -> str:
    """Whose request this is, as 64 hexadecimal digits; empty where there are no keys.

    Of a key without a name it is the key's SHA-256, of other callers one that is made of their name.
    """
    owner: bytes = scope.get("state", {}).get("owner", b"")
    return owner.hex()


def _given(scope: Scope) -> list[bytes]:
    """The keys of a request, of which some clients send two; an empty one where its scheme is not known."""
    keys = []
    if given := header(scope, b"authorization"):
        scheme, _, key = given.strip().partition(b" ")
        keys.append(key.strip() if scheme.lower() == b"bearer" else b"")
    if given := header(scope, b"x-api-key"):
        keys.append(given.strip())
    return keys
