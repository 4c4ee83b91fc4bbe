"""How inference requests reach Triton: an interface, and its implementation over grpcio.

One RPC per request on a shared channel, declared unary to stream: wire-compatible with ``ModelStreamInfer``, and the
request side is closed at once, which ends the stream after the final response (contract section 3.4).
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

import grpc
from tritonclient.grpc import service_pb2

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_INT32_MAX = 2**31 - 1
_CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", _INT32_MAX),
    ("grpc.max_receive_message_length", _INT32_MAX),
    # Servers close connections that are pinged more often than they allow; a ping only while a request is in flight.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A Triton that comes back is to be served again at once; the default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Without it, every channel of the process to the same address shares one connection.
    ("grpc.use_local_subchannel_pool", 1),
)


class TransportError(Exception):
    """An RPC that ended with a status other than OK.

    Attributes:
        status: name of the gRPC status.
        text: its details; never shown to clients.
    """

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


class InferCall(Protocol):
    """One inference request in flight."""

    async def read(self) -> service_pb2.ModelStreamInferResponse | None:
        """Read the next response, or None at the end of the stream.

        Raises:
            TransportError: the RPC failed; also when it was cancelled by someone else than the reading task.
            asyncio.CancelledError: the reading task was cancelled, and the request with it.
        """
        ...

    def cancel(self) -> None:
        """Cancel the request on the wire; without effect once it has ended."""
        ...


class Transport(Protocol):
    """Something that carries inference requests to Triton."""

    def infer(self, request: service_pb2.ModelInferRequest, *, timeout: float) -> InferCall:
        """Start a request.

        Failures of the model arrive as ``error_message`` inside the stream. The metadata header ``triton_grpc_error``,
        which would make them gRPC statuses, is never sent: tritonserver 2.51 crashes (segmentation fault) after some
        errors reported that way, whatever the model.

        Args:
            request: what to infer.
            timeout: seconds until the RPC fails with DEADLINE_EXCEEDED.
        """
        ...


def open_channel(url: str) -> grpc.aio.Channel:
    """Open the channel that everything to one Triton shares. Connects when first used.

    Args:
        url: ``host:port``, with or without ``grpc://``.
    """
    return grpc.aio.insecure_channel(url.removeprefix("grpc://"), options=_CHANNEL_OPTIONS)


class GrpcioTransport:
    """``Transport`` over a ``grpc.aio`` channel that someone else owns."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream = channel.unary_stream(
            _METHOD,
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
        )

    def infer(self, request: service_pb2.ModelInferRequest, *, timeout: float) -> InferCall:
        """Start a request; see ``Transport``."""
        return _GrpcioCall(self._stream(request, timeout=timeout))


class _GrpcioCall:
    __slots__ = ("_call", "_cancelled")

    def __init__(self, call: Any) -> None:
        self._call = call
        self._cancelled = False

    async def read(self) -> service_pb2.ModelStreamInferResponse | None:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise TransportError(error.code().name, error.details() or "") from None
        except asyncio.CancelledError:
            if _task_is_cancelled(otherwise=not self._cancelled):
                raise
            # grpc.aio answers so too when the call was cancelled, or its channel closed, behind the reader's back.
            raise TransportError("CANCELLED", "cancelled by the gateway") from None
        return None if message is grpc.aio.EOF else cast("service_pb2.ModelStreamInferResponse", message)

    def cancel(self) -> None:
        self._cancelled = True
        self._call.cancel()


def _task_is_cancelled(*, otherwise: bool) -> bool:
    cancelling = getattr(asyncio.current_task(), "cancelling", None)  # Python 3.10 cannot tell
    return otherwise if cancelling is None else cancelling() > 0
