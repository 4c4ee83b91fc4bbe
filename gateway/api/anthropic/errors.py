"""Anthropic's shape of errors, and the middleware that gives it to all errors of Anthropic's paths."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping
from typing import Final

import orjson
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.openai.errors import OpenAIError, shape_errors
from gateway.http.access_log import record_of
from gateway.http.routing import HEADERS, headers_of

OVERLOADED: Final = 529
"""Anthropic's status for a server that cannot take the request now, in place of 503."""

NO_THREADS: Final = "thread_unsupported_request"
"""Anthropic's code for a request with a ``thread``, on which its clients send whole conversations instead."""

_PATH = re.compile(r"(?:/v1|^|^/openai)/messages(?:/|$)")
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
_INDEX = re.compile(r"\[(\d+)\]")


def error_body(error: OpenAIError, request_id: str) -> bytes:
    """Make the JSON of an error in Anthropic's shape; the parameter at fault begins the message unless it names it.

    Args:
        error: in OpenAI's terms, with the client's own paths.
        request_id: of the request.
    """
    status = _status(error)
    fields = {
        "type": _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error"),
        "message": _message(error),
    }
    details = {"details": {"error_code": error.code}} if error.code == NO_THREADS else {}
    return orjson.dumps({"type": "error", "error": {**fields, **details}, "request_id": request_id})


def error_response(error: OpenAIError, request_id: str) -> Response:
    """Make the HTTP response of an error in Anthropic's shape."""
    return Response(error_body(error, request_id), _status(error), error.headers, "application/json")


def _status(error: OpenAIError) -> int:
    return OVERLOADED if error.status == 503 else error.status


def _message(error: OpenAIError) -> str:
    """The sentence with paths as Anthropic writes them: ``messages.0.content`` for ``messages[0].content``."""
    if error.param is None:
        return error.message
    path = _INDEX.sub(r".\1", error.param)
    message = error.message.replace(error.param, path)
    return message if path in message else f"{path}: {message}"


class AnthropicMiddleware:
    """Gives errors of Anthropic's API its shape, and its responses a ``request-id``.

    Errors of every inner layer are changed. A request is Anthropic's by its path, or by its header
    ``anthropic-version``, which no client of OpenAI's API sends. The HTTP protocol rejects some requests before any
    layer; ``gateway.app`` gives those responses the same shape.
    """

    def __init__(self, app: ASGIApp) -> None:
        """Wrap ``app``."""
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one connection. No coroutine of its own is resumed for each event of a stream."""
        if scope["type"] != "http" or not wants_anthropic(scope):
            return self._app(scope, receive, send)
        shape_errors(scope, error_response)
        request_id = record_of(scope).request_id

        def named_send(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["request-id"] = request_id
            return send(message)

        return self._app(scope, receive, named_send)


def wants_anthropic(scope: Scope) -> bool:
    """Whether the errors of a request have Anthropic's shape."""
    headers = scope.get(HEADERS) or headers_of(scope)
    return bool(headers.get(b"anthropic-version") or _PATH.search(scope["path"]))
