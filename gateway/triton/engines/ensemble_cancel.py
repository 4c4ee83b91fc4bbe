"""Cancelling through an ensemble (wire contract 3.6).

A gRPC cancel does not reach the ensemble's engine step; a ``stop`` request to the engine does.
"""

from __future__ import annotations

import asyncio

from tritonclient.grpc import service_pb2

from gateway.contract import TENSORRT_LLM
from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.connection import BackgroundTasks, Connection
from gateway.triton.engines.request_encoder import RequestEncoder
from gateway.triton.model_view import ModelView
from gateway.triton.response_stream import ResponseStream

# Beyond it the server is left waiting: a slow client must not fill the gateway's memory.
_QUEUED = 64


class ResponsePump:
    """Hands over a stream's responses. Cancelling its reader does not cancel the RPC.

    Attributes:
        task: runs until the request has ended.
        final: whether the last response handed over was the final one.
    """

    def __init__(self, stream: ResponseStream, background: BackgroundTasks) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[tuple[service_pb2.ModelInferResponse, bool] | EngineError] = asyncio.Queue(_QUEUED)
        self._abandoned = False
        self.final = False
        self.task = background.spawn(self._run())
        self.task.add_done_callback(self._on_done)

    async def _run(self) -> None:
        try:
            while not self._stream.final:
                response = await self._stream.read()
                if not self._abandoned:
                    await self._queue.put((response, self._stream.final))
        except EngineError as error:
            if not self._abandoned:
                await self._queue.put(error)
        finally:
            self._stream.close()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        # Nobody may be left waiting, however the task ended.
        if task.cancelled():
            self._fail(EngineError(ErrorKind.CANCELLED, "The gateway is shutting down."))
        elif task.exception() is not None:
            self._fail(
                EngineError(ErrorKind.INTERNAL, "The engine's answer could not be read.", repr(task.exception()))
            )

    def _fail(self, error: EngineError) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(error)

    async def read(self) -> service_pb2.ModelInferResponse:
        """Read the next response; see ``ResponseStream.read``."""
        item = await self._queue.get()
        if isinstance(item, EngineError):
            raise item
        response, self.final = item
        return response

    def abandon(self) -> None:
        """Drop what is queued and what still comes, until the request has ended."""
        self._abandoned = True
        while not self._queue.empty():
            self._queue.get_nowait()


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
