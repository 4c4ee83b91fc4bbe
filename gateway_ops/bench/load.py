"""Sends the requests of a load plan."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Any

import aiohttp

from gateway.serving.comparison.answer_forms import RequestFailedError
from gateway_ops.bench.exchange import exchange
from gateway_ops.bench.plan import LoadPlan
from gateway_ops.bench.tally import LoadTally

_AFTER_FAILURE_S = 0.1  # a server that rejects immediately must not get thousands of requests a second


class LoadSender:
    """Sends the requests of a plan.

    Attributes:
        tally: the observations so far; they change while it runs.
        warming: whether requests that are sent now do not count.
        seconds: the measured time so far.
    """

    def __init__(self, plan: LoadPlan, session: aiohttp.ClientSession, url: str, model: str) -> None:
        """Prepare.

        Args:
            plan: the requests to send.
            session: a session with the API key among its headers, and without a limit on connections.
            url: the endpoint for chat completions.
            model: the id to ask for.
        """
        self.tally = LoadTally()
        self._plan = plan
        self._session = session
        self._url = url
        self._bodies = plan.bodies(model)
        self._begun = self._counting = 0.0
        self._ended: float | None = None
        self._left = plan.requests
        self._longest = math.inf if plan.duration_s is None else plan.duration_s

    @property
    def warming(self) -> bool:
        """Whether the warm-up still runs."""
        return time.perf_counter() < self._counting

    @property
    def seconds(self) -> float:
        """The measured time so far, in seconds."""
        return max(0.0, min(self._ended or time.perf_counter(), self._counting + self._longest) - self._counting)

    async def run(self) -> None:
        """Send all requests and wait for the responses; a cancel ends it early and keeps the observations."""
        self._begun = time.perf_counter()
        self._counting = self._begun + self._plan.warm_up_s
        tasks: set[asyncio.Task[None]] = set()
        try:
            if self._plan.streams is not None:
                tasks = {asyncio.create_task(self._stream()) for _ in range(self._plan.streams)}
            else:
                await self._arrive(tasks)
            if tasks:
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ended = time.perf_counter()

    async def _stream(self) -> None:
        while (request := self._next(now := time.perf_counter())) is not None:
            await self._send(*request, now)

    async def _arrive(self, tasks: set[asyncio.Task[None]]) -> None:
        due = self._begun
        for gap in self._plan.gaps():
            due += gap
            # Late requests are sent immediately and measured from their due time: a slow server must not slow the load.
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            request = self._next(due)
            if request is None:
                return
            if len(tasks) >= self._plan.in_flight:
                self.tally.dropped += request[1]
                continue
            task = asyncio.create_task(self._send(*request, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _next(self, now: float) -> tuple[dict[str, Any], bool] | None:
        """The next body and whether it counts; None when the plan has no more at this time."""
        counts = now >= self._counting
        if self._left == 0 or now >= self._counting + self._longest:
            return None
        if self._left is not None:
            self._left -= counts
        return next(self._bodies), counts

    def _seen(self) -> None:
        self.tally.streamed += self._measured(time.perf_counter())

    def _measured(self, now: float) -> bool:
        return 0 <= now - self._counting < self._longest

    async def _send(self, body: dict[str, Any], counts: bool, since: float) -> None:
        tally = self.tally
        tally.sent += counts
        tally.in_flight += 1
        try:
            found = await exchange(self._session, self._url, body, self._plan.timeout_s, self._seen)
        except RequestFailedError as error:
            if counts:
                tally.failed[str(error)] += 1
            await asyncio.sleep(_AFTER_FAILURE_S)
            return
        finally:
            tally.in_flight -= 1
        tally.answered += self._measured(found.ended)
        if not counts:
            return
        tally.completed += 1
        tally.events += len(found.events)
        if (prompt := found.usage.get("prompt_tokens")) is not None:
            tally.prompt_tokens = (tally.prompt_tokens or 0) + prompt
        tally.completion_tokens += found.completion_tokens
        tally.whole.add(found.ended - since)
        if found.events:
            tally.first.add(found.events[0] - since)
        for before, after in zip(found.events, found.events[1:], strict=False):
            tally.between.add(after - before)


@contextlib.asynccontextmanager
async def open_session(api_key: str | None) -> Any:
    """Open a client session that sends the key and has as many connections as needed."""
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=headers, connector=connector, trust_env=True) as session:
        yield session
