"""Definitions of a tool's schema are put in the place of references, for templates that do not show them."""

from __future__ import annotations

import copy
import json
from typing import Any

from gateway.text.families.call_schema import definitions_in_place

UNIT = {"enum": ["c", "f"], "type": "string"}


def placed(parameters: dict[str, Any]) -> Any:
    before = copy.deepcopy(parameters)
    (tool,) = definitions_in_place([{"type": "function", "function": {"name": "f", "parameters": parameters}}])
    assert parameters == before
    return tool["function"]["parameters"]


def test_references_become_what_they_lead_to() -> None:
    schema = placed({
        "type": "object",
        "properties": {
            "unit": {"$ref": "#/$defs/Unit", "description": "Which.", "default": "c"},
            "old": {"allOf": [{"$ref": "#/definitions/a~1b"}], "title": "Old"},
            "more": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Unit"}, {"type": "null"}]}},
            "$ref": {"type": "string"},
            "definitions": {"enum": [{"$ref": "#/$defs/Unit"}]},
        },
        "required": ["unit"],
        "$defs": {"Unit": UNIT},
        "definitions": {"a/b": {"type": "integer"}},
    })  # fmt: skip
    assert schema == {
        "type": "object",
        "properties": {
            "unit": {**UNIT, "description": "Which.", "default": "c"},
            "old": {"type": "integer", "title": "Old"},
            "more": {"type": "array", "items": {"anyOf": [UNIT, {"type": "null"}]}},
            "$ref": {"type": "string"},
            "definitions": {"enum": [{"$ref": "#/$defs/Unit"}]},
        },
        "required": ["unit"],
    }


def test_a_definition_within_itself_is_named_by_its_type() -> None:
    tree = {"type": "object", "description": "A tree.", "properties": {"left": {"$ref": "#/$defs/Tree"}}}
    shown = placed({"properties": {"tree": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": tree}})
    inner = {"type": "object", "description": "A tree."}
    assert shown == {"properties": {"tree": {**inner, "properties": {"left": inner}}}}
    assert placed({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}) == {}


def test_definitions_that_multiply_are_bounded() -> None:
    each = {f"d{level}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/d{level + 1}"} for name in "abcd"}}
            for level in range(20)}  # fmt: skip
    shown = placed({"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**each, "d20": {"type": "string"}}})
    assert "$ref" not in json.dumps(shown)
    assert len(json.dumps(shown)) < 200_000


def test_a_reference_to_nothing_stays() -> None:
    for reference in ("#/$defs/Gone", "https://example.org/x", "#"):
        schema = placed({"properties": {"a": {"$ref": reference}}, "$defs": {}})
        assert schema == {"properties": {"a": {"$ref": reference}}}
