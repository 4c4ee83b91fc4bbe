"""Messages on the socket between the gateway's processes and that of the copies: an object, and two byte strings."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
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


def pack(said: Mapping[str, Any], request: Sequence[bytes] = (), answer: bytes | bytearray = b"") -> bytes:
    """The bytes of a message, copied once.

    Args:
        said: what it says.
        request: the pieces of the body of a request.
        answer: that of its answer.
    """
    head = orjson.dumps(said)
    sizes = _SIZES.pack(len(head), sum(map(len, request)), len(answer))
    return b"".join((sizes, head, *request, answer))


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
