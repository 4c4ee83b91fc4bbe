"""Entries of the OpenAPI document for routes whose errors have Anthropic's shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.anthropic.errors import OVERLOADED, AnthropicError
from gateway.openai.router import answers, failure

REQUEST_ID: Final = {"request-id": "The same as `x-request-id`."}
"""The header of all answers to Anthropic's clients."""

_ERRORS: Final = (400, 401, 403, 404, 413, 415, 429, 500)


def anthropic_answers(
    body: Any, errors: Sequence[int] = (), *, event: Any = None, headers: Mapping[str, str] | None = None
) -> dict[int | str, dict[str, Any]]:
    """Describe the answers of a route.

    Args:
        body: type of the JSON body of 200.
        errors: further statuses with an error, besides those of all these routes.
        event: type of the data of an event, where the answer may be a stream.
        headers: further response headers of 200 with their descriptions.
    """
    made = answers(body, event=event, done=False, headers={**REQUEST_ID, **(headers or {})})
    for status in (*_ERRORS, *errors, OVERLOADED):
        made[status] = anthropic_failure(status)
    return made


def anthropic_failure(status: int) -> dict[str, Any]:
    """Describe the answer of a route that fails with this status."""
    described = failure(503 if status == OVERLOADED else status)
    described["content"] = {"application/json": {"schema": AnthropicError}}
    described["headers"] |= {
        name: {"description": text, "schema": {"type": "string"}} for name, text in REQUEST_ID.items()
    }
    return described
