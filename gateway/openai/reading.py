"""From an HTTP request to a validated request of an endpoint."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from starlette.datastructures import Headers
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
        OpenAIError: 415 for another content type than JSON and for a compressed body, 400 for an empty one, and what
            ``parse`` raises.
    """
    _check_headers(request.headers)
    try:
        body = await request.body()
    except ClientDisconnect:
        raise ClientDisconnectedError from None
    body = body.removeprefix(codecs.BOM_UTF8)  # as some editors and shells begin a file; it is no part of the JSON
    if not body:
        raise OpenAIError(400, "The request body is empty; a JSON object is expected.")
    if len(body) > _LARGE_BODY:
        return await anyio.to_thread.run_sync(parse, body)
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
