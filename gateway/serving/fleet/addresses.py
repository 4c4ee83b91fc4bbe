"""Finds the endpoints of a model: addresses, names to look up, and files with lists of addresses."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

MOST_ENDPOINTS: Final = 64
"""Of one model. A name that has more addresses is cut, and the log says so."""

DNS: Final = "dns:///"
FILE: Final = "file://"


def split(address: str) -> tuple[str, int]:
    """Split ``host:port`` into host and port, without the brackets of an IPv6 address.

    Raises:
        ValueError: the text is not ``host:port``.
    """
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError(f"{address!r} must be host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Addresses:
    """Looks up the entries of a fleet: ``host:port``, ``dns:///host:port`` or ``file:///path``.

    A file has one address on each line, and comments after ``#``.

    Args:
        entries: at least one.
        changed: called with all addresses, in the order of the entries and without duplicates, after each change.
    """

    def __init__(self, entries: Sequence[str], changed: Callable[[Sequence[str]], None]) -> None:
        self._entries = entries
        self._changed = changed
        self._found: dict[str, list[str]] = {}
        self._reported: list[str] | None = None
        self._complaints: dict[str, str] = {}

    @property
    def fixed(self) -> bool:
        """Whether no entry needs a look-up."""
        return not any(entry.startswith((DNS, FILE)) for entry in self._entries)

    @property
    def complaints(self) -> Mapping[str, str]:
        """The faults of entries without current addresses, by entry."""
        return self._complaints

    async def look(self) -> None:
        """Look up all entries, and report changed addresses."""
        found = await asyncio.gather(*(self._look_up(entry) for entry in self._entries))
        addresses = list(dict.fromkeys(address for each in found for address in each))
        if len(addresses) > MOST_ENDPOINTS:
            self._complain("", f"{len(addresses)} addresses were found; only the first {MOST_ENDPOINTS} are used")
        else:
            self._complaints.pop("", None)
        addresses = addresses[:MOST_ENDPOINTS]
        if addresses != self._reported:
            self._reported = addresses
            self._changed(addresses)

    async def _look_up(self, entry: str) -> list[str]:
        try:
            if entry.startswith(DNS):
                found = await _by_name(entry.removeprefix(DNS))
            elif entry.startswith(FILE):
                found = await asyncio.to_thread(_by_file, Path(entry.removeprefix(FILE)))
            else:
                found = [entry]
        except (OSError, ValueError) as error:
            self._complain(entry, f"{error}; the previous addresses stay in use")
            return self._found.get(entry, [])
        self._complaints.pop(entry, None)
        self._found[entry] = found
        return found

    def _complain(self, entry: str, problem: str) -> None:
        if self._complaints.get(entry) != problem:
            self._complaints[entry] = problem
            _log.warning(
                "endpoints%s: %s", f" of {entry}" if entry else "", problem, extra={"event": "endpoints_doubtful"}
            )


async def _by_name(name: str) -> list[str]:
    host, port = split(name)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise OSError("the name has no address")
    hosts = sorted({str(each[4][0]) for each in found})
    return [f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in hosts]


def _by_file(path: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    addresses = [line for line in lines if line]
    for address in addresses:
        split(address)
    if not addresses:
        raise ValueError("the file has no address")
    return addresses
