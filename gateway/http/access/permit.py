"""The permit of a request: its place in flight, and its tokens from reservation to settlement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from gateway.generation import SamplingParams, Usage
from gateway.generation.ids import new_id
from gateway.http.access.caller import Caller, caller
from gateway.http.access.limits import LimitedError, RemainingLimits
from gateway.http.access.rate_limiter import RateLimiter, Reservation
from gateway.text.bad_request import BadRequestError


class CallerCounters(Protocol):
    """Counts the requests and tokens of callers."""

    def request(self, caller: Caller) -> None:
        """Count a request."""
        ...

    def tokens(self, caller: Caller, prompt: int, completion: int) -> None:
        """Count used tokens."""
        ...

    def limited(self, caller: Caller, limit: str) -> None:
        """Count a request that a limit rejected."""
        ...


class Permit:
    """The permit of one request, from its admission until all of its work has ended.

    Attributes:
        standing: what the caller had left of its limits at the last call.
    """

    def __init__(self, caller: Caller, limiter: RateLimiter, counters: CallerCounters, assumed_max_tokens: int) -> None:
        """Describe it; nothing is taken before ``admit``.

        Args:
            caller: sends the request.
            limiter: of all callers.
            counters: of what they do.
            assumed_max_tokens: reserved for an answer where the request does not say.
        """
        self.standing = RemainingLimits()
        self._caller = caller
        self._limiter = limiter
        self._counters = counters
        self._assumed = assumed_max_tokens
        self._lease = new_id()
        self._limited = has_limits(caller)
        self._reserved = Reservation()
        self._used = 0
        self._holders = 1

    async def admit(self) -> None:
        """Count the request as in flight, until ``release``.

        Raises:
            LimitedError: the request exceeds a limit; nothing is counted, and ``release`` is not to be called.
        """
        self._counters.request(self._caller)
        if not self._limited:
            return
        try:
            self.standing = await self._limiter.admit(self._caller, self._lease)
        except LimitedError as error:
            self._counters.limited(self._caller, error.limit)
            raise

    async def reserve(self, prompt: int, answers: Sequence[int] = (), *, explicit: bool = True) -> UsageTally:
        """Reserve the tokens that a prompt and its answers may use.

        Args:
            prompt: tokens of the prompt.
            answers: the most tokens of each answer.
            explicit: whether the client has set the most tokens.

        Returns:
            A tally of the tokens that the answers really use.

        Raises:
            LimitedError: the caller has too few tokens left.
        """
        limit = self._caller.limits.tokens_per_minute
        if limit is not None:
            if not explicit:
                room = max(1, (limit - prompt) // len(answers))
                answers = [min(each, self._assumed, room) for each in answers]
            try:
                level, taken = await self._limiter.reserve(self._caller, self._lease, prompt + sum(answers))
            except LimitedError as error:
                self._counters.limited(self._caller, error.limit)
                raise
            self.standing = RemainingLimits(self.standing.requests, level)
            self._reserved += taken
        return UsageTally(self)

    def spend(self, prompt: int, completion: int) -> None:
        """Count used tokens."""
        self._used += prompt + completion
        self._counters.tokens(self._caller, prompt, completion)

    def hold(self) -> None:
        """Keep the permit for work that continues after the response, until one more ``release``."""
        self._holders += 1

    def release(self) -> None:
        """Release the permit; the last release settles the reserved tokens by the used ones."""
        self._holders -= 1
        if self._holders == 0 and self._limited:
            self._limiter.settle(self._caller, self._lease, self._reserved, self._used)


class UsageTally:
    """The tokens that the generations of one prompt have used; the prompt counts once."""

    def __init__(self, permit: Permit) -> None:
        """Spend what ``permit`` has reserved."""
        self._permit = permit
        self._prompt_counted = False

    def ended(self, usage: Usage) -> None:
        """Count the tokens of an ended generation."""
        self._permit.spend(0 if self._prompt_counted else usage.prompt_tokens, usage.completion_tokens)
        self._prompt_counted = True


_PERMIT: ContextVar[Permit | None] = ContextVar("permit", default=None)


permit: Final[Callable[[], Permit | None]] = _PERMIT.get
"""The permit of the request that the running task serves; None where none is needed."""


def grant(permit: Permit) -> None:
    """Set the permit of the running task and of all tasks that it starts."""
    _PERMIT.set(permit)


def has_limits(caller: Caller) -> bool:
    """Tell whether a caller has limits that count its requests."""
    limits = caller.limits
    return not (limits.requests_per_minute is limits.tokens_per_minute is limits.in_flight is None)


def bounded(params: SamplingParams) -> SamplingParams:
    """Reduce the token limit of an answer to the limit of its caller.

    Raises:
        BadRequestError: the request asks for more.
    """
    most = caller().limits.max_tokens
    if most is None:
        return params
    if params.max_tokens is None:
        return dataclasses.replace(params, max_tokens=most, clamp_max_tokens=True)
    if params.max_tokens > most:
        message = (
            f"This API key allows at most {most} tokens for an answer, but the request asks for {params.max_tokens}."
        )
        raise BadRequestError(message, params.max_tokens_name, "integer_above_max_value")
    return params
