"""A synthetic Triton over HTTP, for gateways that call its generate extension: ``generate_stream`` with text.

``python -m benchmarks.harness.generate_stream PORT``; a line on standard input sets the microseconds between tokens.
"""

from __future__ import annotations

import asyncio
import json
import sys

_WORDS = (" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy", " dog", ".")
_EVENTS = [
    b"data: " + json.dumps({"model_name": "ensemble", "model_version": "1", "text_output": word}).encode() + b"\n\n"
    for word in _WORDS
]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_DEFAULT_TOKENS = 16


class Server:
    """A server that answers every request with ``max_tokens`` events.

    Attributes:
        delay_s: between them.
    """

    def __init__(self) -> None:
        self.delay_s = 0.0

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
        due = asyncio.get_running_loop().time()
        for index in range(count):
            due += self.delay_s
            if self.delay_s:
                await asyncio.sleep(due - asyncio.get_running_loop().time())
            event = _EVENTS[index % len(_EVENTS)]
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    def pace(self) -> None:
        """Take the next line of standard input."""
        line = sys.stdin.readline()
        if line:
            self.delay_s = float(line) / 1e6
        else:
            asyncio.get_running_loop().remove_reader(sys.stdin)


async def main(port: int) -> None:
    """Serve for ever."""
    server = Server()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", port, backlog=2048)
    asyncio.get_running_loop().add_reader(sys.stdin, server.pace)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
