"""Ends reasoning at its budget, and continues the answer behind the end of the reasoning.

The reasoning is read as it comes. Once it has used its tokens, the request is cancelled, and another one is sent: its
prompt has the first prompt, the generated tokens and the end of the reasoning, as token ids. The reader of the chunks
sees one answer. Reasoning that ends by itself costs only the reading.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Iterator
from typing import Protocol

from gateway.generation.engine import EngineChunk, EngineFeatures, ForcedChunk, TokenGenerator
from gateway.generation.relay.interface import Began, Take, can_relay
from gateway.generation.request import GenerationRequest
from gateway.text.guides.guide import Guide

_MOST_ENDS = 4  # ends of reasoning in one answer: some models reason again
_SEEDS = 2**64
_NEXT_SEED = 0x9E3779B97F4A7C15  # added to the seed, so that an answer and its reasoning use different random numbers


@dataclasses.dataclass(frozen=True, slots=True)
class ReasoningBudget:
    """The budget of an answer's reasoning.

    Attributes:
        tokens: most tokens of the reasoning, from 0.
        end: token ids that end it.
        guide: guide of the answer behind it; None without one.
    """

    tokens: int
    end: tuple[int, ...]
    guide: Guide | None


class ReasoningReader(Protocol):
    """Reads an answer, and knows whether its reasoning continues."""

    @property
    def thinking(self) -> bool:
        """Whether the next text is reasoning, as far as is known."""
        ...


class BudgetedEngine:
    """Generates one answer within a reasoning budget.

    Args:
        engine: an engine whose prompts and answers are token ids.
        budget: the reasoning budget.
        thinker: has read each chunk before it asks for the next.
    """

    def __init__(self, engine: TokenGenerator, budget: ReasoningBudget, thinker: ReasoningReader) -> None:
        self._engine, self._budget, self._thinker = engine, budget, thinker
        self._thought = 0  # tokens of reasoning so far
        self._generated: list[int] = []  # by the request that runs
        self._ends = 0  # of thoughts, so far
        self._end_sent = True  # whether the last end has gone to the reader

    @property
    def features(self) -> EngineFeatures:
        """The features of the engine behind this one."""
        return self._engine.features

    def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence; see ``gateway.generation.engine.TokenGenerator``."""
        return self.generate_relayed(request, None, None)

    async def generate_relayed(
        self, request: GenerationRequest, take: Take | None, began: Began | None
    ) -> AsyncGenerator[EngineChunk, None]:
        """Generate one sequence without the relay, as all of it is read; see ``RelayingEngine``."""
        del take
        if self._spent(request):
            request = self._behind(request)
        while True:
            async with contextlib.aclosing(self._run(request, began)) as chunks:
                async for chunk in chunks:
                    yield chunk
            if not self._spent(request):
                return
            request = self._behind(request)

    def _spent(self, request: GenerationRequest) -> bool:
        """Whether the thought is to be ended here: it has used its budget, and there is room for an answer."""
        if not self._thinker.thinking or self._thought < self._budget.tokens or self._ends == _MOST_ENDS:
            return False
        return request.max_tokens > len(self._generated) + len(self._budget.end)

    async def _run(self, request: GenerationRequest, began: Began | None) -> AsyncGenerator[EngineChunk, None]:
        """Generate to the end of the answer, or until the budget is used up."""
        async with contextlib.aclosing(self._start(request, began)) as chunks:
            async for chunk in chunks:
                if not self._end_sent:  # not before the engine has taken the request
                    self._end_sent = True
                    yield ForcedChunk(ids=self._budget.end)
                for part in _one_by_one(_continued(chunk) if self._ends else chunk):
                    if self._thinker.thinking:
                        self._thought += len(part.ids)
                    self._generated += part.ids
                    yield part
                    if self._spent(request):
                        return

    def _start(self, request: GenerationRequest, began: Began | None) -> AsyncGenerator[EngineChunk, None]:
        engine = self._engine
        return engine.generate_relayed(request, None, began) if can_relay(engine) else engine.generate(request)

    def _behind(self, request: GenerationRequest) -> GenerationRequest:
        """The request that goes on behind the end of the thought."""
        added = (*self._generated, *self._budget.end)
        self._generated = []
        self._ends += 1
        self._end_sent = False
        params = dataclasses.replace(
            request.params, guide=self._budget.guide, min_tokens=max(request.params.min_tokens - len(added), 0)
        )
        return dataclasses.replace(
            request,
            id=f"{request.id}-on",
            prompt=dataclasses.replace(request.prompt, ids=(*request.prompt.ids, *added)),
            max_tokens=request.max_tokens - len(added),
            params=params,
            seed=(request.seed + _NEXT_SEED) % _SEEDS,
            draft=(),
            draft_limit=None,
        )


def _one_by_one(chunk: EngineChunk) -> Iterator[EngineChunk]:
    """The tokens of a chunk one by one, and what it says of the answer's end behind them."""
    ends = chunk.final or chunk.finish_reason is not None or chunk.failure is not None
    if not chunk.ids or (len(chunk.ids) == 1 and not ends):
        yield chunk
        return
    for place, index in enumerate(chunk.ids):
        part = EngineChunk(
            ids=(index,),
            logprobs=None if chunk.logprobs is None else chunk.logprobs[place : place + 1],
            top_logprobs=None if chunk.top_logprobs is None else chunk.top_logprobs[place : place + 1],
        )
        if not place:
            part.prompt_tokens, part.prompt_logprobs = chunk.prompt_tokens, chunk.prompt_logprobs
            part.prompt_top_logprobs, part.prompt_ranks = chunk.prompt_top_logprobs, chunk.prompt_ranks
        yield part
    if ends:
        yield EngineChunk(
            finish_reason=chunk.finish_reason,
            failure=chunk.failure,
            final=chunk.final,
            cached_tokens=chunk.cached_tokens,
        )


def _continued(chunk: EngineChunk) -> EngineChunk:
    """A chunk without what counts the tokens of its own prompt, which is not the client's."""
    if chunk.prompt_tokens is None and chunk.cached_tokens is None:
        return chunk
    return dataclasses.replace(chunk, prompt_tokens=None, cached_tokens=None)
