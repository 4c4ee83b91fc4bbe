"""The recorder: a gRPC server between a gateway and its Triton that relays and records every call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from gateway_ops.record.any_call import UNLIMITED
from gateway_ops.record.messages import Json, read
from gateway_ops.record.recording import RecordedCall, RecordingWriter

_OWN = ("grpc-", "user-agent", "te", "content-type", ":")  # headers that each connection has of its own


class Recorder:
    """Relays and records each call.

    Args:
        triton: host and port of Triton's gRPC.
        writer: writes the calls.
    """

    def __init__(self, triton: str, writer: RecordingWriter) -> None:
        self._channel: Any = grpc.aio.insecure_channel(triton, options=UNLIMITED)
        self._writer = writer
        self._calls: set[asyncio.Task[Any]] = set()
        self._unwritten: set[_SeenCall] = set()

    async def close(self) -> None:
        """Close the connection to Triton, after every call was recorded."""
        await self._channel.close()
        await asyncio.gather(*self._calls, return_exceptions=True)
        # Where gRPC is cancelled in sending a response, the generator that made it learns of its end too late.
        for seen in tuple(self._unwritten):
            seen.end("CANCELLED", "")
            self._write(seen)

    async def serve(self, method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Relay a call unchanged, with its end and its cancellation."""
        if task := asyncio.current_task():
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)
        seen = _SeenCall(method)
        self._unwritten.add(seen)
        metadata = [each for each in context.invocation_metadata() if not each[0].startswith(_OWN)]
        call: Any = self._channel.stream_stream(method)(
            seen.asked(requests), timeout=context.time_remaining(), metadata=metadata
        )
        try:
            async for answer in call:
                seen.answered(answer)
                yield answer
        except grpc.aio.AioRpcError as error:
            seen.end(error.code().name, error.details() or "")
            await context.abort(error.code(), error.details() or "", error.trailing_metadata() or ())
        except (asyncio.CancelledError, GeneratorExit):
            call.cancel()
            seen.end("CANCELLED", "")
            raise
        finally:
            self._write(seen)

    def _write(self, seen: _SeenCall) -> None:
        if seen in self._unwritten:
            self._unwritten.remove(seen)
            for exchange in seen.exchanges():
                self._writer.add(exchange)


class _SeenCall:
    """The messages of one call, which may carry several requests."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._requests: list[tuple[float, bytes]] = []
        self._answers: list[tuple[float, bytes]] = []
        self._status, self._details = "OK", ""

    async def asked(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            self._requests.append((time.monotonic(), request))
            yield request

    def answered(self, answer: bytes) -> None:
        self._answers.append((time.monotonic(), answer))

    def end(self, status: str, details: str) -> None:
        self._status, self._details = status, details

    def exchanges(self) -> list[RecordedCall]:
        """One for each request; a response without an id is to the last of them."""
        found = []
        for at, raw in self._requests:
            request = read(self._method, raw, answer=False)
            exchange = RecordedCall(method=self._method, request=request, status=self._status, details=self._details)
            found.append((at, exchange))
        by_id = {exchange.request.get("id"): (at, exchange) for at, exchange in found}
        for at, raw in self._answers:
            answer = read(self._method, raw, answer=True)
            asked_at, exchange = by_id.get(_id_of(answer)) or found[-1]
            exchange.answers.append(answer)
            exchange.after_s.append(round(at - asked_at, 6))
        return [exchange for _, exchange in found]


def _id_of(answer: Json) -> Any:
    return answer.get("infer_response", answer).get("id")
