"""The server of ``soak.py``: it answers well or badly, as a request asks, and at times closes connections.

python benchmarks/soak_server.py PORT
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

_CONNECTION_AGE_MS = 7_000
_GRACE_S = 5


def response(number: int, padding: int = 0) -> Any:
    """A response that carries its number, and some bytes."""
    message = service_pb2.ModelStreamInferResponse()
    message.infer_response.outputs.add(name="output_ids", datatype="INT32", shape=[1, 1, 1])
    message.infer_response.raw_output_contents.append(struct.pack("<i", number) + bytes(padding))
    return message


class Server(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # it has no types
    """A server that takes its behaviour from the model's name, and the number of responses from the request's id.

    Attributes:
        running: requests that are being answered, by client, which is the model version asked for.
    """

    def __init__(self) -> None:
        self.running: dict[str, int] = {}

    async def ModelStreamInfer(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Answer each request of a stream."""
        async for request in request_iterator:
            client = request.model_version
            if request.model_name == "running":
                yield response(self.running.get(client, 0))
                return
            self.running[client] = self.running.get(client, 0) + 1
            try:
                async for message in self._answer(request, context):
                    yield message
            finally:
                self.running[client] -= 1

    async def _answer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        what = request.model_name
        padding = {"large": 300_000, "flood": 2_000}.get(what, 0)
        for number in range(int(request.id)):
            yield response(number, padding)
            if what == "paced":
                await asyncio.sleep(0.01)
        if what == "status":
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "größer als 100%")
        elif what == "error":
            yield service_pb2.ModelStreamInferResponse(error_message="failed")
        elif what == "stall":
            await asyncio.Event().wait()


async def main(port: int) -> None:
    """Serve until SIGTERM."""
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_connection_age_ms", _CONNECTION_AGE_MS),
            ("grpc.max_connection_age_grace_ms", 60_000),
        ]
    )
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Server(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(_GRACE_S)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
