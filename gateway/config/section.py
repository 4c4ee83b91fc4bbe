"""The base of all sections of the settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

Seconds = float


class Section(BaseModel):
    """A mapping in the settings: immutable, and it refuses keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def split_commas(value: object) -> object:
    """Split text at commas, as environment variables hold lists; return anything else unchanged."""
    if isinstance(value, str):
        return [part for part in (part.strip() for part in value.split(",")) if part]
    return value


def at_home(value: Path | None) -> Path | None:
    """A path with the home of the user that it names by ``~``."""
    try:
        return value and value.expanduser()
    except RuntimeError:
        raise ValueError("begins with ~, and there is no such home") from None
