"""Reads the body of an HTTP request, and parses and validates it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request

from gateway.api.openai.errors import SERVER, OpenAIError
from gateway.api.openai.request_json import MOST_MESSAGES, RequestBody, parse_body
from gateway.http.client_connection import ClientDisconnectedError, while_connected
from gateway.serving.long_work import BODIES
from gateway.serving.overload import OVERLOAD
from gateway.text.bad_request import BadRequestError

_LARGE_BODY = 131072  # bytes; to check and translate more than this takes milliseconds
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.IGNORECASE)
_OWN_SITES = ("same-origin", "none")  # of Sec-Fetch-Site; another port of this machine is the same site
_MOST_HELD = 128 * 2**20  # bytes of large bodies that are in memory at a time
Parsed = TypeVar("Parsed")


class BodyBudget:
    """The memory of large bodies that are received or wait to be parsed, as one sum of bytes."""

    def __init__(self, limit: int = _MOST_HELD) -> None:
        """Begin with none.

        Args:
            limit: bytes of them at a time; one alone may have more.
        """
        self.held = 0
        self._most = limit

    def grow(self, before: int, after: int) -> int:
        """Count a body that has grown and return its counted bytes.

        Args:
            before: bytes of the body that are counted.
            after: bytes that the body has.

        Raises:
            OpenAIError: 503 when all bodies together would be too large.
        """
        others = self.held - before
        if others and others + after > self._most:
            raise OpenAIError(
                503,
                "Too many large requests are being received; try again in a moment.",
                type=SERVER,
                code="service_unavailable",
                headers={"Retry-After": "1"},
            )
        self.held = others + after
        return after

    def leave(self, counted: int) -> None:
        """Subtract the counted bytes of a body."""
        self.held -= counted


_bodies = BodyBudget()


async def read_request(
    request: Request, parse: Callable[[RequestBody], Parsed], most_messages: int = MOST_MESSAGES
) -> Parsed:
    """Read the body and parse it; a large body is parsed off the event loop, in its turn.

    Args:
        request: a request with an unread body.
        parse: makes the endpoint's request, with all checks that take time for a large body.
        most_messages: as of ``parse_body``.

    Raises:
        ClientDisconnectedError: the client left before it had sent the body, or before its turn came.
        EngineError: QUEUE_FULL when too many large bodies wait, UNAVAILABLE when memory is short.
        OpenAIError: 415 for a content type that is not JSON and for a compressed body, 503 when too many large bodies
            are being received; and the errors of ``parse``.
        BadRequestError: the body is empty.
    """
    OVERLOAD.check()
    _check_type(request.headers)
    _check_coding(request.headers)
    parse = _of_deployment(request, parse)
    pieces: list[bytes] = []
    size = counted = 0
    try:
        more = True
        while more:  # not ``request.stream()``, which makes three objects and a task's worth of calls for each body
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnectedError
            more = message.get("more_body", False)
            if piece := message.get("body"):
                pieces.append(piece)
                size += len(piece)
                if size > _LARGE_BODY:
                    if not counted:  # an admitted body is read to its end
                        await OVERLOAD.room()
                    counted = _bodies.grow(counted, size)
        if not pieces:
            raise BadRequestError("The request body is empty; send a JSON object.")
        raw = b"".join(pieces)
        return await in_turn(request, size, lambda: parse(parse_body(raw, most_messages)))
    finally:
        if counted:
            _bodies.leave(counted)


def _of_deployment(request: Request, parse: Callable[[RequestBody], Parsed]) -> Callable[[RequestBody], Parsed]:
    """Parse with the model of an Azure path as ``model``; a different model in the body is reported as replaced."""
    model = request.scope.get("state", {}).get("deployment")
    if model is None:
        return parse

    def parse_named(body: RequestBody) -> Parsed:
        others = ["model"] if body.fields.get("model") not in (None, model) else []
        body.fields["model"] = model
        return parse(body._replace(replaced=[*body.replaced, *others]))

    return parse_named


async def in_turn(request: Request, size: int, work: Callable[[], Parsed]) -> Parsed:
    """Run work on a body; work on a large body runs off the event loop, in its turn.

    Args:
        request: a request with a read body; the work ends when its client leaves.
        size: bytes of the body.
        work: the work.

    Raises:
        ClientDisconnectedError: the client left before the turn came.
        EngineError: QUEUE_FULL when too many wait.
    """
    if size <= _LARGE_BODY:
        return work()
    return await while_connected(request.scope, request.receive, BODIES.run(lambda _: work()))


def _check_type(headers: Headers) -> None:
    media_types = [_media_type(value) for value in headers.getlist("content-type")] or [""]
    if len(set(media_types)) > 1:
        raise _unsupported_type("The request has two different 'Content-Type' headers; send one, 'application/json'.")
    # By CORS a page of any site may send a body without a content type, and so use the engine, without a preflight.
    if not media_types[0] and (headers.get("origin") or headers.get("sec-fetch-site", "none") not in _OWN_SITES):
        raise _unsupported_type("A request from a web page must have the header 'Content-Type: application/json'.")


def _check_coding(headers: Headers) -> None:
    for coding in headers.getlist("content-encoding"):
        if coding.strip().lower() not in ("identity", ""):
            raise OpenAIError(
                415,
                f"Unsupported content encoding {coding[:100]!r}: send the body uncompressed, without "
                "'Content-Encoding'.",
                code="unsupported_content_encoding",
                headers={"Accept-Encoding": "identity"},
            )


def _media_type(content_type: str) -> str:
    """The media type of a body, empty where none is declared."""
    media_type = content_type.partition(";")[0].strip()
    if media_type and not _JSON_TYPE.fullmatch(media_type):
        raise _unsupported_type(
            f"Unsupported content type {media_type[:100]!r}: this endpoint only accepts 'application/json'."
        )
    return media_type


def _unsupported_type(message: str) -> OpenAIError:
    return OpenAIError(415, message, code="unsupported_content_type")
