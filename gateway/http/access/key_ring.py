"""Finds accepted API keys by their digests."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.http.access.caller import Caller
from gateway.settings import AuthSettings, ConfigError, KeySettings
from gateway.settings.settings_validation import validate_keys
from gateway.settings.yaml_file import read_document


@dataclass(frozen=True, slots=True)
class Key:
    """An accepted key.

    Attributes:
        caller: the key's caller.
        owner: owner of the caller's stored data.
        digest: SHA-256 of the key.
        expires: Unix time of its expiry; None: never.
    """

    caller: Caller
    owner: bytes
    digest: bytes
    expires: float | None = None


class KeyRing:
    """The accepted keys.

    A key is 32 random bytes, out of reach of trying: SHA-256 is as good for it as a slow hash, which would only let
    unknown clients spend the gateway's time. The search takes as long for any key: one digest, one look into a table
    whose order is not known outside, one comparison in constant time.

    Args:
        plain: keys without names.
        named: keys with names; they replace plain keys with the same digest.
        clock: Unix time in seconds.
    """

    def __init__(
        self, plain: Iterable[str], named: Iterable[KeySettings] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        digests = (hashlib.sha256(key.encode()).digest() for key in plain)
        self._keys = {digest: Key(Caller(f"digest:{digest.hex()}"), digest, digest) for digest in digests}
        self._keys |= {key.digest: key for key in map(_of_settings, named)}
        self._none = Key(Caller(), b"", hashlib.sha256(b"").digest())

    def find(self, key: bytes) -> Key | None:
        """Find a key, also an expired one; None for an unknown key."""
        digest = hashlib.sha256(key).digest()
        found = self._keys.get(digest, self._none)
        return found if hmac.compare_digest(found.digest, digest) and found is not self._none else None

    def expired(self, key: Key) -> bool:
        """Tell whether a key has expired."""
        return key.expires is not None and key.expires <= self._clock()

    def names(self) -> list[str]:
        """The names of all named keys, expired ones included."""
        return [key.caller.name for key in self._keys.values() if key.caller.name]


def _of_settings(key: KeySettings) -> Key:
    who = Caller(
        id=f"key:{key.name}",
        name=key.name,
        models=None if key.models is None else frozenset(key.models),
        limits=key.limits,
        weight=key.weight,
    )
    return Key(who, owner_of_name(who.id), bytes.fromhex(key.hash.partition(":")[2]), _timestamp(key.expires))


def owner_of_name(identity: str) -> bytes:
    """Make the owner of a named caller's stored data, the same for all of its keys, later ones too."""
    return hashlib.sha256(f"caller:{identity}".encode()).digest()


def _timestamp(moment: dt.datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def read_keys(path: Path) -> tuple[KeySettings, ...]:
    """Read a key file.

    Raises:
        ConfigError: the file cannot be read, or has mistakes; with the lines of all of them.
    """
    keys, problems = validate_keys(read_document(path, "key file"))
    if problems:
        raise ConfigError.of(problems, path)
    return keys


def named_keys(settings: AuthSettings) -> Sequence[KeySettings]:
    """Read the keys of the settings and of their key file.

    Raises:
        ConfigError: the file cannot be used, or has a name or a hash of the settings.
    """
    if settings.keys_file is None:
        return settings.keys
    own, others = settings.keys, read_keys(settings.keys_file)
    for what in ("name", "hash"):
        taken = {getattr(key, what) for key in own}
        for key in others:
            if getattr(key, what) in taken:
                raise ConfigError(f"{settings.keys_file}: the key {key.name!r} has the {what} of a key in auth.keys.")
    return (*own, *others)
