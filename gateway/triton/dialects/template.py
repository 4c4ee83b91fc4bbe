"""Responses that are like one before but for their token: nothing of them needs to be parsed again."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tritonclient.grpc import service_pb2

from gateway.generation.engine import Take
from gateway.triton.transport import Tap

_parse = service_pb2.ModelStreamInferResponse.FromString
_unpack_id = struct.Struct("<i").unpack_from
_EXAMPLES = 4  # the first is not worth learning; answers that still vary after the last are parsed


class TokenTemplate:
    """The serialized responses of one request, of which all bytes but those of the token id stay the same.

    Parsing a response and looking through its outputs costs several times as much as all that is done with its token.
    Equal bytes mean equal fields: a response that differs from a parsed one in the bytes of its id alone says the same
    with another id.
    """

    __slots__ = ("_after", "_before", "_length", "_seen", "_start")

    def __init__(self) -> None:
        self._seen = 0
        self._length = -1
        self._start = 0
        self._before = self._after = b""

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
                end = start + len(raw)
                self._length, self._start = len(message), start
                self._before, self._after = message[:start], message[end:]
                return
            start = message.find(raw, start + 1)


def _is_first_output(message: bytes, start: int, raw: bytes) -> bool:
    """Whether the bytes at ``start`` are those of the first raw output: whether it changes with them."""
    other = bytes(byte ^ 0xFF for byte in raw)
    try:
        response = _parse(message[:start] + other + message[start + len(raw) :])
    except DecodeError:
        return False
    outputs = response.infer_response.raw_output_contents
    return bool(outputs) and bytes(outputs[0]) == other
