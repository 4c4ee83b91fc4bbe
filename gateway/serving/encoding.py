"""One request to an encoder in flight: its turn, its endpoint, another one where that fails, and its deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import cast

import anyio

from gateway.generation.encoder import EncodedItems, Encoder, EncoderRequest
from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.route import AdmittedGeneration, Route
from gateway.serving.deadlines import Deadlines
from gateway.telemetry.metrics import ModelMetrics


class Encoding:
    """A request to an encoder.

    Args:
        request: what to encode.
        enter: waits for its turn.
        find: chooses its route.
        deadlines: when to give up.
        metrics: counters of the served model.
        arrived: ``time.perf_counter()`` at the arrival of the HTTP request.

    Attributes:
        address: of the endpoint that it went to last, where there are several; else empty.
    """

    def __init__(
        self,
        request: EncoderRequest,
        *,
        enter: Callable[[], Awaitable[AdmittedGeneration]],
        find: Callable[[], Awaitable[Route]],
        deadlines: Deadlines,
        metrics: ModelMetrics,
        arrived: float,
    ) -> None:
        self.request = request
        self.address = ""
        self._enter = enter
        self._find = find
        self._deadlines = deadlines
        self._metrics = metrics
        self._arrived = arrived
        self._heard: float | None = None
        self._lost: EngineError | None = None
        self._call: asyncio.Task[EncodedItems] | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of its inputs, as far as they are known; see ``gateway.generation.health.WatchedRequest``."""
        return sum(len(item.ids) for item in self.request.items)

    def heard(self) -> float | None:
        """``time.perf_counter()`` at the response; see ``gateway.generation.health.WatchedRequest``."""
        return self._heard

    def lost(self) -> None:
        """End it, or go elsewhere; see ``gateway.generation.health.WatchedRequest``."""
        self.abort(EngineError(ErrorKind.UNAVAILABLE, "The model became unavailable before it responded."))

    def abort(self, error: EngineError) -> None:
        """End its call with an error; without effect before it begins and after its end."""
        if self._call is not None and not self._call.done():
            self._lost = error
            self._call.cancel()

    async def run(self) -> EncodedItems:
        """Wait for its turn, and encode.

        Raises:
            EngineError: the request failed on each endpoint that was asked, or took too long.
        """
        metrics = self._metrics
        metrics.in_flight.inc()
        left = self._deadlines.first_token_s - (time.perf_counter() - self._arrived)
        admitted: AdmittedGeneration | None = None
        try:
            with anyio.fail_after(max(0.0, left)):
                admitted = await self._enter()
                if admitted.waited_s:
                    metrics.waits.observe(admitted.waited_s)
                return await self._encode()
        except TimeoutError:
            seconds = f"{self._deadlines.first_token_s:g}"
            error = EngineError(ErrorKind.TIMEOUT, f"The model did not respond within {seconds} seconds.")
            metrics.failures[error.kind.value].inc()
            raise error from None
        except EngineError as error:
            metrics.failures[error.kind.value].inc()
            raise
        except asyncio.CancelledError:
            metrics.cancelled.inc()
            raise
        finally:
            metrics.in_flight.dec()
            if admitted is not None:
                admitted.leave(self.prompt_tokens)

    async def _encode(self) -> EncodedItems:
        route = await self._find()
        while True:
            try:
                encoded = await self._follow(route)
            except EngineError as error:  # noqa: PERF203 - few
                other = await route.elsewhere(error)
                if other is None:
                    raise
                self._metrics.elsewhere.inc()
                route = other
            else:
                self._metrics.ttft.observe(time.perf_counter() - self._arrived)
                return encoded

    async def _follow(self, route: Route) -> EncodedItems:
        """Ask the encoder of one route."""
        self.address, self._lost = route.address, None
        route.lose = self.abort
        if route.notes is not None:
            route.notes.began()
        route.health.began(self)
        failure: EngineError | None = None
        given_up = False
        self._call = asyncio.ensure_future(cast("Encoder", route.engine).encode(self.request))
        try:
            encoded = await self._call
            self._heard = time.perf_counter()
            if route.notes is not None:
                route.notes.responded()
        except EngineError as error:
            failure = self._lost or error
            raise failure from None
        except asyncio.CancelledError:
            self._call.cancel()
            if self._lost is None:
                given_up = time.perf_counter() - self._arrived >= self._deadlines.first_token_s
                raise
            failure = self._lost
            raise failure from None
        finally:
            route.lose = None
            failed = failure is not None and failure.kind is ErrorKind.INTERNAL
            route.health.ended(self, given_up=given_up, failed=failed)
            if route.notes is not None:
                route.notes.ended(failure)
        return encoded
