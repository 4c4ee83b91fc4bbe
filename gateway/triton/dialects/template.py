"""Responses that are like one before but for their token: nothing of them needs to be parsed again."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from gateway.generation.engine import Take
from gateway.triton.transport import Tap

_parse = service_pb2.ModelStreamInferResponse.FromString
_ID = struct.Struct("<i")
_unpack_id = _ID.unpack_from
_EXAMPLES = 4  # the first is not worth learning; answers that still vary after the last are parsed


class TokenTemplate:
    """The serialized responses of one request, of which all bytes but those of the token id stay the same.

    Parsing a response and looking through its outputs costs several times as much as all that is done with its token.
    Equal bytes mean equal fields: a response that differs from a parsed one in the bytes of its id alone says the same
    with another id.

    Args:
        shelf: gets what is learned, for other requests.
        request_id: of the request; empty where it is not to be shared.
        before: what is known to come before the token id; empty for nothing.
        after: what comes after it.
    """

    __slots__ = ("_after", "_before", "_length", "_request_id", "_seen", "_shelf", "_start")

    def __init__(
        self, shelf: TemplateShelf | None = None, request_id: bytes = b"", before: bytes = b"", after: bytes = b""
    ) -> None:
        self._shelf = shelf
        self._request_id = request_id
        self._seen = 0
        self._know(before, after)

    def tap(self, take: Take) -> Tap:
        """What gives ``take`` the ids in those responses that are like the learned one, up to the first that is not."""

        def tap(messages: Sequence[bytes]) -> int:
            length, start, before, after = self._length, self._start, self._before, self._after
            tokens = []
            for message in messages:
                if len(message) != length or not message.startswith(before) or not message.endswith(after):
                    break
                tokens.append(_unpack_id(message, start)[0])
            return take(tokens) if tokens else 0

        return tap

    def match(self, message: bytes) -> int | None:
        """The id in a serialized ``ModelStreamInferResponse`` that is like the learned one, else None."""
        if len(message) == self._length and message.startswith(self._before) and message.endswith(self._after):
            return _unpack_id(message, self._start)[0]  # type: ignore[no-any-return]
        return None

    def learn(self, message: bytes, raw: bytes) -> None:
        """Take a response as the example for those to come.

        Args:
            message: serialized, not the final response of its request.
            raw: its first raw output, one int32 and all that the response says of its tokens.
        """
        self._seen += 1
        if self._seen == 1 or self._seen > _EXAMPLES:
            return
        start = message.find(raw)
        while start >= 0:
            if _is_first_output(message, start, raw):
                self._know(message[:start], message[start + len(raw) :])
                if self._shelf is not None:
                    self._shelf.keep(self._before, self._after, self._request_id)
                return
            start = message.find(raw, start + 1)

    def _know(self, before: bytes, after: bytes) -> None:
        self._before, self._after = before, after
        self._start = len(before)
        self._length = len(before) + _ID.size + len(after) if before else -1


class TemplateShelf:
    """The latest template of a model's requests: the next one begins with it, under its own request id.

    The requests of one model mostly get responses of one form, in which nothing else is a request's own.
    """

    def __init__(self) -> None:
        self._request_id = self._before = self._after = b""

    def template(self, request_id: str) -> TokenTemplate:
        """The template that a request begins with. Under an id of another length it matches nothing: it learns anew."""
        own, other = request_id.encode(), self._request_id
        if not other:  # a server that does not repeat it
            return TokenTemplate(self, own, self._before, self._after)
        return TokenTemplate(self, own, self._before.replace(other, own), self._after.replace(other, own))

    def keep(self, before: bytes, after: bytes, request_id: bytes) -> None:
        """Take a template, unless the request's id stands in it more than once: one of them might be something else."""
        times = before.count(request_id) + after.count(request_id)
        if times <= 1:
            self._request_id, self._before, self._after = request_id if times else b"", before, after


def _is_first_output(message: bytes, start: int, raw: bytes) -> bool:
    """Whether the bytes at ``start`` are those of the first raw output: whether it changes with them."""
    other = bytes(byte ^ 0xFF for byte in raw)
    try:
        response = _parse(message[:start] + other + message[start + len(raw) :])
    except DecodeError:
        return False
    outputs = response.infer_response.raw_output_contents
    return bool(outputs) and bytes(outputs[0]) == other
