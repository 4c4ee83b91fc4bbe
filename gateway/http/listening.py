"""Listening sockets of one process, or of several that share a port."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections.abc import Iterable
from typing import Any, Final

_log = logging.getLogger(__name__)

BACKLOG: Final = 2048
_OTHER_FILES: Final = 512  # beside connections: to Tritons, files that are read, clients that are rejected
_AT_ONCE: Final = 8


def listen(host: str, port: int, workers: int) -> list[list[socket.socket]]:
    """Open the sockets of all workers: each worker has one for every address of the host.

    Args:
        host: address or name to listen on.
        port: TCP port; 0 takes a free one, the same for all.
        workers: how many.

    Raises:
        OSError: an address cannot be listened on, for example because another process does.
    """
    addresses = _addresses(host, port)
    opened: list[list[socket.socket]] = [[] for _ in range(workers)]
    try:
        for family, address in addresses:
            wanted = (address[0], port or address[1], *address[2:])
            chosen = _free(family, wanted) if workers > 1 else wanted
            for sockets in opened:
                sockets.append(_bound(family, chosen, share=workers > 1))
            port = opened[0][-1].getsockname()[1]
        for sockets in opened:
            for opened_socket in sockets:
                opened_socket.listen(BACKLOG)
    except BaseException:
        for sockets in opened:
            for opened_socket in sockets:
                opened_socket.close()
        raise
    return opened


def with_duplicates(sockets: Iterable[socket.socket]) -> list[socket.socket]:
    """Duplicate listening sockets, so that a server accepts eight connections in a turn of its event loop.

    libuv, uvloop's loop, accepts one for each descriptor (since 1.45). When many clients come together, the turns
    between two of them, with a few tokens each to relay, cost as much as all the rest of their requests, and the last
    one waits for all of them. More than eight would delay the tokens of running streams.
    """
    return [each if number == 0 else each.dup() for each in sockets for number in range(_AT_ONCE)]


def room_for(connections: int) -> int:
    """Raise the limit of open files, and return the number of connections that it allows.

    Args:
        connections: the wanted number.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < wanted:
        connections = max(soft - _OTHER_FILES, soft // 2)
        _log.warning(
            "this process may open %d files and accepts at most %d connections",
            soft,
            connections,
            extra={"event": "connections_limited"},
        )
    return connections


def _addresses(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    """The addresses of a host, without families that this machine does not have; all interfaces for an empty one."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: what cannot be a name
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(f"Cannot listen on {host} port {port} ({reason}).") from None
    addresses: list[tuple[int, tuple[Any, ...]]] = list(dict.fromkeys((each[0], each[4]) for each in found))
    return [each for each in addresses if _exists(each[0])] or addresses


def _exists(family: int) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _free(family: int, address: tuple[Any, ...]) -> tuple[Any, ...]:
    """The address with its port, which must be free: two gateways must not share one by accident."""
    with _bound(family, address, share=False) as probe:
        name: tuple[Any, ...] = probe.getsockname()
        return name


def _bound(family: int, address: tuple[Any, ...], *, share: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if share:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        fix = " Set another port with GATEWAY_PORT or server.port." if error.errno == errno.EADDRINUSE else ""
        raise OSError(f"Cannot listen on {address[0]} port {address[1]} ({error.strerror}).{fix}") from None
    return made
