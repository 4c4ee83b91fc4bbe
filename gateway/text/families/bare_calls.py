"""Calls that may stand without a marker: JSON objects, JSON in a list, or calls as in Python.

    {"name": "f", "parameters": {"a": 1}}
    <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}<|eom_id|>
    [{"name": "f", "parameters": {"a": 1}}]
    [f(a=1, b="x"), g()]
    <|tool_call_start|>[f(a=1)]<|tool_call_end|>

Without a marker they count as calls only at the beginning of a line and when nothing else follows until the end of the
answer: the same text can be part of an explanation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.text.families.bare_arguments import NOTES, row_format, types_of
from gateway.text.families.family import Tool
from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_calls import NAME_CHARACTERS, dumps, read_json_call, read_name
from gateway.text.families.literals import LiteralReader
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.structural_tags import Format, constant, either, json_format, sequence
from gateway.text.families.text_source import Steps, TextSource, need

_LINES = ("\n{", "\n[")
_FENCE = "```"


@dataclass(frozen=True, kw_only=True)
class BareCalls(Grammar):
    """Reads calls in all these forms; one broken call makes all beside it content.

    ``close`` or one of ``extra`` may follow calls.

    Attributes:
        call: a JSON object, or a Python call, whose ``ARGUMENTS`` has the opening bracket: ``NAMEARGUMENTS)``.
        marked: whether calls always stand behind a marker.
        fenced: whether calls without a marker may stand in a Markdown fence.
        lines: whether Python calls may stand one a line behind the marker.
    """

    marked: bool = False
    fenced: bool = False
    lines: bool = False

    @property
    def _ends(self) -> Sequence[str]:
        return [text for text in (self.close, *self.extra) if text]

    def hold(self, tool: Tool) -> Format | None:
        """Make the format of a tool's arguments; None for a Python call whose arguments may have other names."""
        if self.call.startswith("{"):
            return super().hold(tool)
        return row_format(tool, _python_argument, begin="(", between=", ")

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read reasoning, then content and calls."""
        if self.marked:
            return (yield from super().run(parser))
        yield from parser.think(opened=parser.opened)
        yield from self._read_bare(parser)
        seen = parser.markers.also(*_LINES, *([_FENCE] if self.fenced else []))
        while (marker := (yield from parser.source.until(seen, parser.emitter.content))) is not None:
            if marker in _LINES:
                parser.source.unread(marker[1])
                yield from self._read_bare(parser, marker[0])
            elif marker == _FENCE:
                named = yield from parser.source.literal("json")
                yield from self._read_bare(parser, _FENCE + "json" * named, closing=_FENCE)
            elif marker in self.opens:
                yield from self.read_block(parser)
            elif marker in self._ends:  # of a block without calls, which Llama 4's template writes before them
                yield from self._read_bare(parser)

    def _read_bare(self, parser: FamilyParser, begun: str = "", *, closing: str = "") -> Steps[None]:
        """Read calls without a marker, if they come next; ``begun`` stands before them, ``closing`` may behind them."""
        source = parser.source
        begun += yield from source.space()
        if not (yield from self._bracket(source)):
            parser.emitter.content(begun)
            return
        calls = [parser.begin_call(begun)]
        if not (yield from parser.attempt(calls[0], self._read_calls(parser, calls))):
            return
        yield from source.spaced(*self._ends)
        yield from source.literal(closing)
        yield from source.space()
        if not (yield from source.more()):
            _complete(parser, calls)
        elif calls[0].started:
            parser.emitter.content(parser.markers.removed(source.recorded()))
        else:
            parser.broken(calls[0])

    def read_block(self, parser: FamilyParser) -> Steps[None]:
        """Read the calls behind the marker."""
        calls = [parser.begin_call()]
        yield from parser.source.space()
        if (yield from parser.attempt(calls[0], self._read_calls(parser, calls))):
            _complete(parser, calls)
            yield from parser.source.spaced(*self._ends)

    def _bracket(self, source: TextSource) -> Steps[str]:
        """The bracket that comes next and begins calls, but no marker; empty where there is none."""
        marker = yield from source.choice(*self.opens)
        if marker is not None:
            source.unread(marker)
            return ""
        following = yield from source.peek()
        return following if following in {"{", "["} else ""

    def _read_calls(self, parser: FamilyParser, calls: list[FormingCall]) -> Steps[None]:
        """Read calls in one of the forms; ``calls`` has the first, which has begun, and takes the others."""
        source = parser.source

        def another(_: str = "") -> Steps[None]:
            calls.append(FormingCall(parser.emitter))
            yield from _read_one(parser, calls[-1])

        opening = yield from self._bracket(source)
        if opening == "[":
            yield from source.take()
            yield from source.space()
        yield from _read_one(parser, calls[0])
        if opening == "[":
            yield from LiteralReader(source, calls[0].arguments).row("]", another, begun=True)
            _forget(parser, calls[0])
            return
        while (yield from self._goes_on(source, objects=bool(opening))):
            yield from another()

    def _goes_on(self, source: TextSource, *, objects: bool) -> Steps[bool]:
        """Whether another call follows: an object, perhaps behind a semicolon, or a Python call in the next line."""
        space = yield from source.space()
        if objects:
            yield from source.literal(";")
            return (yield from source.ahead()) == "{"
        following = yield from source.peek()
        return self.lines and "\n" in space and following in set(NAME_CHARACTERS)


def _complete(parser: FamilyParser, calls: list[FormingCall]) -> None:
    parser.source.recorded()
    for call in calls:
        call.complete()


def _read_one(parser: FamilyParser, call: FormingCall) -> Steps[None]:
    """Read one call; it is not completed: the text behind it matters."""
    if (yield from parser.source.peek()) == "{":
        yield from read_json_call(parser.source, call)
    else:
        yield from _read_python_call(parser.source, call, guided=parser.guided)
    _forget(parser, call)


def _forget(parser: FamilyParser, call: FormingCall) -> None:
    """Forget the text of a call that has been said already, so that it is not said again."""
    if call.started:
        parser.source.record()


def _read_python_call(source: TextSource, call: FormingCall, *, guided: bool) -> Steps[None]:
    """Read a call with keyword arguments; as in Python, no name comes twice.

    ``guided``: whether ``_python_argument`` holds the arguments, so that strings and collections are JSON's.
    """
    name = yield from read_name(source)
    need((yield from source.literal("(")))
    call.named(name)
    call.arguments("{")
    reader = LiteralReader(source, call.arguments)
    names: set[str] = set()

    def argument(separator: str) -> Steps[None]:
        name = yield from source.run(NAME_CHARACTERS)
        need(name and name not in names)
        yield from source.expect("=")
        call.arguments(f"{separator}{dumps(name)}: ")
        names.add(name)
        held = guided and (yield from source.peek()) in {'"', "[", "{"}
        yield from source.json(call.arguments) if held else reader.value()

    yield from reader.row(")", argument)
    call.arguments("}")


def _python_argument(name: str, value: Mapping[str, Any]) -> Format | None:
    """An argument as a piece of a structural tag; None where its name is none in Python."""
    if not set(name).issubset(NAME_CHARACTERS):
        return None
    word = types_of(value) == {"boolean"} and NOTES.issuperset(value)
    return sequence(f"{name}=", either(constant("True"), constant("False")) if word else json_format(value))
