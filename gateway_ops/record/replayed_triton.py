"""A Triton that responds from a recording."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc

from gateway_ops.record.messages import Json, comparable, read, redacted, write
from gateway_ops.record.recording import RecordedCall

_PREFIX = "/inference.GRPCInferenceService/"
_STATES = {"ServerLive": {"live": True}, "ServerReady": {"ready": True}}


class ReplayedTriton:
    """Responds to each call from a recording.

    A call that was recorded several times gets each response in turn, and then the last response for good.

    Args:
        exchanges: the calls of a recording.
        redacted: whether texts and ids of tokens are hidden in the calls; requests are then compared without both.
        at_once: whether responses come without the recorded delays.
        tell: gets a line for each request that was not recorded.
    """

    def __init__(
        self, exchanges: Sequence[RecordedCall], *, redacted: bool, at_once: bool, tell: Callable[[str], None]
    ) -> None:
        self._redacted = redacted
        self._at_once = at_once
        self._tell = tell
        self._all = exchanges
        self._waiting: dict[str, list[RecordedCall]] = {}
        for exchange in exchanges:
            self._waiting.setdefault(_key(exchange.method, exchange.request), []).append(exchange)
        self._models = {exchange.request.get("model_name") for exchange in exchanges}

    async def serve(self, method: str, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Respond to a call."""
        async for raw in requests:
            request = read(method, raw, answer=False)
            exchange = self._find(method, request)
            if exchange is None:
                async for response in self._unknown(method, request, context):
                    yield response
                continue
            begun = asyncio.get_running_loop().time()
            for after, answer in zip(exchange.after_s, exchange.answers, strict=True):
                if not self._at_once:
                    await asyncio.sleep(begun + after - asyncio.get_running_loop().time())
                yield write(method, _with_id(answer, request.get("id")), answer=True)
            if exchange.status not in {"OK", "CANCELLED"}:
                await context.abort(grpc.StatusCode[exchange.status], exchange.details)

    def _find(self, method: str, request: Json) -> RecordedCall | None:
        waiting = self._waiting.get(_key(method, redacted(request) if self._redacted else request))
        if waiting is None:
            return None
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    async def _unknown(self, method: str, request: Json, context: Any) -> AsyncIterator[bytes]:
        """Respond to what was not recorded: that the server is up, that requests end, and else that it is unknown."""
        name = method.removeprefix(_PREFIX)
        model = request.get("model_name", request.get("name"))
        if name in _STATES:
            yield write(method, _STATES[name], answer=True)
        elif name == "ModelReady":
            yield write(method, {"ready": model in self._models}, answer=True)
        elif request.get("tensors", {}).get("stop") == [True]:
            yield write(method, {"infer_response": {"model_name": model, "id": request.get("id", "")}}, answer=True)
        else:
            self._tell(
                f"{name} was not recorded with this request{f' of {model}' if model else ''}: "
                f"{self._nearest(method, request)}"
            )
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the recording does not contain this request")

    def _nearest(self, method: str, request: Json) -> str:
        asked = _parts(redacted(request) if self._redacted else request)
        others = [_parts(each.request) for each in self._all if each.method == method]
        differences: list[list[str]] = []
        for other in others:
            names = asked.keys() | other.keys()
            differences.append(sorted(name for name in names if asked.get(name) != other.get(name)))
        if not differences:
            return "the recording has no call of this kind"
        nearest: list[str] = min(differences, key=len)
        return f"the nearest one differs in {', '.join(nearest)}"


def _key(method: str, request: Json) -> str:
    return json.dumps([method, comparable(request)], sort_keys=True)


def _parts(request: Json) -> Json:
    form = comparable(request)
    tensors: Json = form.pop("tensors")
    return form | tensors


def _with_id(answer: Json, request_id: Any) -> Json:
    inner = answer.get("infer_response")
    if inner is not None and "id" in inner:
        return answer | {"infer_response": inner | {"id": request_id or ""}}
    return answer | {"id": request_id or ""} if "id" in answer else answer
