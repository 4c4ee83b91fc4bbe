"""The OpenAPI document, made of the routes, their docstrings and ``OPERATIONS``.

``gateway`` has it as a file, of which ``gateway.api.page.document`` leaves out what a gateway's settings do not have.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from pydantic import BaseModel, TypeAdapter
from starlette.routing import Route

from gateway.api.operations import OPEN_PATHS
from gateway.app import create_app
from gateway.settings import Settings
from tools.openapi.operations import OPERATIONS
from tools.openapi.parts import failure

_OPENAPI: Final = "3.1.0"
_KEYS: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key of the gateway."},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An API key of the gateway."},
    "azure": {"type": "apiKey", "in": "header", "name": "api-key", "description": "An API key, from Azure's clients."},
}
_REQUEST_ID: Final = {"description": "The id of the request, as in the log.", "schema": {"type": "string"}}
_OF_EVERY_REQUEST: Final = (400, 403, 408, 413, 431, 500, 503)


def openapi_document(server: Mapping[str, Any]) -> dict[str, Any]:
    """Make the document of a gateway with these settings of ``server``."""
    model = {"name": "model", "tokenizer": ".", "triton": {"url": "triton:8001"}}
    settings = Settings.model_validate({"models": [model], "server": server})
    app, keys = create_app(settings), settings.asks_for_keys
    paths: dict[str, dict[str, Any]] = {}
    for route in app.routes:
        if isinstance(route, Route) and route.include_in_schema:
            methods = sorted(route.methods or ())
            before = paths.get(route.path_format, {})
            operations = {method.lower(): _operation(route, method, keys=keys) for method in methods}
            joined = {name: _either(before.get(name), each) for name, each in operations.items()}
            paths[route.path_format] = before | joined
    references, schemas = _schemas(set(_types(paths)))
    return {
        "openapi": _OPENAPI,
        "info": {"title": app.title, "version": app.version},
        "paths": _resolved(paths, references),
        "components": {"schemas": schemas, **({"securitySchemes": _KEYS} if keys else {})},
    }


def written(node: Any, depth: int = 3) -> str:
    """Write the document as JSON in which each operation and each schema is a line, as which its changes are read."""
    if depth == 0 or not isinstance(node, dict):
        return orjson.dumps(node).decode()
    lines = ",\n".join(f"{orjson.dumps(key).decode()}: {written(value, depth - 1)}" for key, value in node.items())
    return f"{{\n{lines}\n}}"


def _operation(route: Route, method: str, *, keys: bool) -> dict[str, Any]:
    about, head = OPERATIONS[route.name], method == "HEAD"
    guarded = keys and route.path not in OPEN_PATHS
    of_keys = [401] * guarded + [429] * (guarded and method == "POST")  # which limits of keys count
    responses = {status: failure(status) for status in (*_OF_EVERY_REQUEST, *of_keys)} | about.answers
    if not guarded:
        responses.pop(401, None)
    summary, _, more = inspect.cleandoc(route.endpoint.__doc__ or "").partition("\n\n")
    operation: dict[str, Any] = {
        "tags": [about.tag],
        "summary": summary.rstrip(".") + (": the headers only" if head else ""),
        "operationId": route.name + ("_head" if head else ""),
        **({"parameters": list(about.parameters)} if about.parameters else {}),
        **about.body,
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


def _schemas(types: set[type]) -> tuple[dict[type, Any], dict[str, Any]]:
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
