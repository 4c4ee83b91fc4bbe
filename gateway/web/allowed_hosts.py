"""Names by which a gateway may be called.

A page of a foreign site can have its own name point to the loopback address once it is loaded (DNS rebinding). The
browser then takes a gateway that listens there for a part of that site, and lets the page ask and read. The name that
the request gives tells. Addresses tell nothing wrong: no name server can make one point elsewhere.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.web.routing import header

# Docker Desktop leads containers to the loopback address of their host by this name.
_OWN_NAMES = ("localhost", "127.0.0.1", "*.localhost", "host.docker.internal")


class AllowedHostsMiddleware:
    """Passes requests whose host is an address, one of the names, or missing (HTTP/1.0)."""

    def __init__(self, app: ASGIApp, *, names: Sequence[str], refuse: Callable[[str], ASGIApp]) -> None:
        """Guard ``app``.

        Args:
            app: the application inside.
            names: allowed ones; ``*.name`` stands for all below one.
            refuse: makes the answer to another name from one sentence.
        """
        self._app = app
        lower = [name.lower() for name in names]
        self._names = frozenset(lower)
        self._endings = tuple(name[1:] for name in lower if name.startswith("*."))
        self._refuse = refuse

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection."""
        if scope["type"] == "http":
            name = _without_port(header(scope, b"host").decode("latin-1"))
            if not self._allows(name):
                answer = self._refuse(
                    f"This gateway does not answer to the host name {name[:100]!r}. Its operator may add it to the "
                    "setting server.allowed_hosts (GATEWAY_ALLOWED_HOSTS)."
                )
                return answer(scope, receive, send)
        return self._app(scope, receive, send)

    def _allows(self, name: str) -> bool:
        return not name or name in self._names or name.endswith(self._endings) or _is_address(name)


def names_to_check(host: str, given: Sequence[str], *, has_keys: bool) -> tuple[str, ...]:
    """The names that a gateway answers to; none where it answers to every name.

    Args:
        host: that it listens on.
        given: further names, as the settings have them.
        has_keys: whether clients must have a key. A foreign page has none.
    """
    if "*" in given or (not given and (has_keys or not is_loopback(host))):
        return ()
    return (*_OWN_NAMES, host, socket.gethostname(), *given)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on a host; an empty one is every interface."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
    except (OSError, UnicodeError):  # nothing can listen there, which is said where it is tried
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
