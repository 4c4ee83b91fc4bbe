"""The interface of transports, which carry inference requests to Triton: ``grpcio`` and ``h2``.

One RPC per request on a shared connection, unary to stream: wire-compatible with ``ModelStreamInfer``, and the request
side is closed immediately, which ends the stream after the final response (wire contract 3.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVENESS = "/inference.GRPCInferenceService/ServerLive"
# Room for the log-probs that are computed from logits, as wide as the vocabulary for each token of a prompt.
MAX_RESPONSE_BYTES = 512 * 2**20


Tap = Callable[[Sequence[bytes]], int]


class TransportError(Exception):
    """An RPC that ended with another status than OK.

    Attributes:
        status: name of the gRPC status.
        text: its details; clients never see them.
    """

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text


class InferCall(Protocol):
    """One inference request in flight.

    Attributes:
        tap: where a transport can, it is called with the responses that came while ``read`` waits, and returns how many
            of them it took, from the first on. Where it took all, the reader is not woken. What it raises, the reader
            is given; it is to be None after the final response.
    """

    tap: Tap | None

    @property
    def ended(self) -> bool:
        """Whether the call has ended; responses that have arrived may still be unread."""
        ...

    async def read(self) -> bytes | None:
        """Read the next response, a serialized ``ModelStreamInferResponse``, or None at the end of the stream.

        Raises:
            TransportError: the RPC failed; also when it was cancelled by someone else than the reading task.
            asyncio.CancelledError: the reading task was cancelled, and the request with it.
        """
        ...

    def cancel(self) -> None:
        """Cancel the request on the wire; without effect once it has ended."""
        ...


class Transport(Protocol):
    """Carries inference requests to Triton.

    Attributes:
        name: ``grpcio`` or ``h2``.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    async def prepare(self) -> None:
        """Prepare to reach the server, before the first request and after an outage.

        Raises:
            EngineError: the server does not answer.
        """
        ...

    def infer(
        self, request: service_pb2.ModelInferRequest, *, timeout: float, traceparent: str | None = None
    ) -> InferCall:
        """Start a request.

        Failures of the model arrive as ``error_message`` inside the stream. The metadata header ``triton_grpc_error``,
        which would make them gRPC statuses, is never sent: tritonserver 2.51 crashes (segmentation fault) after some
        errors reported that way, whatever the model.

        Args:
            request: serialized request.
            timeout: seconds until the RPC fails with DEADLINE_EXCEEDED.
            traceparent: metadata of that name; see ``GenerationRequest``. Triton traces every request that has it.
        """
        ...

    async def close(self) -> None:
        """End requests in flight with CANCELLED, and close what the transport opened itself."""
        ...


class RenewableTransport(Transport, Protocol):
    """A transport whose connection can be replaced."""

    async def renew(self) -> str | None:
        """Connect again with the current certificates, for further requests; those in flight stay where they are.

        Returns:
            Why it failed: then nothing has changed. None when it is done, or there is nothing to do.
        """
        ...


def task_is_cancelled(*, otherwise: bool) -> bool:
    """Tell whether the running task is being cancelled; ``otherwise`` where Python (3.10) cannot tell."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return otherwise if cancelling is None else cancelling() > 0
