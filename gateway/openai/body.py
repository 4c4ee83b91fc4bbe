"""Request bodies: bytes to a JSON object that is safe to work with, or a 400 that says what is wrong."""

from __future__ import annotations

import marshal
from typing import Any

from gateway.bad_request import BadRequestError
from gateway.helper import Helper, HelperFailedError
from gateway.openai import json_text
from gateway.openai.json_text import JsonTextError

_LARGE = 262144  # bytes; parsing more than this in one go would hold up other requests' tokens, in whatever thread
_parser = Helper(json_text.__name__, memory_bytes=2**30, seconds=10.0, largest=2**28)

Body = bytes | list[bytes]
"""A request's body; a large one in the pieces that it came in, because to join them would hold up others."""


def as_body(pieces: list[bytes]) -> Body:
    """The body that came in these pieces."""
    return b"".join(pieces) if sum(map(len, pieces)) <= _LARGE else pieces


def parse_object(body: Body) -> dict[str, Any]:
    """Parse a JSON object as ``json_text.parse`` does, a large one in another process.

    Raises:
        BadRequestError: it is none, or breaks a bound.
    """
    try:
        return json_text.parse(body) if isinstance(body, bytes) else _parse_apart(body)
    except JsonTextError as error:
        message = error.message
        if error.code is None:
            message = f"We could not parse the JSON body of your request: {message}."
        raise BadRequestError(message, param=error.param, code=error.code) from None


def _parse_apart(body: list[bytes]) -> dict[str, Any]:
    try:
        value, problem = marshal.loads(_parser.ask(*body))  # noqa: S302 - by our own process
    except HelperFailedError:
        raise JsonTextError("it takes too much time or memory") from None
    if problem is not None:
        raise JsonTextError(*problem)
    return value  # type: ignore[no-any-return]
