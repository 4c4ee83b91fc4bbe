"""The OpenAPI document, made from the docstring, the body's model and the responses' types of each route."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter

from gateway.api.openai.router import failure
from gateway.api.operations import OPEN_PATHS

_OPENAPI: Final = "3.1.0"
_KEYS: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key of the gateway."},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An API key of the gateway."},
    "azure": {"type": "apiKey", "in": "header", "name": "api-key", "description": "An API key, from Azure's clients."},
}
_REQUEST_ID: Final = {"description": "The id of the request, as in the log.", "schema": {"type": "string"}}
_OF_EVERY_REQUEST: Final = (400, 403, 408, 413, 431, 500, 503)


def openapi_document(app: FastAPI, *, keys: bool) -> bytes:
    """Write the application's OpenAPI document as JSON, which takes a good part of a second.

    Args:
        app: the application.
        keys: whether it asks for keys.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            methods = sorted(route.methods or ())
            before = paths.get(route.path_format, {})
            operations = {method.lower(): _operation(route, method, keys=keys) for method in methods}
            joined = {name: _either(before.get(name), each) for name, each in operations.items()}
            paths[route.path_format] = before | joined
    references, schemas = _schemas(frozenset(_types(paths)))
    document = {
        "openapi": _OPENAPI,
        "info": {"title": app.title, "version": app.version},
        "paths": _resolved(paths, references),
        "components": {"schemas": schemas, **({"securitySchemes": _KEYS} if keys else {})},
    }
    return orjson.dumps(document)


def _operation(route: APIRoute, method: str, *, keys: bool) -> dict[str, Any]:
    head = method == "HEAD"
    guarded = keys and route.path not in OPEN_PATHS
    of_keys = [401] * guarded + [429] * (guarded and method == "POST")  # which limits of keys count
    responses = {status: failure(status) for status in (*_OF_EVERY_REQUEST, *of_keys)} | route.responses
    if not guarded:
        responses.pop(401, None)
    summary, _, more = route.description.partition("\n\n")
    operation: dict[str, Any] = {
        "tags": route.tags,
        "summary": summary.rstrip(".") + (": the headers only" if head else ""),
        "operationId": route.name + ("_head" if head else ""),
        **(route.openapi_extra or {}),
        "responses": {str(status): _response(responses[status], head=head) for status in sorted(responses)},
    }
    if more:
        operation["description"] = more
    if guarded:
        operation["security"] = [{name: []} for name in _KEYS]
    return operation


def _either(first: dict[str, Any] | None, other: dict[str, Any]) -> dict[str, Any]:
    """Join two operations of one path, between which a header decides, with the responses of both."""
    if first is None:
        return other
    responses = first["responses"] | other["responses"]
    for status in first["responses"].keys() & other["responses"].keys():
        one, two = first["responses"][status], other["responses"][status]
        responses[status] = {**one, **two, "headers": one["headers"] | two["headers"]}
        if "content" in two:
            schemas = [each["content"]["application/json"]["schema"] for each in (two, one)]
            responses[status]["content"] = {"application/json": {"schema": {"anyOf": _distinct(schemas)}}}
    parameters = [*first.get("parameters", ()), *other.get("parameters", ())]
    named = {"parameters": list({each["name"]: each for each in parameters}.values())} if parameters else {}
    return {**first, **other, **named, "responses": dict(sorted(responses.items()))}


def _distinct(values: list[Any]) -> list[Any]:
    return [value for index, value in enumerate(values) if value not in values[:index]]


def _response(response: dict[str, Any], *, head: bool) -> dict[str, Any]:
    described = {**response, "headers": {"x-request-id": _REQUEST_ID, **response.get("headers", {})}}
    if head:
        del described["content"]
    return described


@functools.cache
def _schemas(types: frozenset[type]) -> tuple[dict[type, Any], dict[str, Any]]:
    """Return for each type the reference to its schema, and the schemas by their names."""
    references: dict[type, Any] = {}
    found: dict[str, Any] = {}
    bodies = {each for each in types if issubclass(each, BaseModel)}
    for mode, some in (("validation", bodies), ("serialization", types - bodies)):
        adapters: Any = [(each, mode, TypeAdapter(each)) for each in some]
        made, definitions = TypeAdapter.json_schemas(adapters, ref_template="#/components/schemas/{model}")
        references |= {each: schema for (each, _), schema in made.items()}
        schemas = {name: _cleaned(schema) for name, schema in definitions.get("$defs", {}).items()}
        found |= {name: _nullable(schema) if some is bodies else schema for name, schema in schemas.items()}
    return references, dict(sorted(found.items()))


def _types(node: Any) -> Iterator[type]:
    """Find the types that stand in place of schemas."""
    if isinstance(node, type):
        yield node
    elif isinstance(node, (dict, list)):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _types(value)


def _resolved(node: Any, references: Mapping[type, Any]) -> Any:
    """Return the node with references to schemas in place of types."""
    if isinstance(node, type):
        return references[node]
    if isinstance(node, list):
        return [_resolved(value, references) for value in node]
    return {key: _resolved(value, references) for key, value in node.items()} if isinstance(node, dict) else node


def _cleaned(schema: Any) -> Any:
    """Return a schema without the titles that repeat names and the parts of docstrings for readers of the code."""
    if isinstance(schema, list):
        return [_cleaned(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {key: _cleaned(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if isinstance(cleaned.get("description"), str):
        cleaned["description"] = cleaned["description"].partition("\n\nAttributes:")[0]
    return cleaned


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object of a request, in which null means absent."""
    fields: Iterable[tuple[str, dict[str, Any]]] = schema.get("properties", {}).items()
    optional = {name: _or_null(field) for name, field in fields if name not in schema.get("required", ())}
    return {**schema, "properties": {**schema["properties"], **optional}} if optional else schema


def _or_null(field: dict[str, Any]) -> dict[str, Any]:
    null = {"type": "null"}
    outer = {"description", "default"}
    inner = {key: value for key, value in field.items() if key not in outer}
    if not inner or null in field.get("anyOf", ()):  # what takes anything takes null
        return field
    return {"anyOf": [inner, null], **{key: value for key, value in field.items() if key in outer}}
