"""The connection of a gateway process to the mirror process, for which no request waits."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

import anyio
import orjson

from gateway.telemetry.supervision import end_tasks, keep_running

_SIZES = struct.Struct(">III")
LONGEST_PART: Final = 64 * 2**20

_MOST_UNSENT: Final = 16 * 2**20
_AGAIN_S: Final = 0.5
_ANSWER_S: Final = 3.0


class MirrorFrame(NamedTuple):
    """One message: an object, and two byte strings.

    Attributes:
        message: the object.
        request: the body of a request.
        answer: the body of its response.
    """

    message: dict[str, Any]
    request: bytes = b""
    answer: bytes = b""


def pack(message: Mapping[str, Any], request: bytes = b"", answer: bytes | bytearray = b"") -> bytes:
    """Write a message as bytes, with one copy of its parts.

    Args:
        message: the object.
        request: the body of a request.
        answer: the body of its response.
    """
    head = orjson.dumps(message)
    sizes = _SIZES.pack(len(head), len(request), len(answer))
    return b"".join((sizes, head, request, answer))


async def read_frame(reader: asyncio.StreamReader) -> MirrorFrame:
    """Read the next message.

    Raises:
        ConnectionError: the stream has ended, or has no message.
    """
    try:
        sizes = _SIZES.unpack(await reader.readexactly(_SIZES.size))
        if max(sizes) > LONGEST_PART:
            raise ConnectionError("a message that is too long")
        head, request, answer = [await reader.readexactly(size) for size in sizes]
        said = orjson.loads(head)
    except (asyncio.IncompleteReadError, orjson.JSONDecodeError):
        raise ConnectionError("the other side closed the connection") from None
    return MirrorFrame(said, request, answer)


class MirrorLink:
    """Sends copies while its context is open, and drops copies that cannot be sent immediately.

    Attributes:
        unsaid: dropped copies that were not reported to the other side yet, by model and reason.

    Args:
        path: of the other side's socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: asyncio.StreamWriter | None = None
        self.unsaid: Counter[tuple[str, str]] = Counter()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MirrorLink:
        self._task = asyncio.create_task(keep_running("the connection for mirrored requests", self._stay_connected))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_tasks(self._task)

    @property
    def connected(self) -> bool:
        """Whether the mirror process is connected."""
        return self._writer is not None and not self._writer.is_closing()

    def send(self, model: str, message: Mapping[str, Any], request: bytes, answer: bytearray) -> None:
        """Send a copy, or drop it.

        Args:
            model: name of the served model.
            message: facts of the request.
            request: body of the request.
            answer: body of the response.
        """
        writer = self._writer
        if writer is None or not self.connected:
            self.drop(model, "away")
        elif writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            self.drop(model, "not_taken")
        else:
            writer.write(pack({"copy": {"model": model, **message}}, request, answer))

    def drop(self, model: str, reason: str) -> None:
        """Count a dropped copy, for a later report to the mirror process."""
        self.unsaid[model, reason] += 1

    async def ask(self, question: Mapping[str, Any]) -> Any:
        """Ask the mirror process; None without a timely reply."""
        with contextlib.suppress(OSError):
            with anyio.move_on_after(_ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(self._path))
                try:
                    writer.write(pack({"dropped": self._take_dropped(), **question}))
                    return (await read_frame(reader)).message
                finally:
                    writer.close()
        return None

    def _take_dropped(self) -> list[tuple[str, str, int]]:
        dropped = [(*key, count) for key, count in self.unsaid.items()]
        self.unsaid.clear()
        return dropped

    async def _stay_connected(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, self._writer = await asyncio.open_unix_connection(str(self._path))
                try:
                    await self._tell_of_drops(reader, self._writer)
                finally:
                    self._writer.transport.abort()
                    self._writer = None
            await asyncio.sleep(_AGAIN_S)

    async def _tell_of_drops(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell what was dropped, now and then, until the other side leaves, which says nothing before."""
        writer.write(pack({"stays": True}))
        left = asyncio.create_task(reader.read(1))
        try:
            while not left.done():
                if self.unsaid:
                    writer.write(pack({"dropped": self._take_dropped()}))
                await asyncio.wait((left,), timeout=_AGAIN_S)
        finally:
            left.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await left
