"""Entries of the OpenAPI document: responses, bodies, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.api.anthropic.errors import OVERLOADED
from tools.openapi.messages import AnthropicError
from tools.openapi.objects import Error

IGNORED: Final = {"x-ignored-parameters": "Parameters of the request that were ignored."}
"""The header of responses to requests that may have unknown fields."""

DEVIATIONS: Final = {"x-strict-schema-deviations": "Places where strict schemas are outside OpenAI's subset."}
"""The header of responses to requests that may have strict schemas."""

_JSON: Final = "application/json"
_REASONS: Final[Mapping[int, str]] = {
    400: "The request is invalid; `param` names the parameter.",
    401: "The API key is missing or invalid.",
    403: "The request names a host that the gateway does not serve.",
    404: "The model, or the object with this id, does not exist.",
    408: "The request was incomplete or arrived too slowly.",
    409: "Other requests are changing the same conversation.",
    413: "The body is too large.",
    415: "The content type is not JSON, or the request comes from a web page of another origin.",
    429: "The engine's queue is full.",
    431: "The request line and its headers, or its trailers, are too large.",
    500: "The engine or the gateway failed.",
    503: "The model is loading, Triton is unreachable, or too many connections are open.",
    504: "The engine did not respond in time.",
}
_HEADERS: Final[Mapping[int, Mapping[str, str]]] = {
    401: {"WWW-Authenticate": "`Bearer`."},
    429: {"Retry-After": "Seconds."},
    500: {"x-should-retry": "`false` if the same request would fail again."},
    503: {"Retry-After": "Seconds."},
}

_REQUEST_ID: Final = {"request-id": "The same as `x-request-id`."}  # of all answers to Anthropic's clients
_ANTHROPIC_ERRORS: Final = (400, 401, 403, 404, 413, 415, 429, 500)

GENERATING: Final = (400, 404, 415, 429, 503, 504)
"""Error statuses of endpoints that use an engine, in addition to those of all endpoints."""


def answers(
    body: Any,
    errors: Sequence[int] = (),
    *,
    event: Any = None,
    done: bool = True,
    headers: Mapping[str, str] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route, in which ``openapi_document`` turns the types into schemas.

    Args:
        body: type of the JSON body of 200.
        errors: statuses with a body of type ``Error``.
        event: type of the data of an event, where the response may be a stream.
        done: whether a whole stream ends with ``[DONE]`` and a broken one with an error; else with an event.
        headers: response headers of 200 with their descriptions.
    """
    content: dict[str, Any] = {_JSON: {"schema": body}}
    if event is not None:
        content["text/event-stream"] = {"schema": _chunk(event) if done else _event(event)}
    success = {"description": "The answer.", "content": content, "headers": _described(headers or {})}
    return {200: success, **{status: failure(status) for status in errors}}


def failure(status: int) -> dict[str, Any]:
    """Describe the response of a route that fails with this status."""
    headers = _described(_HEADERS.get(status, {}))
    return {"description": _REASONS[status], "content": {_JSON: {"schema": Error}}, "headers": headers}


def answer_of(description: str, body: Any, *, content_type: str = _JSON) -> dict[str, Any]:
    """Describe an answer that has no headers of its own."""
    return {"description": description, "content": {content_type: {"schema": body}}}


def anthropic_answers(
    body: Any, errors: Sequence[int] = (), *, event: Any = None, headers: Mapping[str, str] | None = None
) -> dict[int | str, dict[str, Any]]:
    """Describe the responses of a route of Anthropic's API; arguments as of ``answers``."""
    made = answers(body, event=event, done=False, headers={**_REQUEST_ID, **(headers or {})})
    return made | {status: anthropic_failure(status) for status in (*_ANTHROPIC_ERRORS, *errors, OVERLOADED)}


def anthropic_failure(status: int) -> dict[str, Any]:
    """Describe the response of a route of Anthropic's API that fails with this status."""
    described = failure(503 if status == OVERLOADED else status)
    headers = described["headers"] | _described(_REQUEST_ID)
    return {**described, **answer_of(described["description"], AnthropicError), "headers": headers}


def body_of(schema: type[Any], examples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Make the OpenAPI entry of a body that a route reads as bytes.

    Args:
        schema: type of the body.
        examples: bodies by what they show, of the model ``MODEL``; the page at ``/docs`` offers them.
    """
    shown = {text.lower().replace(" ", "-"): {"summary": text, "value": body} for text, body in examples.items()}
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema, "examples": shown}}}}


def parameter(name: str, place: str, description: str, *, required: bool = False) -> dict[str, Any]:
    """Make the OpenAPI entry of a parameter.

    Args:
        name: of the parameter.
        place: ``path``, ``query`` or ``header``.
        description: of it.
        required: whether it must be there.
    """
    schema = {"type": "string"}
    return {"name": name, "in": place, "required": required, "description": description, "schema": schema}


def _described(headers: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()}


def _chunk(data: Any) -> dict[str, Any]:
    """Make the schema of one event of a stream in the form of OpenAPI before 3.2: JSON text, or ``[DONE]``."""
    texts = [_json_text(data), _json_text(Error), {"const": "[DONE]"}]
    return {
        "description": "One event. A complete stream ends with `[DONE]`, a failed stream with an error.",
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"anyOf": texts}},
    }


def _event(data: Any) -> dict[str, Any]:
    """Make the schema of one event with a name, which is the type of its data."""
    return {
        "description": "One event. The last event says how the response ended: completed, incomplete or failed.",
        "type": "object",
        "required": ["event", "data"],
        "properties": {"event": {"type": "string"}, "data": _json_text(data)},
    }


def _json_text(data: Any) -> dict[str, Any]:
    return {"type": "string", "contentMediaType": _JSON, "contentSchema": data}
