from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.text.families.bare_arguments import is_text, typed_json

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"text": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}, "a/b": {"enum": ["x"]}},
    "properties": {
        "text": {"type": "string"},
        "referred": {"$ref": "#/$defs/text"},
        "escaped": {"$ref": "#/$defs/a~1b"},
        "loop": {"$ref": "#/$defs/loop"},
        "nowhere": {"$ref": "#/$defs/none"},
        "remote": {"$ref": "https://example.com/text"},
        "choice": {"enum": ["1", "2"]},
        "mixed": {"enum": ["1", 2]},
        "constant": {"const": "1"},
        "number": {"type": "integer"},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "optional": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        "open": {"anyOf": [{"type": "string"}, {}]},
        "free": True,
    },
}


@pytest.mark.parametrize("name", ["text", "referred", "escaped", "choice", "constant"])
def test_a_string_is_its_text_whatever_it_looks_like(name: str) -> None:
    assert is_text(SCHEMA, name)
    for text in ("1", "null", "True", '{"a": 1}', '"quoted"', " \n", "größer 😀"):
        assert json.loads(typed_json(SCHEMA, name, text)) == text


@pytest.mark.parametrize(
    "name", ["loop", "nowhere", "remote", "mixed", "number", "either", "optional", "open", "free", "unknown"]
)
def test_anything_else_may_be_json(name: str) -> None:
    assert not is_text(SCHEMA, name)
    assert typed_json(SCHEMA, name, " null\n") == "null"
    assert json.loads(typed_json(SCHEMA, name, "{'a': 1}")) == "{'a': 1}"


def test_values_by_their_types() -> None:
    assert typed_json(SCHEMA, "number", "\n 3 ") == "3"
    assert typed_json(SCHEMA, "number", "True") == "true"
    assert typed_json(SCHEMA, "either", "-2.5e3") == "-2.5e3"
    assert typed_json(SCHEMA, "optional", "3") == '"3"'
    assert typed_json(SCHEMA, "optional", "None") == "null"
    assert typed_json(None, "any", '[1, {"a": null}]') == '[1, {"a": null}]'
    assert typed_json(None, "any", "[1, {'a': null}]") == "\"[1, {'a': null}]\""


@pytest.mark.parametrize(
    ("types", "text", "value"),
    [
        ("object", "{'a': 1, 'b': [True, None]}", {"a": 1, "b": [True, None]}),
        ("array", "('x', 2),", "('x', 2),"),
        ("array", "['it\\'s', (1,)]", ["it's", [1]]),
        (["object", "null"], "{'a': {}}", {"a": {}}),
        ("object", "{'a', 'b'}", "{'a', 'b'}"),
        ("object", "{'a': b'x'}", "{'a': b'x'}"),
        ("object", "{'a': 1} and", "{'a': 1} and"),
        ("object", "{" * 500, "{" * 500),
        (["object", "string"], "{'a': 1}", "{'a': 1}"),
        ("integer", "['x']", "['x']"),
        ("boolean", " TRUE\n", True),
        ("boolean", "false", False),
        (["boolean", "null"], "FALSE", False),
        (["boolean", "null"], "NULL", None),
        (["boolean", "null"], "None", None),
        (["string", "null"], "NULL", "NULL"),
        ("integer", "FALSE", "FALSE"),
        ("string", "true", "true"),
    ],
)
def test_lists_and_objects_may_be_written_as_in_python(types: object, text: str, value: object) -> None:
    """As templates write them that leave them to Python; vLLM and SGLang read them too."""
    assert json.loads(typed_json({"properties": {"a": {"type": types}}}, "a", text)) == value
