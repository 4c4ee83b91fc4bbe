"""From an HTTP request to a validated request of an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request

from gateway.openai.body import check_content_type
from gateway.openai.errors import OpenAIError
from gateway.web.disconnect import ClientDisconnectedError

_LARGE_BODY = 65536  # bytes; parsing more than this would hold up other requests' tokens
Parsed = TypeVar("Parsed")


async def read_request(request: Request, parse: Callable[[bytes], Parsed]) -> Parsed:
    """Read the body and parse it; a large one off the event loop.

    Args:
        request: whose body was not read yet.
        parse: of the endpoint.

    Raises:
        ClientDisconnectedError: the client left before it had sent the body.
        OpenAIError: 415 for another content type than JSON, 400 for an empty body, and what ``parse`` raises.
    """
    check_content_type(request.headers.get("content-type", ""))
    try:
        body = await request.body()
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    if not body:
        raise OpenAIError(400, "The request body is empty; a JSON object is expected.")
    if len(body) > _LARGE_BODY:
        return await anyio.to_thread.run_sync(parse, body)
    return parse(body)
