"""Sends one request to one target; the outcome is an answer, a rejection or a failure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import aiohttp
import orjson

from gateway.serving.comparison.answer_forms import (
    ENCODER_PATHS,
    LONGEST_ANSWER,
    AnswerEventReader,
    Failure,
    Outcome,
    RequestFailedError,
    rejected,
)
from gateway_ops.bench.exchange import failures_by_kind, lines_of
from gateway_ops.compare.targets import Target, read_body


@dataclass(frozen=True, slots=True)
class ComparedRequest:
    """A request that both targets get.

    Attributes:
        place: its line in the file, or its number in the sample, from 1.
        name: its ``custom_id``, or its kind in a sample; empty where there is none.
        path: of the endpoint.
        body: the body without ``model``, which differs between targets.
    """

    place: int
    name: str
    path: str
    body: Mapping[str, Any]

    @property
    def is_greedy(self) -> bool:
        """Whether the request asks for the same answer each time."""
        return self.path in ENCODER_PATHS or self.body.get("temperature") == 0 or self.body.get("top_k") == 1

    def greedy(self) -> ComparedRequest:
        """Copy the request with temperature 0, if it generates."""
        return self if self.path in ENCODER_PATHS else replace(self, body={**self.body, "temperature": 0})


async def ask(target: Target, request: ComparedRequest, timeout_s: float) -> Outcome:
    """Send a request and read its answer to the end.

    Args:
        target: the target.
        request: the request.
        timeout_s: seconds for the whole answer.
    """
    try:
        with failures_by_kind():
            return await _exchange(target, request, timeout_s)
    except RequestFailedError as error:
        return Failure(str(error))


async def _exchange(target: Target, request: ComparedRequest, timeout_s: float) -> Outcome:
    data = orjson.dumps({**request.body, "model": target.model})
    timeout = aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s)
    began = time.perf_counter()
    async with target.session.post(
        f"{target.address.base}{request.path}", data=data, timeout=timeout, allow_redirects=False
    ) as said:
        if said.status != HTTPStatus.OK:
            return rejected(said.status, await read_body(said.content))
        reader = AnswerEventReader(request.path)
        first: float | None = None
        if said.content_type == "text/event-stream":
            first = await _read_events(said.content, reader)
        else:
            reader.whole(await read_body(said.content))
        answer = reader.answer()
        answer.first_s = None if first is None else first - began
        answer.whole_s = time.perf_counter() - began
        return answer


async def _read_events(content: aiohttp.StreamReader, reader: AnswerEventReader) -> float | None:
    """Read a stream to its end; return when its first text came."""
    first: float | None = None
    size = 0
    async for line in lines_of(content):
        size += len(line)
        if size > LONGEST_ANSWER:
            raise RequestFailedError("a response of more than 16 MiB")
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return first
        if reader.event(data) and first is None:
            first = time.perf_counter()
        if reader.is_whole:
            return first
    raise RequestFailedError("an incomplete stream")
