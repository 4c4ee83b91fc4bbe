"""From an HTTP request to a validated request of an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from gateway.openai.body import Body, as_body, check_content_type
from gateway.openai.errors import OpenAIError
from gateway.serving.long_work import BODIES
from gateway.web.disconnect import ClientDisconnectedError, while_connected

_LARGE_BODY = 65536  # bytes; parsing more than this would hold up other requests' tokens
Parsed = TypeVar("Parsed")


async def read_request(request: Request, parse: Callable[[Body], Parsed]) -> Parsed:
    """Read the body and parse it; a large one off the event loop, and in its turn.

    Args:
        request: whose body was not read yet.
        parse: of the endpoint; checks what takes time with a large body, too.

    Raises:
        ClientDisconnectedError: the client left before it had sent the body, or before its turn came.
        EngineError: QUEUE_FULL when too many large bodies wait.
        OpenAIError: 415 for another content type than JSON, 400 for an empty body, and what ``parse`` raises.
    """
    check_content_type(request.headers.get("content-type", ""))
    try:
        pieces = [piece async for piece in request.stream() if piece]
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    if not pieces:
        raise OpenAIError(400, "The request body is empty; a JSON object is expected.")
    body = as_body(pieces)
    if not isinstance(body, bytes) or len(body) > _LARGE_BODY:
        return await while_connected(request.scope, request.receive, BODIES.run(lambda _: parse(body)))
    return parse(body)
