"""From an HTTP request to a validated request of an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from starlette.datastructures import Headers
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
        OpenAIError: 415 for another content type than JSON and for a compressed body, 400 for an empty one, and what
            ``parse`` raises.
    """
    _check_headers(request.headers)
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


def _check_headers(headers: Headers) -> None:
    content_type = headers.get("content-type", "")
    check_content_type(content_type)
    # A page of any site may have a browser send what has no content type, without asking (CORS), and generate by it.
    if not content_type and (headers.get("origin") or headers.get("sec-fetch-site") == "cross-site"):
        raise OpenAIError(
            415,
            "A web page must declare what it sends: set the header 'Content-Type: application/json'.",
            code="unsupported_content_type",
        )
    coding = headers.get("content-encoding", "identity")
    if coding.strip().lower() not in ("identity", ""):
        raise OpenAIError(
            415,
            f"Unsupported content encoding {coding[:100]!r}: send the body as it is, without 'Content-Encoding'.",
            code="unsupported_content_encoding",
            headers={"Accept-Encoding": "identity"},
        )
