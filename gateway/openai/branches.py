"""Marks of union branches, which error paths leave out: they are no part of what the client wrote."""

from __future__ import annotations

from typing import Any

BRANCH = "~"


def text_or_list(value: Any) -> str | None:
    """A discriminator between a string and an array."""
    return BRANCH + "parts" if isinstance(value, list) else BRANCH + "text" if isinstance(value, str) else None
