"""Calls whose arguments are nested tags with their names, each behind a marking token.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

Objects are tags inside a tag, lists are tags ``item``, all other values stand bare and get their types from the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.text.families.bare_arguments import argument_types, definitions_of, typed_json
from gateway.text.families.call_schema import resolve
from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_calls import dumps, read_name
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.tagged_calls import rest_of_tag
from gateway.text.families.text_source import Steps, TextSource, need

_CALL, _CALL_END = '<invoke name="', "</invoke>"
_SECTION, _SECTION_END = "<tool_call>", "</tool_call>"
_ITEM = "item"
_DEEPEST = 16


@dataclass(frozen=True, kw_only=True)
class NestedTags(Grammar):
    """Reads calls with nested tags, each behind the one token that opens them."""

    @property
    def call_format(self) -> None:
        """None, as a structural tag has a schema's JSON and not these tags."""

    @property
    def _word(self) -> str:
        return self.opens[0]

    def read_block(self, parser: FamilyParser) -> Steps[None]:
        """Read a section of calls or a single call, after the token that opens its tag."""
        source, section = parser.source, False
        more: str | None = self._word
        while more:
            yield from source.space()
            if not section and (yield from source.literal(_SECTION)):
                section = True
            elif (yield from source.literal(_SECTION_END)):
                break
            else:
                call = parser.begin_call(self._word, header=True)
                if not (yield from parser.attempt(call, self.read_call(parser, call))) or not section:
                    return
            more = yield from source.spaced(self._word)

    def skip(self, source: TextSource, marker: str) -> Steps[str]:
        """Read the rest of a tag of a broken call."""
        return "" if marker else (yield from rest_of_tag(source, "</")) and ""

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read a call after the token that opens its tag; see ``Grammar``."""
        source = parser.source
        name = yield from _read_tag(source, _CALL, '">')
        call.named(name)
        parser.end_header()
        yield from source.expect(self._word)
        call.arguments((yield from self._read_tags(source, parser.plan.parameters(name) or {}, _CALL_END, 0)))
        call.complete()

    def without_format(self, raw: str, *, cut: bool) -> str:
        """Remove tags behind the token, and tags that the token limit has cut, from a text; see ``Grammar``."""
        rest = "|\\Z" if cut else ""
        return re.sub(rf"{re.escape(self._word)}\s*</?[^<>\n]*(?:>{rest})", "", raw)

    def _read_tags(self, source: TextSource, schema: Mapping[str, Any], end: str, depth: int) -> Steps[str]:
        """Read tags up to the ``end`` of the one around them; returns the JSON text of their values.

        ``schema``: of the object; that of a list names its items as an object's properties. ``depth``: tags around.
        """
        values: dict[str, str] = {}
        items: list[str] = []
        while not (yield from source.spaced(end)):
            name = yield from _read_tag(source, "<", ">")
            value = yield from self._read_value(source, schema, name, depth)
            need(name not in values)
            if name == _ITEM:
                items.append(value)
            else:
                values[name] = value
            yield from source.expect(self._word)
        need(not (items and values))
        if items:
            return f"[{', '.join(items)}]"
        return "{" + ", ".join(f"{dumps(name)}: {value}" for name, value in values.items()) + "}"

    def _read_value(self, source: TextSource, schema: Mapping[str, Any], name: str, depth: int) -> Steps[str]:
        """Read the value behind a tag, and its closing tag; returns its JSON text."""
        end = f"</{name}>"
        text, marker = yield from source.text_until(self._word)
        need(marker and depth < _DEEPEST)
        if (yield from source.spaced(end)):
            types = argument_types(schema, name)
            if not text.strip() and types & {"array", "object"}:
                return "[]" if "array" in types else "{}"
            return typed_json(schema, name, text)
        need(not text.strip())
        return (yield from self._read_tags(source, _inner(schema, name), end, depth + 1))


def _read_tag(source: TextSource, begin: str, end: str) -> Steps[str]:
    """Read a tag; returns the name in it."""
    need((yield from source.literal(begin)))
    name = yield from read_name(source)
    need((yield from source.literal(end)))
    return name


def _inner(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The schema of what is inside of an argument; empty where there is none."""
    properties = schema.get("properties")
    part = properties.get(name) if isinstance(properties, Mapping) else None
    if isinstance(part, Mapping) and "$ref" in part:
        part = resolve(part["$ref"], schema)
    if not isinstance(part, Mapping):
        return {}
    inner = {"properties": {_ITEM: part["items"]}} if "items" in part else part
    return {**inner, **definitions_of(schema)}
