"""Opens the store that the settings describe."""

from __future__ import annotations

import importlib.util
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path

from gateway.serving.store.interface import Store, StoreBounds
from gateway.serving.store.sqlite_store import ForeignFileError, SqliteStore, check_file, check_folder
from gateway.settings import ConfigError, StateSettings
from gateway.settings.extras import pip_install

_log = logging.getLogger(__name__)
_HOMELESS = "responses are not stored because this user has no home directory; set state.path"


class StoreHolder:
    """Holds the application's store while the application runs.

    Attributes:
        store: the store; None before it is opened, where settings turn it off, and without a writable default file.
    """

    def __init__(self, settings: StateSettings, wrap: Callable[[Store], Store] = lambda store: store) -> None:
        """Prepare.

        Args:
            settings: of the state.
            wrap: is given the store when it is open, and makes the one that is used.
        """
        self.store: Store | None = None
        self._settings = settings
        self._wrap = wrap

    async def open(self) -> None:
        """Open the store.

        Raises:
            ConfigError: it cannot be used as configured.
        """
        store = await open_store(self._settings)
        self.store = None if store is None else self._wrap(store)

    async def close(self) -> None:
        """Close the store; without effect where none is open."""
        store, self.store = self.store, None
        if store is not None:
            await store.close()


async def open_store(settings: StateSettings) -> Store | None:
    """Open the store that the settings describe.

    Returns:
        The store; None where the settings turn it off, and, with a warning, where its default file cannot be written.

    Raises:
        ConfigError: a given file cannot be used, any file is damaged or not a store, Redis rejects the gateway, or a
            package is missing.
    """
    _check_packages(settings)
    bounds = StoreBounds(settings.max_age_s, settings.max_bytes)
    if settings.store == "none":
        return None
    if settings.store == "redis" and settings.redis_url is not None:
        return await _open_redis(settings.redis_url.get_secret_value(), bounds)
    return await _open_file(settings.path, bounds)


def check_state(settings: StateSettings) -> str | None:
    """Check whether the store of the settings could be opened; no file is made or changed.

    Returns:
        Why there would be no state, without a full stop; None without a reason. Redis is not tried.

    Raises:
        ConfigError: a start would fail with this error.
    """
    _check_packages(settings)
    if settings.store != "sqlite":
        return None
    path = settings.path or default_path()
    if path is None:
        return _HOMELESS
    try:
        if path.exists():
            check_file(path)
        else:
            check_folder(path)
    except (OSError, sqlite3.Error, ForeignFileError) as error:
        return _unusable(path, error, given=settings.path is not None)
    return None


def _unusable(path: Path, error: Exception, *, given: bool) -> str:
    """Return why state is not stored.

    Raises:
        ConfigError: the gateway must not run without state: the file was given, or is damaged or not a store.
    """
    if not isinstance(error, OSError | sqlite3.OperationalError):
        raise ConfigError(f"state.path: {path} is damaged or not a store ({error}); move the file.") from None
    if given:
        raise ConfigError(f"state.path: {path} cannot be used ({error}).") from None
    return f"responses are not stored because {path} cannot be used ({error}); set state.path"


def default_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """The default file of a store, below ``$XDG_STATE_HOME`` or ``~/.local/state``.

    Returns:
        The path; None without either folder, as a container's user may have no home.
    """
    base = (os.environ if environment is None else environment).get("XDG_STATE_HOME", "")
    # The XDG specification: a relative path is invalid and is to be ignored.
    try:
        root = Path(base) if base and Path(base).is_absolute() else Path("~/.local/state").expanduser()
    except RuntimeError:
        return None
    return root / "triton-openai-gateway" / "state.sqlite"


async def _open_file(given: Path | None, bounds: StoreBounds) -> Store | None:
    path = given or default_path()
    if path is None:
        _log.warning(_HOMELESS, extra={"event": "store_not_opened"})
        return None
    store = SqliteStore(path, bounds)
    try:
        await store.open()
    except (OSError, sqlite3.Error, ForeignFileError) as error:
        await store.close()
        _log.warning(_unusable(path, error, given=given is not None), extra={"event": "store_not_opened"})
        return None
    return store


async def _open_redis(url: str, bounds: StoreBounds) -> Store:
    from gateway.serving.store.redis_store import RedisStore  # noqa: PLC0415 - an extra

    try:
        store = RedisStore(url, bounds)
    except ValueError:  # its message may show a part of the password
        raise ConfigError("state.redis_url: must be a Redis URL.") from None
    try:
        await store.open()
    except PermissionError as error:
        await store.close()
        raise ConfigError(f"state.redis_url: Redis rejected the connection ({error}).") from None
    return store


def _check_packages(settings: StateSettings) -> None:
    if settings.keys or settings.keys_file:
        _need("cryptography", "state.keys", "encryption")
    if settings.store == "redis":
        _need("redis", "state.store: redis", "redis")


def _need(package: str, setting: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"{setting}: needs the package {package}; install it by {pip_install(extra)}")
