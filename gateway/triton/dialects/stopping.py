"""Cancelling through an ensemble (wire contract 3.6).

A gRPC cancel does not reach the ensemble's engine step; a ``stop`` request to the engine does.
"""

from __future__ import annotations

import asyncio

from tritonclient.grpc import service_pb2

from gateway.contract import TENSORRT_LLM
from gateway.generation.engine import EngineError
from gateway.triton.dialects.connection import Connection
from gateway.triton.dialects.encoder import RequestEncoder
from gateway.triton.model_view import ModelView
from gateway.triton.stream import ResponseStream

_RPC_TIMEOUT_S = 2.0
_RETRY_S = 0.25
_MOST_RETRY_S = 2.0


class StopSender:
    """Ends requests that run in the engine step of an ensemble.

    Args:
        connection: the way to Triton.
        engine: the engine step's model; it must declare the input ``stop``.
    """

    def __init__(self, connection: Connection, engine: ModelView) -> None:
        self._connection = connection
        self._encoder = RequestEncoder(engine, TENSORRT_LLM)

    async def stop(self, request_id: str, ended: asyncio.Task[None]) -> None:
        """Send ``stop`` for a request until it has ended, for as long as a request may take.

        It is repeated because a stop that overtakes its request, still in preprocessing, finds nothing to end, and
        because a Triton that hangs for a while would otherwise compute the rest of an answer that nobody reads.

        Args:
            request_id: the id of the request to end.
            ended: a task that ends with the request.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connection.timeout
        pause = _RETRY_S
        while not ended.done() and loop.time() < deadline:
            await self.send(request_id)
            await asyncio.wait({ended}, timeout=pause)
            pause = min(2 * pause, _MOST_RETRY_S)

    async def send(self, request_id: str) -> None:
        """Send ``stop`` for a request once; a failure is only reported to the connection."""
        stream = ResponseStream(self._connection.transport.infer(self.encode(request_id), timeout=_RPC_TIMEOUT_S))
        try:
            while not stream.final:
                await stream.read()
        except EngineError as error:
            self._connection.report(error)
        finally:
            stream.close()

    def encode(self, request_id: str) -> service_pb2.ModelInferRequest:
        """Make the stop request for a request; all tensors but ``stop`` are there only because they are required."""
        wire = self._encoder.request(request_id, ("output_ids", "sequence_length"))
        self._encoder.put(wire, "input_ids", 0)
        self._encoder.put(wire, "input_lengths", 1)
        self._encoder.put(wire, "request_output_len", 1)
        self._encoder.put(wire, "stop", True)
        return wire
