"""An engine whose requests all carry one adapter; the weights are sent once, and again after the engine lost them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable
from typing import Any

from gateway.generation.engine import (
    AdapterNotCachedError,
    AdapterRejectedError,
    DescribingEngine,
    EngineChunk,
    EngineError,
    EngineFeatures,
    ErrorKind,
    TokenGenerator,
)
from gateway.generation.relay.interface import Began, Take, can_relay
from gateway.generation.request import GenerationRequest, LoraAdapter

_Start = Callable[[GenerationRequest], AsyncGenerator[EngineChunk, None]]


class LoraState:
    """An adapter, and whether the engine is assumed to hold it; shared by all requests of a served model.

    Attributes:
        adapter: the adapter, with its weights unless the engine loads them itself.
        model: the served model's name, for messages.
        held: whether the engine has responded with it.
    """

    def __init__(self, adapter: LoraAdapter, model: str) -> None:
        self.adapter = adapter
        self.model = model
        self.held = adapter.weights is None


class LoraEngine:
    """Adds the adapter to requests.

    Args:
        engine: the engine.
        state: state of the adapter.
    """

    def __init__(self, engine: TokenGenerator, state: LoraState) -> None:
        self._engine, self._state = engine, state

    @property
    def features(self) -> EngineFeatures:
        """The features of the engine behind this one."""
        return self._engine.features

    def describe(self, request: GenerationRequest) -> list[dict[str, Any]]:
        """The input tensors of a request; see ``gateway.generation.engine.DescribingEngine``."""
        return self._engine.describe(self._with(request)) if isinstance(self._engine, DescribingEngine) else []

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.TokenGenerator``.

        A request that finds the adapter gone is sent once more with the weights; its client notices nothing.

        Raises:
            AdapterRefusedError: naming the adapter, which the engine cannot use or does not have.
            EngineError: other failures of the engine.
        """
        return self._generate(request, self._engine.generate)

    def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``RelayingEngine``.

        An engine that is none relays nothing. Where the request is sent once more, ``began`` is called once more.
        """
        engine = self._engine
        if not can_relay(engine):
            return self.generate(request)
        relayed = engine.generate_relayed
        return self._generate(request, lambda adapted: relayed(adapted, take, began))

    async def _generate(self, request: GenerationRequest, start: _Start) -> AsyncGenerator[EngineChunk, None]:
        began = False
        try:
            async with contextlib.aclosing(start(self._with(request))) as chunks:
                async for chunk in chunks:
                    began = self._state.held = True
                    yield chunk
        except AdapterRejectedError as error:
            raise self._named(error) from None
        except AdapterNotCachedError as error:
            if began or self._state.adapter.weights is None:
                raise self._named(error) from None
        else:
            return
        self._state.held = False
        again = dataclasses.replace(request, id=f"{request.id}-again")
        try:
            async with contextlib.aclosing(start(self._with(again))) as chunks:
                async for chunk in chunks:
                    self._state.held = True
                    yield chunk
        except (AdapterRejectedError, AdapterNotCachedError) as error:
            raise self._named(error) from None

    def _named(self, error: EngineError) -> AdapterRejectedError:
        fault = "does not have" if isinstance(error, AdapterNotCachedError) else "cannot use"
        adapter = f"the LoRA adapter of model {self._state.model!r} (task {self._state.adapter.task_id})"
        return AdapterRejectedError(ErrorKind.INTERNAL, f"This deployment's engine {fault} {adapter}.", error.detail)

    def _with(self, request: GenerationRequest) -> GenerationRequest:
        state = self._state
        return dataclasses.replace(request, lora=state.adapter.by_id() if state.held else state.adapter)
