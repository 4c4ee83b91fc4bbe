"""Settings to a store: which one, where, and what is said when there is none."""

from __future__ import annotations

import importlib.util
import logging
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from gateway.config import ConfigError, StateSettings
from gateway.store.bounds import Bounds
from gateway.store.interface import Store
from gateway.store.sqlite_file import ForeignFileError
from gateway.store.sqlite_store import SqliteStore

_log = logging.getLogger(__name__)


class StoreHolder:
    """The place of the application's store, which is there while the application runs.

    Attributes:
        store: None before it is opened, where the settings turn it off, and where its default file cannot be written.
    """

    def __init__(self, settings: StateSettings) -> None:
        self.store: Store | None = None
        self._settings = settings

    async def open(self) -> None:
        """Open the store.

        Raises:
            ConfigError: it cannot be used as configured.
        """
        self.store = await open_store(self._settings)

    async def close(self) -> None:
        """Close the store, if there is one."""
        store, self.store = self.store, None
        if store is not None:
            await store.close()


async def open_store(settings: StateSettings) -> Store | None:
    """Open the store that the settings describe.

    Returns:
        None where they turn it off; and, with a warning, where the default file cannot be written.

    Raises:
        ConfigError: a given file cannot be used, any file is damaged or not a store, Redis refuses the gateway, or a
            package is missing.
    """
    if settings.keys or settings.keys_file:
        _need("cryptography", "state.keys", "sealed")
    bounds = Bounds(settings.max_age_s, settings.max_bytes)
    if settings.store == "none":
        return None
    if settings.redis_url is not None:
        return await _open_redis(settings.redis_url.get_secret_value(), bounds)
    return await _open_file(settings.path, bounds)


def default_path(environment: Mapping[str, str] | None = None) -> Path:
    """The file of a store without a configured path, below ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    base = (os.environ if environment is None else environment).get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is invalid and is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path("~/.local/state").expanduser()
    return root / "triton-openai-gateway" / "state.sqlite"


async def _open_file(given: Path | None, bounds: Bounds) -> Store | None:
    path = given or default_path()
    store = SqliteStore(path, bounds)
    try:
        await store.open()
    except (OSError, sqlite3.OperationalError) as error:
        await store.close()
        if given is not None:
            raise ConfigError(f"state.path: {path} cannot be used ({error}).") from None
        _log.warning("no state is kept: %s cannot be used (%s); state.path names another file", path, error)
        return None
    except (sqlite3.Error, ForeignFileError) as error:
        await store.close()
        raise ConfigError(f"state.path: {path} is damaged or not a store ({error}); move it away.") from None
    return store


async def _open_redis(url: str, bounds: Bounds) -> Store:
    _need("redis", "state.store: redis", "redis")
    from gateway.store.redis_store import RedisStore  # noqa: PLC0415 - an extra

    try:
        store = RedisStore(url, bounds)
    except ValueError:  # its message may show a part of the password
        raise ConfigError("state.redis_url: is not a URL of Redis.") from None
    try:
        await store.open()
    except PermissionError as error:
        await store.close()
        raise ConfigError(f"state.redis_url: Redis refuses the gateway ({error}).") from None
    return store


def _need(package: str, setting: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            f"{setting}: needs the package {package}; install it by pip install 'triton-openai-gateway[{extra}]'."
        )
