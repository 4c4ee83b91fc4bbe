"""The remaining limits of a caller, and the errors of exceeded limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gateway.http.access.buckets import Level
from gateway.http.access.caller import Caller

LimitName = Literal["requests_per_minute", "tokens_per_minute", "in_flight"]
_OF_REQUESTS, _OF_TOKENS = (
    tuple(f"x-ratelimit-{what}-{name}".encode() for what in ("limit", "remaining", "reset"))
    for name in ("requests", "tokens")
)


@dataclass(frozen=True, slots=True)
class RemainingLimits:
    """The remaining limits of a caller; None where a limit does not exist."""

    requests: Level | None = None
    tokens: Level | None = None

    def headers(self) -> list[tuple[str, str]]:
        """Make OpenAI's headers ``x-ratelimit-*``."""
        return [(name.decode(), value.decode()) for name, value in self.raw_headers()]

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Make OpenAI's headers ``x-ratelimit-*`` as bytes."""
        found = []
        for (limit, remaining, reset), level in ((_OF_REQUESTS, self.requests), (_OF_TOKENS, self.tokens)):
            if level is not None:
                found += [
                    (limit, b"%d" % level.limit),
                    (remaining, b"%d" % max(0, math.floor(level.left))),
                    (reset, duration(level.reset_s).encode()),
                ]
        return found


class LimitedError(Exception):
    """A request that exceeds a limit of its caller.

    Attributes:
        message: one sentence for the client.
        limit: the exceeded limit.
        retry_s: seconds until the request may be allowed; None where it never is.
        standing: what the caller has left, as far as it is known.
    """

    def __init__(
        self, message: str, limit: LimitName, retry_s: float | None, standing: RemainingLimits | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.limit = limit
        self.retry_s = retry_s
        self.standing = standing or RemainingLimits()

    @property
    def kind(self) -> str:
        """OpenAI's type of the error."""
        return "tokens" if self.limit == "tokens_per_minute" else "requests"

    def headers(self) -> dict[str, str]:
        """Make the headers of the limits, and ``retry-after`` in seconds and milliseconds."""
        found = dict(self.standing.headers())
        if self.retry_s is None:
            return {**found, "x-should-retry": "false"}
        milliseconds = max(1, math.ceil(self.retry_s * 1000))
        return {**found, "Retry-After": str(math.ceil(milliseconds / 1000)), "retry-after-ms": str(milliseconds)}


def too_many_requests(caller: Caller, level: Level) -> LimitedError:
    """Make the error of a request over the requests per minute."""
    wait = level.wait_s(1)
    message = f"Rate limit of {level.limit} requests per minute{_of(caller)} reached; try again in {duration(wait)}."
    return LimitedError(message, "requests_per_minute", wait, RemainingLimits(requests=level))


def tokens_not_left(caller: Caller, level: Level, cost: int) -> LimitedError:
    """Make the error of a request over the tokens per minute.

    Args:
        caller: the caller.
        level: the caller's bucket, which may hold a part of its limit.
        cost: tokens of the request.
    """
    standing, most = RemainingLimits(tokens=level), caller.limits.tokens_per_minute
    if most is not None and cost > most:
        message = (
            f"The request may use {cost} tokens for prompt and answer, but the rate limit is {most} tokens per "
            f"minute{_of(caller)}; shorten the prompt or lower the maximum number of tokens."
        )
        return LimitedError(message, "tokens_per_minute", None, standing)
    wait = level.wait_s(min(cost, level.limit))
    message = (
        f"Rate limit of {level.limit} tokens per minute{_of(caller)} reached: {max(0, math.floor(level.left))} tokens "
        f"are left and the request may use {cost}; try again in {duration(wait)}."
    )
    return LimitedError(message, "tokens_per_minute", wait, standing)


def too_many_in_flight(caller: Caller, limit: int) -> LimitedError:
    """Make the error of a request over the requests in flight."""
    reached = f"Limit of {limit} concurrent requests{_of(caller)} reached"
    return LimitedError(f"{reached}; try again when a running request has finished.", "in_flight", 1.0)


def _of(caller: Caller) -> str:
    return f" of {caller.name!r}" if caller.name else ""


def duration(seconds: float) -> str:
    """Write a duration in OpenAI's form, such as ``6m0s``, ``1.5s`` or ``250ms``, rounded up to milliseconds."""
    milliseconds = max(0, math.ceil(seconds * 1000 - 1e-6))
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds else "0s"
    minutes, rest = divmod(milliseconds, 60_000)
    shown = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{shown}"
    return f"{minutes}m{shown}" if minutes else shown
