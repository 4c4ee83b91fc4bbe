"""Known bytes of an engine's responses: a response that differs only in its token is not parsed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from gateway.generation.relay.interface import Take

ReadToken = Callable[[bytes], bytes | None]
"""Reads the bytes of the token id out of a serialized response; None where the response cannot be read."""

_ID = struct.Struct("<i")
_unpack_id = _ID.unpack_from
_EXAMPLES = 4  # the first is not worth learning; answers that still vary after the last are parsed


class ResponseTemplate:
    """The serialized responses of one request, in which only the bytes of the token id change.

    To parse a response costs several times as much as all other work on its token. Equal bytes mean equal fields: a
    response that differs from a parsed one only in the bytes of its id has the same content with another id.

    Args:
        read_token: returns the bytes of a response's token.
        shelf: stores the learned bytes for other requests.
        request_id: id of the request; empty where it is not to be shared.
        before: known bytes before the token id; empty where nothing is known.
        after: known bytes after it.
    """

    __slots__ = ("_after", "_before", "_length", "_read_token", "_request_id", "_seen", "_shelf", "_start")

    def __init__(
        self,
        read_token: ReadToken,
        shelf: TemplateCache | None = None,
        request_id: bytes = b"",
        before: bytes = b"",
        after: bytes = b"",
    ) -> None:
        self._read_token = read_token
        self._shelf = shelf
        self._request_id = request_id
        self._seen = 0
        self._know(before, after)

    def tap(self, take: Take) -> Callable[[Sequence[bytes]], int]:
        """Make a function that passes the token ids of serialized responses to ``take``.

        It stops at the first response that does not match the template, and returns how many responses were taken.
        """

        def tap(messages: Sequence[bytes]) -> int:
            length, start, before, after = self._length, self._start, self._before, self._after
            if len(messages) == 1:  # as mostly
                message = messages[0]
                if len(message) == length and message.startswith(before) and message.endswith(after):
                    return take(_unpack_id(message, start))
                return 0
            tokens = []
            for message in messages:
                if len(message) != length or not message.startswith(before) or not message.endswith(after):
                    break
                tokens.append(_unpack_id(message, start)[0])
            return take(tokens) if tokens else 0

        return tap

    def match(self, message: bytes) -> int | None:
        """The id in a serialized response that matches the template, else None."""
        if len(message) == self._length and message.startswith(self._before) and message.endswith(self._after):
            return _unpack_id(message, self._start)[0]  # type: ignore[no-any-return]
        return None

    def learn(self, message: bytes, raw: bytes) -> None:
        """Learn the template from a response.

        Args:
            message: serialized response, not the final one of its request.
            raw: its first raw output, one int32, its only token.
        """
        self._seen += 1
        if self._seen == 1 or self._seen > _EXAMPLES:
            return
        start = message.find(raw)
        while start >= 0:
            if self._is_token(message, start, raw):
                self._know(message[:start], message[start + len(raw) :])
                if self._shelf is not None:
                    self._shelf.keep(self._before, self._after, self._request_id)
                return
            start = message.find(raw, start + 1)

    def _is_token(self, message: bytes, start: int, raw: bytes) -> bool:
        """Whether the bytes at ``start`` are the token's: whether it changes with them."""
        other = bytes(byte ^ 0xFF for byte in raw)
        return self._read_token(message[:start] + other + message[start + len(raw) :]) == other

    def _know(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after
        self._start = len(before)
        self._length = len(before) + _ID.size + len(after) if before else -1


class TemplateCache:
    """The latest template of a model's requests, with which the next request begins.

    The requests of one model mostly get responses of one form, in which only the request id differs.

    Args:
        read_token: as of ``ResponseTemplate``.
    """

    def __init__(self, read_token: ReadToken) -> None:
        self._read_token = read_token
        self._request_id = self._before = self._after = b""

    def template(self, request_id: str) -> ResponseTemplate:
        """Make the template for a request's start; one for ids of another length has to learn first."""
        own, other = request_id.encode(), self._request_id
        if not other:  # a server that does not repeat it
            return ResponseTemplate(self._read_token, self, own, self._before, self._after)
        before, after = self._before.replace(other, own), self._after.replace(other, own)
        return ResponseTemplate(self._read_token, self, own, before, after)

    def keep(self, before: bytes, after: bytes, request_id: bytes) -> None:
        """Store a template, unless the request's id stands in it more than once."""
        times = before.count(request_id) + after.count(request_id)
        if times <= 1:
            self._request_id, self._before, self._after = request_id if times else b"", before, after
