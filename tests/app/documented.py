"""A client that holds every whole answer against the OpenAPI document, in which no object may have unknown fields."""

from __future__ import annotations

import copy
import functools
import json
import re
import sys
from typing import Any

import httpx

from gateway.api.page.document import openapi_document

if sys.version_info >= (3, 11):
    from jsonschema_rs import Draft202012Validator  # with the other, a fifth of the tests' CPU is validation
else:
    from jsonschema import Draft202012Validator


class DocumentedClient(httpx.AsyncClient):
    """Asks an application and fails where an answer is not what its document says.

    Answers that the caller streams are not looked at, and paths that are not served.
    """

    def __init__(self, keys: bool, **options: Any) -> None:
        super().__init__(**options)
        self.document = document_of(keys)

    async def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        answer = await super().send(request, stream=stream, **options)
        if not stream:
            self.document.check(answer)
        return answer


class Document:
    """A document that answers can be held against."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        paths = sorted(document["paths"], key=len, reverse=True)  # a parameter may have slashes: the most words win
        self._paths = {re.compile(re.sub(r"{\w+}", ".+", path) + "/?"): path for path in paths}
        self._closed = {"components": {"schemas": closed(document["components"]["schemas"])}}

    def check(self, answer: httpx.Response) -> None:
        request = answer.request
        path = next((path for found, path in self._paths.items() if found.fullmatch(request.url.path)), None)
        operation = self.document["paths"].get(path, {}).get(request.method.lower())
        if operation is None or answer.status_code == 499:  # which nobody reads
            return
        assert str(answer.status_code) in operation["responses"], f"{answer.status_code} of {path}"
        described = operation["responses"][str(answer.status_code)]
        if request.method == "HEAD":
            assert "content" not in described
            return
        media_type = answer.headers["content-type"].partition(";")[0]
        schema = described["content"][media_type]["schema"]
        if media_type == "text/event-stream":
            for data in re.findall(r"^data: (.*)$", answer.text, re.MULTILINE):
                self._check_event(schema["properties"]["data"], data)
        else:
            self.validate(answer.json() if media_type == "application/json" else answer.text, schema)

    def _check_event(self, schema: dict[str, Any], data: str) -> None:
        if "anyOf" not in schema:
            self.validate(json.loads(data), schema["contentSchema"])
            return
        chunk, error, done = schema["anyOf"]
        if data != done["const"]:
            value = json.loads(data)
            self.validate(value, (error if "error" in value else chunk)["contentSchema"])

    def validate(self, value: Any, schema: dict[str, Any]) -> None:
        error = next(iter(self._validator(json.dumps(schema)).iter_errors(value)), None)
        assert error is None, str(error)

    @functools.cache  # noqa: B019 - as long-lived as the class
    def _validator(self, schema: str) -> Draft202012Validator:
        return Draft202012Validator({**json.loads(schema), **self._closed})


@functools.cache
def document_of(keys: bool) -> Document:
    """The document of an application with or without keys, which depends on nothing else that tests ask for."""
    return Document(json.loads(openapi_document(keys=keys, metrics=True)))


def closed(schema: Any) -> Any:
    """The schema with objects that have no fields but those it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return copy.copy(schema)
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made
