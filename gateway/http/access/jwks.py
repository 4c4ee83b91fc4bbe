"""The public keys of an identity provider (JWKS, RFC 7517); known keys stay while it is unreachable."""

from __future__ import annotations

import asyncio
import http.client
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anyio.to_thread
import jwt
import orjson

_log = logging.getLogger(__name__)
_MOST_BYTES: Final = 1 << 20
_MOST_KEYS: Final = 256
_TIMEOUT_S: Final = 5.0
_AT_ONCE: Final = 1 << 16
_ASYMMETRIC: Final = frozenset({"RSA", "EC", "OKP"})
AGAIN_S: Final = 10.0
"""Seconds between two look-ups of unknown keys, so that callers cannot make the gateway query the provider at will."""


class JwksSource:
    """The public keys of an identity provider, by their ids.

    Args:
        url: the provider's URL of the keys; None: ``file`` has them.
        file: a file with the keys.
        refresh_s: seconds between two readings of the keys.
        again_s: least seconds between two readings because of an unknown key.

    Attributes:
        keys: keys by ``kid``; a key without an id is under None.
        generation: changes when the keys do.
    """

    def __init__(self, url: str | None, file: Path | None, refresh_s: float, again_s: float = AGAIN_S) -> None:
        self.keys: Mapping[str | None, jwt.PyJWK] = MappingProxyType({})
        self.generation = 0
        self._url = url
        self._file = file
        self._refresh_s = refresh_s
        self._again_s = again_s
        self._looked = -float("inf")
        self._looking: asyncio.Task[None] | None = None
        self._text = b""
        self._unreachable = False

    async def find(self, kid: str | None) -> jwt.PyJWK | None:
        """Find a key by its id, also one that the provider has added meanwhile; None without one."""
        now = time.monotonic()
        known = kid in self.keys or (kid is None and len(self.keys) == 1)
        if now - self._looked >= (self._refresh_s if known else self._again_s):
            look = self._look()
            if not known:  # known keys go on while they are looked at
                await asyncio.shield(look)
        elif self._looking is not None and not known:
            await asyncio.shield(self._looking)
        if kid is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        return self.keys.get(kid)

    async def look(self) -> None:
        """Read the keys now; known keys stay where that fails."""
        await asyncio.shield(self._look())

    def _look(self) -> asyncio.Task[None]:
        if self._looking is None:
            self._looked = time.monotonic()
            self._looking = asyncio.create_task(self._read())
            self._looking.add_done_callback(self._end_look)
        return self._looking

    def _end_look(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled() and task.exception() is not None:
            _log.error(
                "the keys of the identity provider could not be read",
                exc_info=task.exception(),
                extra={"event": "identity_keys_unread"},
            )

    async def _read(self) -> None:
        try:
            text = await anyio.to_thread.run_sync(self._fetch, abandon_on_cancel=True)
            keys = self.keys if text == self._text else parse_keys(text)
        except (OSError, ValueError) as error:
            if not self._unreachable:
                _log.error(
                    "the keys of the identity provider cannot be read, the previous keys stay in use: %s",
                    error,
                    extra={"event": "identity_keys_unread"},
                )
            self._unreachable = True
            return
        if self._unreachable:
            _log.warning("the keys of the identity provider can be read again", extra={"event": "identity_keys_read"})
        self._unreachable = False
        if text != self._text:
            self._text, self.keys = text, keys
            self.generation += 1

    def _fetch(self) -> bytes:
        if self._file is not None:
            with self._file.open("rb") as file:
                return _whole(file.read(_MOST_BYTES + 1))
        try:
            with _OPENER.open(self._url or "", timeout=_TIMEOUT_S) as response:
                return _read_in_time(response)
        except urllib.error.HTTPError as error:
            error.close()
            raise OSError(str(error)) from None


def _read_in_time(response: http.client.HTTPResponse) -> bytes:
    """All of a response: one that sends a byte a second must end, too."""
    end = time.monotonic() + _TIMEOUT_S
    found = b""
    while part := response.read1(_AT_ONCE):
        found = _whole(found + part)
        if time.monotonic() > end:
            raise TimeoutError(f"it did not send its keys within {_TIMEOUT_S:g} seconds")
    return found


def _whole(text: bytes) -> bytes:
    if len(text) > _MOST_BYTES:
        raise ValueError(f"the keys are larger than {_MOST_BYTES} bytes")
    return text


class _NoFiles(urllib.request.HTTPRedirectHandler):
    """Follows redirects to web addresses with the same protection only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """Follow a redirect.

        Raises:
            OSError: the redirect changes the scheme.
        """
        if newurl.partition(":")[0] != req.full_url.partition(":")[0]:
            fp.close()
            raise OSError("it redirects to an address with another scheme")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_NoFiles())


def parse_keys(text: bytes) -> dict[str | None, jwt.PyJWK]:
    """Read the keys that check signatures from a JWKS document; others, such as secrets, are left out.

    Raises:
        ValueError: the document is not a JWKS, or has too many keys.
    """
    found = orjson.loads(text)
    entries = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise ValueError("the keys must be a JSON object with a list 'keys' of at most 256 items")
    keys: dict[str | None, jwt.PyJWK] = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("kty") not in _ASYMMETRIC or entry.get("use", "sig") != "sig":
            continue
        kid = entry.get("kid")
        try:
            keys[kid if isinstance(kid, str) else None] = jwt.PyJWK(entry)
        except jwt.PyJWTError as error:
            _log.warning(
                "a key of the identity provider is ignored: %s", error, extra={"event": "identity_key_left_out"}
            )
    return keys
