"""A synthetic Triton over HTTP, for gateways that call its generate extension: ``generate_stream`` with text.

``python -m benchmarks.harness.peers.generate_stream PORT``; a line on standard input sets the microseconds between
tokens.
"""

from __future__ import annotations

import asyncio
import json
import sys

from .pace import Pace

_WORDS = (" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog", ".")
_EVENTS = [
    b"data: " + json.dumps({"model_name": "ensemble", "model_version": "1", "text_output": word}).encode() + b"\n\n"
    for word in _WORDS
]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_DEFAULT_TOKENS = 16


class Server:
    """A server that answers every request with ``max_tokens`` events.

    Args:
        pace: of the events.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, one request after another."""
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        body = json.loads(await reader.readexactly(length)) if length else {}
        count = int(body.get("max_tokens") or body.get("parameters", {}).get("max_tokens") or _DEFAULT_TOKENS)
        writer.write(_HEAD)
        async for index in self._pace.count(count):
            event = _EVENTS[index % len(_EVENTS)]
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True


async def main(port: int) -> None:
    """Serve for ever."""
    pace = Pace()
    pace.follow_input()
    listening = await asyncio.start_server(Server(pace).handle, "127.0.0.1", port, backlog=2048)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
