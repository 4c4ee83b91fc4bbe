"""``gateway record`` and ``gateway replay``: record a Triton's responses to a file, and serve them again."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway_ops.cli.console import echo, fail

if TYPE_CHECKING:
    from gateway_ops.record.any_call import Serve

_Host = Annotated[str, typer.Option(help="Address to listen on.")]
_Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free port.")]


def record(
    triton: Annotated[str, typer.Argument(help="Host and port of Triton's gRPC, such as 127.0.0.1:8001.")],
    file: Annotated[Path, typer.Argument(help="New file for the recording.")],
    host: _Host = "127.0.0.1",
    port: _Port = 8101,
    redact: Annotated[bool, typer.Option("--redact", help="Replace texts and token ids by placeholders.")] = False,
    most_mb: Annotated[int, typer.Option(min=1, help="Largest size of the file; later calls are left out.")] = 100,
) -> None:
    """Record every gRPC call between a gateway and its Triton into a file, until Ctrl-C."""
    from gateway_ops.cli.version import gateway_version  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.record.recorder import Recorder  # noqa: PLC0415
    from gateway_ops.record.recording import RecordingError, RecordingWriter  # noqa: PLC0415

    async def run() -> None:
        with RecordingWriter(file, gateway_version(), redact=redact, most_bytes=most_mb * 2**20) as writer:
            recorder = Recorder(triton, writer)
            try:
                await _listen(host, port, recorder.serve, f"recording {triton} into {file}")
            finally:
                await recorder.close()
        left_out = f"; {writer.left_out} more are left out because the file is full" if writer.left_out else ""
        typer.echo(f"{writer.written} calls are in {file}{left_out}.")

    try:
        asyncio.run(run())
    except RecordingError as error:
        raise fail(error) from None


def replay(
    file: Annotated[Path, typer.Argument(help="A recording of `gateway record`.")],
    host: _Host = "127.0.0.1",
    port: _Port = 8101,
    at_once: Annotated[bool, typer.Option("--at-once", help="Respond without the recorded delays.")] = False,
) -> None:
    """Replay a recording in place of Triton: respond to each recorded request as Triton did, until Ctrl-C."""
    from gateway_ops.record.recording import RecordingError, read_recording  # noqa: PLC0415
    from gateway_ops.record.replayed_triton import ReplayedTriton  # noqa: PLC0415

    try:
        redacted, exchanges = read_recording(file)
    except RecordingError as error:
        raise fail(error) from None
    triton = ReplayedTriton(exchanges, redacted=redacted, at_once=at_once, tell=lambda line: echo(line, err=True))
    asyncio.run(_listen(host, port, triton.serve, f"replaying {file}, {len(exchanges)} calls"))


async def _listen(host: str, port: int, serve: Serve, doing: str) -> None:
    """Serve until SIGINT or SIGTERM."""
    from gateway_ops.local_stack.gateway_process import cannot_listen  # noqa: PLC0415
    from gateway_ops.record.any_call import AnyCallServer  # noqa: PLC0415

    reason = cannot_listen(host, port)  # gRPC's own error is less clear
    if reason is not None:
        raise fail(f"cannot listen on {host} port {port} ({reason}): choose another port with --port")
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        server = AnyCallServer(f"{host}:{port}", serve)
    except OSError as error:
        raise fail(error) from None
    async with server:
        typer.echo(f"{doing}: set the gateway's triton.url to {host}:{server.port}. Ctrl-C ends.")
        await ended.wait()
