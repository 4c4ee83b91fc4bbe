"""A gRPC server of bytes, which passes every call of every service to one function."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any

import grpc

Serve = Callable[[str, AsyncIterator[bytes], Any], AsyncIterator[bytes]]
"""A function that serves the call of a path: its requests, and gRPC's context, to the responses."""

UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class AnyCallServer:
    """The server; an asynchronous context manager.

    Args:
        address: host and port to listen on; port 0 is any.
        serve: responds to each call; the requests of a unary call end after one.

    Attributes:
        port: the port.

    Raises:
        OSError: another program has the address.
    """

    def __init__(self, address: str, serve: Serve) -> None:
        self._server = grpc.aio.server(options=[*UNLIMITED, ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((_AnyCall(serve),))
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise OSError(f"cannot listen on {address}")

    async def __aenter__(self) -> AnyCallServer:
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.stop(grace=0)


class _AnyCall(grpc.GenericRpcHandler):
    def __init__(self, serve: Serve) -> None:
        self._serve = serve

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method

        async def behave(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for answer in self._serve(path, requests, context):
                yield answer

        return grpc.stream_stream_rpc_method_handler(behave)
