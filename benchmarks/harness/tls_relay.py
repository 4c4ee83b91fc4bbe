"""TLS beside a gateway whose tools speak none: ``python -m benchmarks.harness.tls_relay SIDE PORT TARGET FOLDER``.

``clients`` takes plain connections and speaks TLS to the gateway at TARGET, ``triton`` takes TLS (HTTP/2 agreed upon)
and speaks plainly to the synthetic Triton there. Both are processes of their own: the gateway's CPU is its own alone.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path

import uvloop

_PIECE = 2**16


def write_certificates(folder: Path) -> None:
    """Write an authority-less certificate ``tls.crt`` for loopback, and its key ``tls.key``."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"),
            *("-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")),
        ],
        check=True,
        capture_output=True,
    )


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        return
    finally:
        writer.close()


async def _main(side: str, port: int, target: int, folder: Path) -> None:
    certificate = folder / "tls.crt"
    inward: ssl.SSLContext | None = None
    outward: ssl.SSLContext | None = None
    if side == "clients":
        outward = ssl.create_default_context(cafile=str(certificate))
    else:
        inward = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inward.load_cert_chain(certificate, folder / "tls.key")
        inward.set_alpn_protocols(["h2"])

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_there = await asyncio.open_connection("127.0.0.1", target, ssl=outward)
        await asyncio.gather(_carry(reader, to_there), _carry(there, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", port, ssl=inward, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])))
