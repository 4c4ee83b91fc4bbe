"""The limits of all callers, shared by gateways through Redis, or by this gateway's processes without it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from gateway.http.access.buckets import Level
from gateway.http.access.caller import Caller
from gateway.http.access.limits import RemainingLimits
from gateway.http.access.shared_buckets import SharedBuckets
from gateway.settings import KeyLimits
from gateway.telemetry.cooldown import Cooldown
from gateway.telemetry.supervision import end_tasks, keep_running
from gateway.text.bounded_dict import BoundedDict

if TYPE_CHECKING:
    from gateway.http.access.redis_limits import RedisLimits

_log = logging.getLogger(__name__)
_RENEW_S: Final = 8.0
_LOOK_S: Final = 1.0  # between looks for an unreachable Redis
_CLOSE_S: Final = 2.0
_MOST_UNSETTLED: Final = 10_000
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens that were reserved for a request, in Redis and in this gateway's buckets."""

    shared: int = 0
    here: int = 0

    def __add__(self, other: Reservation) -> Reservation:
        return Reservation(self.shared + other.shared, self.here + other.here)


class RateLimiter:
    """Counts requests and tokens against the limits of callers.

    Args:
        buckets: buckets that the processes of this gateway share.
        redis: limits that gateways share; None without Redis.
        gateways: number of gateways that share Redis.
    """

    def __init__(self, buckets: SharedBuckets, redis: RedisLimits | None = None, gateways: int = 1) -> None:
        self._buckets = buckets
        self._redis = redis
        self._gateways = gateways
        self._unreachable = False
        self._running: dict[str, Caller] = {}  # with a limit of requests in flight, by their leases
        # What ended requests have used, by their leases, which end by themselves.
        self._unsettled = BoundedDict[str, tuple[Caller, int]](_MOST_UNSETTLED)
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to renew leases."""
        if self._redis is not None:
            renew = functools.partial(self._renew, self._redis)
            self._watch = asyncio.create_task(keep_running("the renewal of leases in Redis", renew))

    async def close(self) -> None:
        """Wait a moment for settlements that are under way."""
        await end_tasks(self._watch)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        if self._redis is not None:
            await self._redis.close()

    async def admit(self, caller: Caller, lease: str) -> RemainingLimits:
        """Count a request as in flight; returns what its caller has left.

        Args:
            caller: the caller.
            lease: id of the request's lease.

        Raises:
            LimitedError: the request exceeds a limit; nothing is counted.
        """
        redis = self._redis
        if redis is None:
            return self._buckets.admit(caller, caller.limits)
        admitted = None if self._unreachable else await self._asked(lambda: redis.admit(caller, caller.limits, lease))
        if admitted is None:
            standing = self._buckets.admit(caller, self._own(caller.limits))
        else:
            standing = admitted[0]
            self._buckets.count(caller, 1)  # for the time without Redis
        self._running[lease] = caller
        return standing

    async def reserve(self, caller: Caller, lease: str, tokens: int) -> tuple[Level | None, Reservation]:
        """Reserve the tokens that a request may use; returns what is left, and the reservation.

        Raises:
            LimitedError: the caller has too few tokens left; nothing is reserved.
        """
        redis = self._redis
        if redis is not None and not self._unreachable:
            reserved = await self._asked(lambda: redis.reserve(caller, caller.limits, lease, tokens))
            if reserved is not None:
                return reserved[0], Reservation(shared=tokens)
        return self._buckets.reserve(caller, self._own(caller.limits), tokens), Reservation(here=tokens)

    def settle(self, caller: Caller, lease: str, reserved: Reservation, used: int) -> None:
        """End an admitted request, and settle its tokens.

        Args:
            caller: the caller.
            lease: id of the request's lease.
            reserved: all reservations of the request.
            used: used tokens; those above the reserved ones become a debt.
        """
        redis = self._redis
        self._running.pop(lease, None)
        used_here = max(0, used - reserved.shared) if reserved.here or redis is None else 0
        self._buckets.settle(caller, self._own(caller.limits), reserved.here - used_here)
        if redis is not None:
            self._unsettled[lease] = (caller, used - used_here)
            if not self._unreachable:
                task = asyncio.create_task(self._settle(redis, lease))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _settle(self, redis: RedisLimits, lease: str) -> None:
        """Settle a request in Redis, now or when it is back."""
        if lease in self._unsettled:
            caller, used = self._unsettled[lease]
            if await self._asked(lambda: redis.settle(caller, caller.limits, lease, used)) is not None:
                self._unsettled.pop(lease, None)

    async def _asked(self, ask: Callable[[], Awaitable[Result]]) -> tuple[Result] | None:
        """Return what Redis says; None where it is unreachable."""
        from redis.exceptions import RedisError  # noqa: PLC0415 - an extra

        try:
            found = await ask()
        except (RedisError, OSError) as error:
            if not self._unreachable:
                self._unreachable = True
                part = f"1/{self._gateways} of each limit" if self._gateways > 1 else "the whole of each limit"
                _log.error(
                    "limits are not shared, this gateway applies %s because Redis cannot be used: %s",
                    part,
                    error,
                    extra={"event": "limits_not_shared"},
                )
            return None
        return (found,)

    async def _renew(self, redis: RedisLimits) -> None:
        """Renew leases, and look for an unreachable Redis."""
        renewals = Cooldown(_RENEW_S)
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._unreachable or renewals.due():
                answered = await self._asked(
                    lambda: redis.renew([(caller, lease) for lease, caller in self._running.items()])
                )
                if answered is not None and self._unreachable:
                    self._unreachable = False
                    _log.warning("limits are shared again: Redis can be used", extra={"event": "limits_shared"})
                    await asyncio.gather(*(self._settle(redis, lease) for lease in list(self._unsettled)))

    def _own(self, limits: KeyLimits) -> KeyLimits:
        """The part of limits that this gateway takes by itself."""
        if self._redis is None or self._gateways == 1:
            return limits
        return KeyLimits(
            requests_per_minute=self._part(limits.requests_per_minute),
            tokens_per_minute=self._part(limits.tokens_per_minute),
            in_flight=self._part(limits.in_flight),
            max_tokens=limits.max_tokens,
        )

    def _part(self, limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // self._gateways)
