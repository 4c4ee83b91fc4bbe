"""The OpenAPI document: what the framework cannot see of routes that read their bodies as bytes."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.tokens.protocol import DetokenizeRequest, TokenizeRequest

_ERROR: Final[dict[str, Any]] = {
    "description": "What every error looks like, in a stream too.",
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The parameter at fault."},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The application's OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for body in (ChatCompletionRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest):
            schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[body.__name__] = schema
        schemas["Error"] = _ERROR
        app.openapi_schema = document
    return app.openapi_schema
