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

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_calls import NAME_CHARACTERS, read_json_call
from gateway.families.markers import Markers, markers_of
from gateway.families.parser_events import FormingCall, without
from gateway.families.python_calls import python_arguments, read_python_call
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps, TextSource

_LINES = ("\n{", "\n[")
_FENCE = "```"


@dataclass(frozen=True, kw_only=True)
class BareCalls(Grammar):
    """Reads calls in all these forms, and Python calls one a line. One that is broken breaks all beside it.

    Behind calls may stand ``close`` or one of ``extra``.

    Attributes:
        marked: whether calls always stand behind a marker.
        fenced: whether calls without a marker may stand in a Markdown fence.
        written: the form that models are taught: JSON objects, an array of them, a list of Python calls, or such calls
            one a line, which are read behind the marker alone.
    """

    marked: bool = False
    fenced: bool = False
    written: Literal["json", "array", "list", "lines"] = "list"

    @property
    def call_format(self) -> CallFormat | None:
        """The format as a structural tag; None for Python calls without a marker, whose bracket stands in any text."""
        if self.written == "json":
            return CallFormat('{"name": "', '", "parameters": ', "}", once=True)
        if self.written == "array":
            return CallFormat('{"name": "', '", "arguments": ', "}", '[{"name": "', ("[", "]"), ", ")
        if not self.marked:
            return None
        begin, between, end = ("[", ", ", "]") if self.written == "list" else ("\n", "\n", "\n")
        section = (self.opens[0] + begin, end + self.close)
        return CallFormat("", "", ")", self.opens[0], section, between, arguments=python_arguments)

    @cached_property
    def _ends(self) -> Markers:
        return Markers(*filter(None, (self.close, *self.extra)))

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read reasoning, then content and calls."""
        if self.marked:
            return (yield from super().run(parser))
        yield from parser.think(opened=parser.opened)
        yield from self._beginning(parser)
        seen = Markers(*parser.markers.texts, *_LINES, *([_FENCE] if self.fenced else []))
        while (marker := (yield from parser.source.until(seen, parser.emitter.content))) is not None:
            if marker in _LINES:
                parser.source.unread(marker[1])
                yield from self._beginning(parser, marker[0])
            elif marker == _FENCE:
                yield from self._in_fence(parser)
            elif marker in self.opens:
                yield from self.read_block(parser)
            elif marker in self._ends.texts:  # of a block without calls, which Llama 4's template writes before them
                yield from self._beginning(parser)

    def _beginning(self, parser: FamilyParser, begun: str = "", *, closing: str = "") -> Steps[None]:
        """Read calls without a marker, if they come next; arguments as of ``_bare``."""
        begun += yield from parser.source.space()
        opening = yield from self._bracket(parser.source)
        if opening:
            yield from self._bare(parser, begun, opening, closing=closing)
        else:
            parser.emitter.content(begun)

    def _bracket(self, source: TextSource) -> Steps[str]:
        """Read a bracket that begins calls, and no marker; empty where none comes next."""
        marker = yield from source.choice(markers_of(*self.opens))
        if marker is not None:
            source.unread(marker)
        elif (yield from source.peek()) in {"{", "["}:
            return (yield from source.take())
        return ""

    def _in_fence(self, parser: FamilyParser) -> Steps[None]:
        """Read calls in a fence, which has been opened; a fence of something else is content."""
        begun = _FENCE + ("json" if (yield from parser.source.literal("json")) else "")
        yield from self._beginning(parser, begun, closing=_FENCE)

    def _bare(self, parser: FamilyParser, begun: str, opening: str, *, closing: str = "") -> Steps[None]:
        """Read calls without a marker, whose opening bracket has been read.

        Args:
            parser: behind the bracket.
            begun: text before the bracket, which is content if there are no calls.
            opening: the bracket.
            closing: text behind the calls.
        """
        calls: list[FormingCall] = []
        parser.source.record(opening)
        good = yield from (self._objects if opening == "{" else self._list)(parser, calls)
        if good:
            yield from parser.source.space()
            yield from parser.source.choice(self._ends)
            yield from parser.source.literal(closing)
            yield from parser.source.space()
            if not (yield from parser.source.more()):
                self._complete(parser, calls)
                return
        if not any(call.started for call in calls):
            parser.emitter.content(begun)
            self._give_up(parser, calls)
        elif good:
            parser.emitter.content(without(parser.source.recorded(), parser.markers.texts))

    def read_block(self, parser: FamilyParser) -> Steps[bool]:
        """Read the calls behind the marker; returns whether there was one."""
        source = parser.source
        calls: list[FormingCall] = []
        source.record()
        yield from source.space()
        opening = yield from self._bracket(source)
        if opening:
            good = yield from (self._objects if opening == "{" else self._list)(parser, calls)
        else:
            good = yield from self._functions(parser, calls)
        if not good:
            self._give_up(parser, calls)
            return any(call.started for call in calls)
        self._complete(parser, calls)
        yield from source.space()
        yield from source.choice(self._ends)
        return True

    def _objects(self, parser: FamilyParser, calls: list[FormingCall]) -> Steps[bool]:
        """Read JSON objects, the first of which has been opened; between them a semicolon, or space alone."""
        source = parser.source
        more = True
        while more:
            if not (yield from self._object(parser, calls)):
                return False
            yield from source.space()
            yield from source.literal(";")
            yield from source.space()
            more = yield from source.literal("{")
        return True

    def _object(self, parser: FamilyParser, calls: list[FormingCall]) -> Steps[bool]:
        calls.append(FormingCall(parser.emitter))
        good = yield from read_json_call(parser.source, calls[-1], opened=True)
        self._behind(parser, calls[-1])
        return good

    def _list(self, parser: FamilyParser, calls: list[FormingCall]) -> Steps[bool]:
        """Read JSON objects or Python calls behind a bracket that has been read."""
        source = parser.source
        more = True
        while more:
            yield from source.space()
            read = self._object if (yield from source.literal("{")) else self._function
            if not (yield from read(parser, calls)):
                return False
            yield from source.space()
            more = yield from source.literal(",")
            yield from source.space()
            more = more and (yield from source.peek()) != "]"
        closed = yield from source.literal("]")
        self._behind(parser, calls[-1])
        return closed

    def _functions(self, parser: FamilyParser, calls: list[FormingCall]) -> Steps[bool]:
        """Read a Python call, or several lines of them."""
        more = True
        while more:
            if not (yield from self._function(parser, calls)):
                return False
            self._behind(parser, calls[-1])
            space = yield from parser.source.space()
            following = yield from parser.source.peek()
            more = self.written == "lines" and "\n" in space and bool(following) and following in NAME_CHARACTERS
        return True

    def _function(self, parser: FamilyParser, calls: list[FormingCall]) -> Steps[bool]:
        calls.append(FormingCall(parser.emitter))
        return (yield from read_python_call(parser.source, calls[-1], guided=parser.guided))

    def _behind(self, parser: FamilyParser, call: FormingCall) -> None:
        """Forget the text of a call that has been said already, so that it is not said again."""
        if call.started:
            parser.source.record()

    def _complete(self, parser: FamilyParser, calls: list[FormingCall]) -> None:
        parser.source.recorded()
        for call in calls:
            call.complete()

    def _give_up(self, parser: FamilyParser, calls: list[FormingCall]) -> None:
        """Give up calls that are none, unless one has been said."""
        parser.broken(next((call for call in calls if call.started), calls[0]))
