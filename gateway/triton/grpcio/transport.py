"""``Transport`` over ``grpc.aio``."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
from tritonclient.grpc import service_pb2

from gateway.triton.transport import METHOD, InferCall, Tap, TransportError, task_is_cancelled


class GrpcioTransport:
    """``Transport`` over a ``grpc.aio`` channel that someone else owns."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream: grpc.aio.UnaryStreamMultiCallable[service_pb2.ModelInferRequest, bytes] = channel.unary_stream(
            METHOD,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=None,  # most responses need not be parsed: TokenTemplate
        )

    def infer(self, request: service_pb2.ModelInferRequest, *, timeout: float) -> InferCall:
        """Start a request; see ``Transport``."""
        return _GrpcioCall(self._stream(request, timeout=timeout))

    async def close(self) -> None:
        """Nothing: what is in flight ends when the owner closes the channel."""


class _GrpcioCall:
    __slots__ = ("_call", "_cancelled", "tap")

    def __init__(self, call: Any) -> None:
        self.tap: Tap | None = None  # grpc.aio reads only for who waits
        self._call = call
        self._cancelled = False

    async def read(self) -> bytes | None:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise TransportError(error.code().name, error.details() or "") from None
        except asyncio.CancelledError:
            if task_is_cancelled(otherwise=not self._cancelled):
                raise
            # grpc.aio answers so too when the call was cancelled, or its channel closed, behind the reader's back.
            raise TransportError("CANCELLED", "cancelled by the gateway") from None
        return None if message is grpc.aio.EOF else cast("bytes", message)

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()
