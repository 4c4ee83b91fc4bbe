"""The work of the clients' process for a mirror, alone: thread CPU time of answers with and without a copy.

Run: ``python -m benchmarks.harness.mirror_probe``; prints microseconds of an answer, by its tokens, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import uvloop

from gateway.generation.relay.interface import StreamOutput, copied
from gateway.serving.mirror.copies import RequestCopies
from gateway.serving.mirror.link import MirrorLink
from gateway.settings import ModelSettings

_MODEL = ModelSettings.model_validate({"name": "m", "triton": {"url": "a:1"}, "mirror": {"to": "b", "share": 1.0}})
_EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1795437671,'
    b'"model":"bench","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],'
    b'"usage":null}\n\n'
)
_REQUEST = b"x" * 300
_TURNS, _ANSWERS = 60, 50
_READER = """
import socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1])
door.listen()
print("listens", flush=True)
link = door.accept()[0]
while link.recv(1 << 20):
    pass
"""


def _write(_: bytes) -> None:
    """Write to nobody."""


async def _answer(copies: RequestCopies | None, tokens: int) -> None:
    """One streamed answer: its first and last events by the generator, the others by the relay."""
    output = StreamOutput()

    async def events() -> AsyncGenerator[bytes, None]:
        yield _EVENT
        write = _write if output.copy is None else copied(_write, output.copy)
        for _ in range(tokens):
            write(bytes(bytearray(_EVENT)))  # a new object each, as the relay makes it
        output.ending = True
        yield _EVENT

    stream = events()
    copy = copies and copies.begin(_MODEL, "/v1/chat/completions", _REQUEST, "id")
    async for _ in copy.streamed(stream, output, b":") if copy else stream:
        pass


async def _spent(copies: RequestCopies | None, tokens: int) -> float:
    began = time.thread_time()
    for _ in range(_ANSWERS):
        await _answer(copies, tokens)
        await asyncio.sleep(0)  # the loop writes
    await asyncio.sleep(0.002)
    return (time.thread_time() - began) / _ANSWERS


async def _measure(path: Path) -> dict[int, float]:
    async with MirrorLink(path) as link:
        while not link.connected:  # noqa: ASYNC110 - it has no event for it, and needs none
            await asyncio.sleep(0.01)
        found = {}
        for tokens in (16, 150, 1000):
            pairs = [(await _spent(RequestCopies(link), tokens), await _spent(None, tokens)) for _ in range(_TURNS)]
            found[tokens] = round(statistics.median(on - off for on, off in pairs) * 1e6, 1)
        return found


def main() -> None:
    """Measure, with a process at the other end of the socket that reads and does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copies"
        with subprocess.Popen([sys.executable, "-c", _READER, str(path)], stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()
            print(json.dumps(uvloop.run(_measure(path))))


if __name__ == "__main__":
    main()
