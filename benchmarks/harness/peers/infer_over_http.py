"""A synthetic Triton over HTTP that answers each request with one vector: ``python -m ... PORT``."""

from __future__ import annotations

import asyncio
import json
import sys

_VECTOR = [0.125, -0.03172, 0.0471, -0.5113, 0.20018, 0.0003, -0.0991] * 54 + [0.5] * 6
_BODY = json.dumps(
    {
        "model_name": "embedding",
        "model_version": "1",
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [1, len(_VECTOR)], "data": _VECTOR}],
    }
).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].split(b":")[1]) if lengths else 0)
            writer.write(_ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _main(port: int) -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
