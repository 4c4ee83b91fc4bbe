"""Writes answers in a family's own form, by the structural tags that the family makes of it."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st

from gateway.text.families import CallArguments, CallStart, Content, Event, Family, Reasoning, Tool, ToolPlan
from gateway.text.families.family_table import FAMILIES
from tests.families.harness import GUIDES, tool

_Test = TypeVar("_Test", bound=Callable[..., None])

_HARMONY = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
FREE = "Hm, 1 < 2."
"""What stands where a guide leaves the text free."""

BEFORE = "Well, 1 < 2:"
"""Text before calls."""


def prompts(family: Family) -> list[str]:
    """Ends of prompts: with nothing open and, for families with think tags, inside and behind the reasoning."""
    tags = getattr(family, "tags", None)
    fresh = _HARMONY if family.name == "harmony" else ""
    return [fresh, *([f"{tags.open}\n", f"{tags.open}{tags.close}"] if tags else [])]


def texts_of(form: Mapping[str, Any]) -> Iterator[str]:
    """A text for every way through a structural tag; of calls in a row, each alone and all of them."""
    kind = form["type"]
    if kind in _SIMPLE:
        yield _SIMPLE[kind](form)
    elif kind == "json_schema":
        yield from (json.dumps(value, ensure_ascii=False) for value in values_of(form["json_schema"]))
    elif kind == "tag":
        yield from (form["begin"] + text + form["end"] for text in texts_of(form["content"]))
    elif kind == "sequence":
        yield from map("".join, itertools.product(*(list(texts_of(element)) for element in form["elements"])))
    elif kind == "or":
        yield from (text for element in form["elements"] for text in texts_of(element))
    elif kind == "tags_with_separator":
        each = [text for element in form["tags"] for text in texts_of(element)]
        yield from each
        if len(each) > 1 and not form["stop_after_first"]:
            yield form["separator"].join(each)
    else:
        assert kind == "triggered_tags"
        assert all(element["begin"].startswith(tuple(form["triggers"])) for element in form["tags"])
        yield from (text for element in form["tags"] for text in texts_of(element))


_SIMPLE: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "const_string": lambda form: str(form["value"]),
    "any_text": lambda _: FREE,
    "regex": lambda form: {"[0-9]{1,4}": "7"}[form["pattern"]],
    "grammar": lambda form: {'root ::= ""': ""}[form["grammar"]],
}


def values_of(schema: Mapping[str, Any]) -> Iterator[Any]:
    """A value for every alternative of the small schemas here."""
    if "const" in schema:
        yield schema["const"]
    elif "anyOf" in schema:
        for part in schema["anyOf"]:
            yield from values_of(part)
    elif schema["type"] == "array":
        for value in values_of(schema["items"]):
            yield [value]
    else:
        names = schema.get("required", [])
        parts = [list(values_of(schema["properties"][name])) for name in names]
        for values in itertools.product(*parts):
            yield dict(zip(names, values, strict=True))


def exact_tool(name: str, arguments: Mapping[str, Any]) -> Tool:
    """A strict tool whose only arguments are these."""
    properties = {key: {"const": value} for key, value in arguments.items()}
    schema = {"type": "object", "properties": properties, "required": [*arguments], "additionalProperties": False}
    return tool(name, schema, strict=True)


def native(family: Family, tools: Sequence[Tool], prompt: str) -> Mapping[str, Any] | None:
    """The structural tag of demanded calls in the family's own form; None: it has none, or cannot hold these tools."""
    if getattr(family, "_call_format", None) is None:
        return None
    turn = ToolPlan(tools=tuple(tools), choice="required", guide_types=GUIDES)
    guide = family.prepare(turn, prompt).guide
    assert guide is not None
    array = '"minItems"' in guide.text  # of calls, in place of the family's own form
    form: dict[str, Any] = json.loads(guide.text)
    return None if array else form["format"]


def calls_in(events: Sequence[Event]) -> list[tuple[str, Any]]:
    """Names and arguments of the calls, which are whole."""
    return [(name, json.loads(text)) for name, text in call_texts(events)]


def call_texts(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Names and texts of arguments of the calls, whole or not."""
    starts = [event for event in events if isinstance(event, CallStart)]
    arguments = {start.index: "" for start in starts}
    for event in events:
        if isinstance(event, CallArguments):
            arguments[event.index] += event.text
    return [(start.name, arguments[start.index]) for start in starts]


def content_in(events: Sequence[Event]) -> str:
    """The content."""
    return "".join(event.text for event in events if isinstance(event, Content))


def reasoning_in(events: Sequence[Event]) -> str:
    """The reasoning."""
    return "".join(event.text for event in events if isinstance(event, Reasoning))


def arguments_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a call: nested values, with these texts among them."""
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False, width=32)
    leaves = st.none() | st.booleans() | numbers | texts
    values = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    )
    return st.dictionaries(st.sampled_from(["a", "b_2", "path", "größe"]), values, max_size=4)


def texts_with(*pieces: str) -> st.SearchStrategy[str]:
    """Strings that are hard for a format: quotes, ends of lines, brackets, and ``pieces`` in any order."""
    hard = [*"\"'\\\n\t{}[]<>|,:;=()é😀\u2028\x7f", "x ", "null", "1", "```"]
    return st.lists(st.sampled_from([*hard, *pieces]), max_size=8).map("".join)


@functools.cache
def formed() -> tuple[str, ...]:
    """The names of the families that can be made to write in their own form."""
    probe = (exact_tool("f", {"a": "x"}), tool("g", strict=True))
    return tuple(name for name, family in FAMILIES.items() if native(family, probe, prompts(family)[0]))


def each_formed(test: _Test) -> _Test:
    """Run a test for each of these families."""
    marked: _Test = pytest.mark.parametrize("family", [FAMILIES[name] for name in formed()], ids=formed())(test)
    return marked


def quotes_strings(family: Family) -> bool:
    """Whether strings stand in quotes, so that they can hold any text."""
    return '"x"' in calls_text(family, (exact_tool("f", {"a": "x"}),))


def calls_text(family: Family, tools: Sequence[Tool]) -> str:
    """A call of each tool, with its only arguments, as the whole of an answer behind its reasoning, if there is any.

    Where an answer has one call at most, it is that of the first tool.
    """
    prompt = prompts(family)[-1]
    form = native(family, tools, prompt)
    assert form is not None
    texts = list(texts_of(form))
    return texts[len(tools)] if len(texts) > len(tools) > 1 and not is_harmony(family) else texts[0]


def is_harmony(family: Family) -> bool:
    """Whether answers are messages, with one call at most and no text around it."""
    return family.name == "harmony"


def is_single(family: Family) -> bool:
    """Whether an answer has one call at most, as its models were taught."""
    return bool(family._call_format.once)  # type: ignore[attr-defined]


def around(family: Family, calls: str) -> tuple[str, str]:
    """An answer that reasons, says ``BEFORE`` and then calls, and the end of its prompt."""
    tags = getattr(family, "tags", None)
    text = calls if is_harmony(family) else f"{BEFORE}\n{calls}"
    if tags is None:
        return text, prompts(family)[0]
    return f"{FREE}{tags.close}{tags.between}{text}", f"{tags.open}\n"
