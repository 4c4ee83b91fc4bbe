"""Middleware that may reject a request: by host name, key, limits of the caller, or size of the body."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.access.caller import Caller, caller, enter
from gateway.http.access.identity import KEY_HEADERS, AuthFailure, Identity
from gateway.http.access.key_ring import Key
from gateway.http.access.limits import LimitedError, RemainingLimits
from gateway.http.access.permit import Permit, grant
from gateway.http.access_log import record_of
from gateway.http.routing import HEADERS, header, headers_of

# Docker Desktop leads containers to the loopback address of their host by this name.
_OWN_NAMES = ("localhost", "127.0.0.1", "*.localhost", "host.docker.internal")


class AllowedHostsMiddleware:
    """Rejects a request whose host is a name that is not allowed; addresses and a missing host pass.

    A page of a foreign site can have its own name point to the loopback address once it is loaded (DNS rebinding). The
    browser then takes a gateway that listens there for a part of that site, and lets the page ask and read. The name
    that the request gives tells. Addresses tell nothing wrong: no name server can make one point elsewhere.
    """

    def __init__(self, app: ASGIApp, *, names: Sequence[str], reject: Callable[[str], ASGIApp]) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            names: allowed ones; ``*.name`` stands for all below one.
            reject: makes the response to another name from one sentence.
        """
        self._app = app
        lower = [name.lower() for name in names]
        self._names = frozenset(lower)
        self._endings = tuple(name[1:] for name in lower if name.startswith("*."))
        self._reject = reject

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] == "http":
            name = _without_port((scope.get(HEADERS) or headers_of(scope)).get(b"host", b"").decode("latin-1"))
            known = not name or name in self._names or name.endswith(self._endings)
            if not known and not _is_address(name):
                answer = self._reject(
                    f"This gateway does not serve the host name {name[:100]!r}. The operator can add it to "
                    "server.allowed_hosts (GATEWAY_ALLOWED_HOSTS)."
                )
                return answer(scope, receive, send)
        return self._app(scope, receive, send)


def names_to_check(host: str, configured: Sequence[str], *, has_keys: bool) -> tuple[str, ...]:
    """The host names that a gateway accepts; empty where it accepts every name.

    Args:
        host: address that the gateway listens on.
        configured: further names of the settings.
        has_keys: whether clients need a key, which a foreign page does not have.
    """
    if "*" in configured or (not configured and (has_keys or not is_loopback(host))):
        return ()
    return (*_OWN_NAMES, host, socket.gethostname(), *configured)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a host; an empty one means every interface."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, UnicodeError):  # no server can listen there; the attempt reports it
        return False
    return bool(found) and all(ipaddress.ip_address(str(each[4][0]).partition("%")[0]).is_loopback for each in found)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class AuthMiddleware:
    """Rejects requests without a valid key or token, except on open paths."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        identity: Identity,
        reject: Callable[[str], ASGIApp],
        open_paths: frozenset[str],
        half_open_paths: frozenset[str] = frozenset(),
    ) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            identity: knows whose keys and tokens there are.
            reject: makes the response to a request without a valid key from one sentence.
            open_paths: that need none.
            half_open_paths: that need no key, and show more with a key.
        """
        self._app = app
        self._identity = identity
        self._reject = reject
        self._open_paths = open_paths
        self._half_open_paths = half_open_paths

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"].removesuffix("/") in self._open_paths:
            return self._app(scope, receive, send)
        keys = _sent_keys(scope)
        if not keys and scope["path"].removesuffix("/") in self._half_open_paths:
            return self._app(scope, receive, send)
        found = self._identity.look(keys)
        if found is None:
            return self._check(keys, scope, receive, send)
        return self._serve(found, scope, receive, send)

    async def _check(self, keys: list[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(await self._identity.check(keys), scope, receive, send)

    def _serve(self, result: Key | AuthFailure, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        record = record_of(scope)
        if isinstance(result, AuthFailure):
            record.key = result.name or None
            return self._reject(result.message)(scope, receive, send)
        record.key = result.caller.name or None
        scope.setdefault("state", {})["owner"] = result.owner
        enter(result.caller)
        return self._app(scope, receive, send)


def owner_of(scope: MutableMapping[str, Any]) -> str:
    """Return the owner of a request's stored data as 64 hexadecimal digits; empty without keys.

    The owner is the SHA-256 of a key without a name, or a digest of another caller's name.
    """
    owner: bytes = scope.get("state", {}).get("owner", b"")
    return owner.hex()


def _sent_keys(scope: Scope) -> list[bytes]:
    """The keys of a request, of which some clients send several; an empty one where its scheme is not known."""
    keys = []
    if given := header(scope, b"authorization"):
        scheme, _, key = given.strip().partition(b" ")
        keys.append(key.strip() if scheme.lower() == b"bearer" else b"")
    others = (header(scope, name) for name in KEY_HEADERS)
    return keys + [given.strip() for given in others if given]


class RateLimitMiddleware:
    """Applies the limits of a caller to its POST requests, and adds the headers of what is left."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        permit: Callable[[Caller], Permit | None],
        reject: Callable[[LimitedError], ASGIApp],
    ) -> None:
        """Wrap ``app``.

        Args:
            app: the application inside.
            permit: makes the permit of a caller's request; None where none is needed.
            reject: makes the response to a request that a limit does not allow.
        """
        self._app = app
        self._permit = permit
        self._reject = reject

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        permit = self._permit(caller()) if scope["type"] == "http" and scope["method"] == "POST" else None
        if permit is None:
            return self._app(scope, receive, send)
        return self._serve(permit, scope, receive, send)

    async def _serve(self, permit: Permit, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await permit.admit()
        except LimitedError as error:
            record_of(scope).error = "rate_limit_exceeded"
            await self._reject(error)(scope, receive, send)
            return
        grant(permit)
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                permit.release()

        def watched_send(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                _add(message, permit.standing)
            elif not message.get("more_body", False):
                end()  # before the last byte: a client that has the whole response may send its next request
            return send(message)

        try:
            await self._app(scope, receive, watched_send)
        finally:
            end()


def _add(message: Message, standing: RemainingLimits) -> None:
    """Add the headers of where a caller stands, also over those that the error of a limit has."""
    if message["status"] < 400:
        message["headers"] = [*message["headers"], *standing.raw_headers()]
        return
    headers = MutableHeaders(scope=message)
    for name, value in standing.headers():
        headers[name] = value


class _TooLargeError(Exception):
    """A streamed body went over the limit."""


class BodyLimitMiddleware:
    """Rejects bodies over the limit, by their Content-Length or once too many bytes have come."""

    def __init__(self, app: ASGIApp, *, limit: int, reject: Callable[[str], ASGIApp]) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            limit: largest body in bytes.
            reject: makes the 413 response from one sentence.
        """
        self._app = app
        self._limit = limit
        size = f"{limit / 2**20:g} MiB" if limit >= 2**20 else f"{limit} bytes"
        self._answer = reject(f"The request body is larger than the limit of {size}.")

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        declared = (scope.get(HEADERS) or headers_of(scope)).get(b"content-length")
        if not declared:
            return self._watch(scope, receive, send)
        # The server has checked that it is a number, and ends the body there; one with more digits than any real body
        # counts as too large.
        too_large = len(declared) > 18 or int(declared) > self._limit
        return (self._answer if too_large else self._app)(scope, receive, send)

    async def _watch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body has no declared length."""
        received = 0
        started = False

        async def limited_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise _TooLargeError
            return message

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, limited_receive, watched_send)
        except _TooLargeError:
            if started:
                raise
            await self._answer(scope, receive, send)
