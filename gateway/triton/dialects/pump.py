"""Reading a request in a task of its own, so that it outlives whoever asked for it."""

from __future__ import annotations

import asyncio

from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.background import BackgroundTasks
from gateway.triton.stream import ResponseStream

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
