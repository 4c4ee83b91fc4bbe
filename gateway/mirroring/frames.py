"""Messages on the socket between the gateway's processes and that of the copies: an object, and two byte strings."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

_SIZES = struct.Struct(">III")
LONGEST_PART: Final = 64 * 2**20


class Frame(NamedTuple):
    """One message.

    Attributes:
        said: what it says.
        request: the body of a request.
        answer: the body of its answer.
    """

    said: dict[str, Any]
    request: bytes = b""
    answer: bytes = b""


def pack(said: Mapping[str, Any], request: bytes = b"", answer: bytes = b"") -> bytes:
    """The bytes of a message."""
    head = orjson.dumps(said)
    return b"".join((_SIZES.pack(len(head), len(request), len(answer)), head, request, answer))


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next message.

    Raises:
        ConnectionError: there is none any more, or it is not one.
    """
    try:
        sizes = _SIZES.unpack(await reader.readexactly(_SIZES.size))
        if max(sizes) > LONGEST_PART:
            raise ConnectionError("a message that is too long")
        head, request, answer = [await reader.readexactly(size) for size in sizes]
        said = orjson.loads(head)
    except (asyncio.IncompleteReadError, orjson.JSONDecodeError):
        raise ConnectionError("the other side has left") from None
    return Frame(said, request, answer)
