"""The OpenAPI document that the server reads from a file is that of its routes, whatever the settings are."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest

from gateway.api.page.document import FILE, openapi_document
from tools.openapi import document as made

KEYS = {"api_keys": ["key"]}


@pytest.mark.parametrize("server", [KEYS, {}, {**KEYS, "metrics": "none"}, {"metrics": "none"}], ids=str)
def test_the_document_is_of_the_routes(server: dict[str, Any]) -> None:
    wanted = made.openapi_document(server)
    served = json.loads(openapi_document(keys="api_keys" in server, metrics="metrics" not in server))
    old, new = (json.dumps(each, indent=1).splitlines() for each in (served, wanted))
    difference = "\n".join(difflib.unified_diff(old, new, "the file", "the routes", lineterm=""))
    assert not difference, f"make docs\n{difference}"


def test_a_line_of_the_file_is_an_operation_or_a_schema() -> None:
    text = FILE.read_text(encoding="utf-8")
    document = json.loads(text)
    assert text == made.written(document) + "\n"
    assert '\n"get": {"tags":["operations"],"summary":"Tell the version of the gateway",' in text
