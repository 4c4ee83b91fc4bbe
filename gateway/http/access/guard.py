"""Access control as the settings configure it, with its background tasks."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from gateway.http.access.caller import Caller
from gateway.http.access.identity import Identity
from gateway.http.access.key_ring import KeyRing, named_keys
from gateway.http.access.permit import CallerCounters, Permit, has_limits
from gateway.http.access.rate_limiter import RateLimiter
from gateway.http.access.shared_buckets import SharedBuckets
from gateway.settings import AuthSettings, ConfigError, KeySettings, Settings
from gateway.settings.extras import pip_install
from gateway.settings.settings_source import stamp_of
from gateway.telemetry.supervision import end_tasks, keep_running

if TYPE_CHECKING:
    from gateway.http.access.redis_limits import RedisLimits
    from gateway.http.access.tokens import TokenChecker

_log = logging.getLogger(__name__)
_EXTRAS: Final = {"redis": "redis", "jwt": "jwt", "cryptography": "jwt"}


@dataclass(frozen=True, slots=True)
class Keys:
    """The accepted named keys.

    Attributes:
        auth: the settings of access control.
        named: keys of the settings and of the key file.
        stamp: identity of the key file, which changes with the file; None without a file.
    """

    auth: AuthSettings
    named: Sequence[KeySettings]
    stamp: tuple[int, ...] | None


class Guard:
    """Identifies callers and enforces their limits.

    Args:
        settings: the gateway's settings.
        counters: counters of the callers' requests and tokens.
        buckets: buckets that the processes of this gateway share; None for one process.

    Attributes:
        identity: finds the caller of a request.

    Raises:
        ConfigError: the keys cannot be used, or a package is missing.
    """

    def __init__(self, settings: Settings, counters: CallerCounters, buckets: SharedBuckets | None = None) -> None:
        check_packages(settings.auth)
        self._plain = tuple(key.get_secret_value() for key in settings.server.api_keys)
        self._auth = settings.auth
        self._poll_s = settings.server.reload_s
        self._counters = counters
        self._seen = stamp_of(settings.auth.keys_file)
        self.identity = Identity(KeyRing(self._plain, named_keys(settings.auth)), _checker(settings.auth))
        self._limiter = RateLimiter(buckets or SharedBuckets(), _redis(settings.auth), settings.auth.gateways)
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Fetch the identity provider's keys, and begin to watch the key file."""
        if self.identity.tokens is not None:
            await self.identity.tokens.source.look()
        self._limiter.open()
        if self._poll_s:
            self._watch = asyncio.create_task(keep_running("the watcher of the key file", self._follow))

    async def close(self) -> None:
        """End the background tasks."""
        await end_tasks(self._watch)
        await self._limiter.close()

    def permit(self, caller: Caller) -> Permit | None:
        """Make the permit of a request; None for a caller with neither name nor limits."""
        if not (caller.name or has_limits(caller)):
            return None
        return Permit(caller, self._limiter, self._counters, self._auth.assumed_max_tokens)

    async def read(self, auth: AuthSettings) -> Keys:
        """Read the keys of new settings.

        Raises:
            ConfigError: the keys cannot be used.
        """
        stamp = await anyio.to_thread.run_sync(stamp_of, auth.keys_file)  # before reading, to notice later changes
        return Keys(auth, await anyio.to_thread.run_sync(named_keys, auth), stamp)

    def take(self, keys: Keys) -> None:
        """Replace the accepted keys."""
        self._auth, self._seen = keys.auth, keys.stamp
        self.identity.keys = KeyRing(self._plain, keys.named)

    async def _follow(self) -> None:
        """Read the file of keys again when it has changed, and has not since the last look."""
        last = self._seen
        while True:
            await asyncio.sleep(self._poll_s)
            if self._auth.keys_file is None:
                continue
            stamp = await anyio.to_thread.run_sync(stamp_of, self._auth.keys_file)
            settled, last = stamp == last, stamp
            if settled and stamp is not None and stamp != self._seen:
                await self._read_again()

    async def _read_again(self) -> None:
        try:
            keys = await self.read(self._auth)
        except ConfigError as error:
            self._seen = await anyio.to_thread.run_sync(stamp_of, self._auth.keys_file)
            for line in str(error).splitlines():
                _log.error(
                    "keys not reloaded, the previous keys stay in use: %s", line, extra={"event": "keys_refused"}
                )
            return
        self.take(keys)
        _log.info("keys reloaded", extra={"event": "keys_reloaded", "keys": len(keys.named)})


def check_packages(auth: AuthSettings) -> None:
    """Check that the packages that the settings need are installed.

    Raises:
        ConfigError: one is missing.
    """
    needed = [("redis", "auth.redis_url")] if auth.redis_url is not None else []
    if auth.jwt is not None:
        needed += [("jwt", "auth.jwt"), ("cryptography", "auth.jwt")]
    for package, setting in needed:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"{setting}: needs the package {'PyJWT' if package == 'jwt' else package}; install it by"
                f" {pip_install(_EXTRAS[package])}"
            )


def _checker(auth: AuthSettings) -> TokenChecker | None:
    if auth.jwt is None:
        return None
    from gateway.http.access.tokens import TokenChecker  # noqa: PLC0415 - an extra

    return TokenChecker(auth.jwt)


def _redis(auth: AuthSettings) -> RedisLimits | None:
    if auth.redis_url is None:
        return None
    from gateway.http.access.redis_limits import RedisLimits  # noqa: PLC0415 - an extra

    try:
        return RedisLimits(auth.redis_url.get_secret_value())
    except ValueError:  # its message may show a part of the password
        raise ConfigError("auth.redis_url: must be a Redis URL.") from None
