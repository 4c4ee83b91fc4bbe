"""The transport ``grpcio``, and the channel of all small calls with any transport."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
from tritonclient.grpc import service_pb2

from gateway.triton.access import PLAIN, TritonAccess
from gateway.triton.renewable_channel import RenewableChannel
from gateway.triton.transport import MAX_RESPONSE_BYTES, METHOD, InferCall, Tap, TransportError, task_is_cancelled

_INT32_MAX = 2**31 - 1
_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", _INT32_MAX),
    # Servers close connections that are pinged more often than they allow; a ping only while a request is in flight.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A Triton that comes back is to be served again while requests wait for it; the default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 200),
    # Without it, every channel of the process to the same address shares one connection.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(
    url: str, access: TritonAccess = PLAIN, *, max_response_bytes: int = MAX_RESPONSE_BYTES
) -> grpc.aio.Channel:
    """Open the channel that all calls to one Triton share; it connects on first use.

    Args:
        url: ``host:port``, with or without ``grpc://``.
        access: access to the Triton.
        max_response_bytes: largest response.

    Returns:
        A channel; a ``RenewableChannel`` with TLS or headers.
    """
    options: tuple[tuple[str, Any], ...] = (
        *_CHANNEL_OPTIONS,
        ("grpc.max_receive_message_length", max_response_bytes),
    )
    target, tls = url.removeprefix("grpc://"), access.tls
    if access.server_name is not None:
        options = (*options, ("grpc.ssl_target_name_override", access.server_name))

    def open_one() -> grpc.aio.Channel:
        if tls is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, tls.value.grpcio, options=options)

    return open_one() if access == PLAIN else RenewableChannel(open_one, access.metadata)


class GrpcioTransport:
    """``Transport`` over a ``grpc.aio`` channel that its caller owns."""

    name = "grpcio"

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream: grpc.aio.UnaryStreamMultiCallable[service_pb2.ModelInferRequest, bytes] = channel.unary_stream(
            METHOD,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=None,  # most responses need not be parsed: TokenTemplate
        )

    def infer(
        self, request: service_pb2.ModelInferRequest, *, timeout: float, traceparent: str | None = None
    ) -> InferCall:
        """Start a request; see ``Transport``."""
        metadata = None if traceparent is None else (("traceparent", traceparent),)
        return _GrpcioCall(self._stream(request, timeout=timeout, metadata=metadata))

    async def prepare(self) -> None:
        """Do nothing, as the channel connects on first use; see ``Transport``."""

    async def renew(self) -> str | None:
        """Do nothing, as the owner renews the channel; see ``RenewableTransport``."""
        return None

    async def close(self) -> None:
        """Do nothing, as calls end when the owner closes the channel."""


class _GrpcioCall:
    __slots__ = ("_call", "_cancelled", "tap")

    def __init__(self, call: Any) -> None:
        self.tap: Tap | None = None  # grpc.aio reads only while a reader waits
        self._call = call
        self._cancelled = False

    @property
    def ended(self) -> bool:
        return bool(self._call.done())

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
