"""Settings of the state that is kept between requests: stored responses and conversations."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.section import Seconds, Section, at_home, split_commas

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
_DAY_S = 86400.0


class StateSettings(Section):
    """Where responses and conversations are kept between requests, and how long.

    Attributes:
        store: ``sqlite`` for one file, ``redis`` where gateways on several machines share it, ``none``.
        path: the file of SQLite; by default one below ``$XDG_STATE_HOME`` or ``~/.local/state``.
        redis_url: such as ``redis://user:password@host:6379/0``, ``rediss://`` with TLS, or ``unix://``.
        max_age_s: seconds from the last write, after which something stored is gone.
        max_bytes: of everything that is stored; beyond it the oldest goes first.
        keys: Fernet keys for reasoning that clients hold sealed: the first one seals, all of them open.
        keys_file: a file with such keys, one a line, after those of ``keys``.
    """

    store: Literal["sqlite", "redis", "none"] = "sqlite"
    path: Path | None = None
    redis_url: SecretStr | None = None
    max_age_s: Seconds = Field(default=30 * _DAY_S, gt=0)
    max_bytes: int = Field(default=2**30, ge=2**20)
    keys: tuple[SecretStr, ...] = ()
    keys_file: Path | None = None

    _split_keys = field_validator("keys", mode="before")(split_commas)

    @field_validator("keys")
    @classmethod
    def _are_fernet_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in value:
            check_fernet_key(key.get_secret_value())
        return value

    _home = field_validator("path", "keys_file")(at_home)

    @field_validator("redis_url")
    @classmethod
    def _is_redis_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(_REDIS_SCHEMES):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return value

    @model_validator(mode="after")
    def _url_fits(self) -> StateSettings:
        if self.store == "redis" and self.redis_url is None:
            raise ValueError("store redis needs redis_url")
        if self.store == "sqlite" and self.redis_url is not None:
            raise ValueError("redis_url is given, but store is sqlite; write store: redis")
        return self


def check_fernet_key(key: str) -> None:
    """Check the form of a Fernet key, 32 bytes in URL-safe base64 (https://github.com/fernet/spec).

    Raises:
        ValueError: it has another; the message does not show the key.
    """
    try:
        size = len(base64.b64decode(key, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 32:
        raise ValueError("a key must be 32 bytes in URL-safe base64, as Fernet.generate_key() of cryptography makes it")
