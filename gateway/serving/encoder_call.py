"""One request to an encoder: its turn, its endpoint and the retry on another one, and its deadline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import cast

import anyio

from gateway.generation.encoder import EncodedItems, Encoder, EncoderRequest
from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.route import AdmittedGeneration, Route
from gateway.generation.token_counts import Usage
from gateway.telemetry.metrics import ModelMetrics
from gateway.telemetry.traces import current_trace


class EncoderCall:
    """A request to an encoder.

    Args:
        request: request to the encoder.
        enter: waits for the turn of the request.
        find: chooses its route.
        limit_s: seconds from the arrival within which the engine must respond.
        metrics: counters of the served model.
        arrived: ``time.perf_counter()`` at the arrival of the HTTP request.

    Attributes:
        address: address of the last endpoint, where there are several; else empty.
    """

    def __init__(
        self,
        request: EncoderRequest,
        *,
        enter: Callable[[], Awaitable[AdmittedGeneration]],
        find: Callable[[], Awaitable[Route]],
        limit_s: float,
        metrics: ModelMetrics,
        arrived: float,
    ) -> None:
        self.request = request
        self.address = ""
        self._enter = enter
        self._find = find
        self._limit_s = limit_s
        self._metrics = metrics
        self._arrived = arrived
        self._responded_at: float | None = None
        self._counted: int | None = None  # tokens, by the model
        self._lost: EngineError | None = None  # why the call was ended
        self._aborted: EngineError | None = None
        self._scope: anyio.CancelScope | None = None  # while it runs
        self._trace = current_trace()
        self._call: anyio.CancelScope | None = None  # the route's scope

    @property
    def prompt_tokens(self) -> int:
        """The known tokens of the inputs; see ``gateway.generation.health.WatchedRequest``."""
        return sum(len(item.ids) for item in self.request.items) if self._counted is None else self._counted

    def responded_at(self) -> float | None:
        """``time.perf_counter()`` at the response; see ``gateway.generation.health.WatchedRequest``."""
        return self._responded_at

    def lost(self) -> None:
        """Move to another endpoint, or fail; see ``gateway.generation.health.WatchedRequest``."""
        self._lose(EngineError(ErrorKind.UNAVAILABLE, "The model became unavailable before it responded."))

    def abort(self, error: EngineError) -> None:
        """End the request with an error; without effect before its start and after its end."""
        if self._scope is not None:
            self._aborted = error
            self._scope.cancel()

    def _lose(self, error: EngineError) -> None:
        """Go elsewhere: the engine was found dead."""
        if self._call is not None:
            self._lost = error
            self._call.cancel()

    async def run(self) -> EncodedItems:
        """Wait for the turn, and encode.

        Raises:
            EngineError: the request failed on each endpoint that was tried, or took too long.
        """
        metrics = self._metrics
        metrics.in_flight.inc()
        left = self._limit_s - (time.perf_counter() - self._arrived)
        admitted: AdmittedGeneration | None = None
        try:
            with anyio.move_on_after(max(0.0, left)) as self._scope:
                admitted = await self._wait_for_turn()
                return await self._encode()
            late = f"The model did not respond within {self._limit_s:g} seconds."
            raise self._aborted or EngineError(ErrorKind.TIMEOUT, late)
        finally:
            self._scope = None
            metrics.in_flight.dec()
            if admitted is not None:
                admitted.leave(self.prompt_tokens)

    async def _wait_for_turn(self) -> AdmittedGeneration:
        with contextlib.nullcontext() if self._trace is None else self._trace.step("queue"):
            admitted = await self._enter()
        if admitted.waited_s:
            self._metrics.waits.observe(admitted.waited_s)
        return admitted

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
        self.address, self._lost, self._responded_at = route.address, None, None
        traced = None if self._trace is None else self._trace.call(self.request, self._metrics.model, route.address)
        request = self.request if traced is None else traced.carried(self.request)
        route.lose = self._lose
        if route.notes is not None:
            route.notes.began()
        route.health.began(self)
        encoded: EncodedItems | None = None
        failure: EngineError | None = None
        try:
            with anyio.CancelScope() as self._call:
                encoded = await cast("Encoder", route.engine).encode(request)
                self._responded_at = time.perf_counter()
                self._counted = None if encoded.token_counts is None else sum(encoded.token_counts)
                if route.notes is not None:
                    route.notes.responded()
        except EngineError as error:
            failure = self._lost or error
        finally:
            failure = failure or (self._lost if encoded is None else None)
            self._leave(route, failure)
            if traced is not None:
                error_type = failure.kind.value if failure else "cancelled" if encoded is None else None
                traced.ended(Usage(self.prompt_tokens, 0) if encoded else None, None, error_type, None)
        if failure is not None:
            raise failure
        return cast("EncodedItems", encoded)

    def _leave(self, route: Route, failure: EngineError | None) -> None:
        """Tell the route how the request ended; without a response and a failure it was cancelled."""
        late = time.perf_counter() - self._arrived >= self._limit_s
        given_up = self._responded_at is None and failure is None and self._aborted is None and late
        route.lose = None
        route.health.ended(self, given_up=given_up, failed=failure is not None and failure.kind is ErrorKind.INTERNAL)
        if route.notes is not None:
            route.notes.ended(failure)
