"""Marks of union branches, which error paths leave out: they are no part of what the client wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, Discriminator

BRANCH = "~"


def text_or_list(value: Any) -> str | None:
    """A discriminator between a string and an array."""
    return BRANCH + "parts" if isinstance(value, list) else BRANCH + "text" if isinstance(value, str) else None


def branch_by(name: str) -> Callable[[Any], str | None]:
    """A discriminator that reads one key and marks its value as a branch."""

    def read(value: Any) -> str | None:
        found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return BRANCH + found if isinstance(found, str) else None

    return read


def _function_or_custom(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return BRANCH + ("custom" if kind == "custom" else "function") if isinstance(value, dict | BaseModel) else None


FUNCTION_OR_CUSTOM = Discriminator(
    _function_or_custom, custom_error_type="choice", custom_error_message="An object is expected"
)
"""Tells what is of a custom tool from what is of a function; what is of another type is refused as a function."""
