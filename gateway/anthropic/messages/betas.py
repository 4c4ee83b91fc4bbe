"""Names in the header ``anthropic-beta`` that a request is served without."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

SERVED: Final = frozenset(
    {
        "effort-2025-11-24",
        "interleaved-thinking-2025-05-14",
        "messages-2023-12-15",
        "search-results-2025-06-09",
        "structured-outputs-2025-11-13",
        "token-counting-2024-11-01",
        "tools-2024-04-04",
        "tools-2024-05-16",
    }
)
"""Betas whose fields are read, and named by themselves where a model cannot serve them."""


def unserved_betas(scope: Scope) -> list[str]:
    """The names of all others, as the client is told of them. None is refused: agents end their turn at one 400.

    Args:
        scope: of the request.
    """
    given = [value.decode("latin-1").split(",") for name, value in scope["headers"] if name == b"anthropic-beta"]
    names = dict.fromkeys(name.strip() for names in given for name in names)
    return [f"anthropic-beta.{name}" for name in names if name and name not in SERVED]
