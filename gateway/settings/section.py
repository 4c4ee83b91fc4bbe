"""The base of all sections of the settings, and types of values that several sections have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr

Seconds = float


class Section(BaseModel):
    """A mapping in the settings: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def split_commas(value: object) -> object:
    """Split a text at commas, as in environment variables; other values stay."""
    if isinstance(value, str):
        return [part for part in (part.strip() for part in value.split(",")) if part]
    return value


def at_home(value: Path | None) -> Path | None:
    """Replace ``~`` in a path by the user's home."""
    try:
        return value and value.expanduser()
    except RuntimeError:
        raise ValueError("begins with ~, but this home directory does not exist") from None


def _is_redis_url(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must begin with redis://, rediss:// or unix://")
    return value


RedisUrl = Annotated[SecretStr, AfterValidator(_is_redis_url)]
"""Such as ``redis://user:password@host:6379/0``, ``rediss://`` with TLS, or ``unix://``."""
