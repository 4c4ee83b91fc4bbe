"""Calls whose arguments stand in tags, one after the other.

    <function=f><parameter=a>1</parameter></function>
    <invoke name="f"><parameter name="a">1</parameter></invoke>
    <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>

Strings stand bare, all other values are JSON: what a value is, the tool's schema says, or an attribute of its tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gateway.text.families.bare_arguments import BareArguments, bare_forms, held_arguments
from gateway.text.families.family import Tool
from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_calls import LONGEST_NAME, NAME_CHARACTERS, read_arguments, read_name
from gateway.text.families.markers import markers_of
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.structural_tags import FREE_TEXT, NOTHING, CallFormat, Format, either, sequence, tag
from gateway.text.families.text_source import Emit, Steps, TextSource, need, pieces_of

_TRUE, _FALSE = 'true"', 'false"'
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


@dataclass(frozen=True, kw_only=True)
class TaggedCalls(Grammar):
    """Reads calls in tags, and converts arguments to JSON.

    The texts are as a template writes them, with its line ends; an answer may have other whitespace between tags.

    Attributes:
        section: texts around calls, which an answer may leave out.
        wrapped: whether each call has a section of its own, as far as a template tells.
        call: the beginning of a call, with ``NAME`` for the function's name; an answer may leave out what stands
            between the first and the last tag before the name.
        argument: an argument, with ``KEY`` for its name and ``VALUE`` for its value; a line end between the value and
            the next tag is not part of the value.
        end: text behind the arguments.
        attribute: attribute of the tag with the name that says whether a value is a string.
        own: whether the tags of a call are not ordinary text either, so that they are shown nowhere.
        or_json: whether the arguments may be one JSON object instead.
        cdata: whether a value may stand in a CDATA section.
    """

    wrapped: bool = False
    gap: str = "\n"
    argument: str
    end: str
    attribute: str = ""
    own: bool = False
    or_json: bool = False
    cdata: bool = False

    @cached_property
    def _call(self) -> Sequence[str]:
        """The texts before and behind a function's name."""
        return self.call.partition("NAME")[::2]

    @cached_property
    def _argument(self) -> Sequence[str]:
        """The texts before an argument's name, between it and the value, and behind that."""
        return re.split("KEY|VALUE", self.argument)

    @property
    def markers(self) -> Sequence[str]:
        """Markers of the section, the tags if they belong to this format alone, and the extra markers."""
        tags = (self._call[0], *self._argument, self.end) if self.own else ()
        return [
            piece for text in (*self.section, *tags, *self.extra) for piece in pieces_of(text) if piece.startswith("<")
        ]

    @property
    def opening(self) -> Sequence[str]:
        """The texts that begin a section or a call."""
        return (*pieces_of(self.section[0]), pieces_of(self._call[0])[0])

    @property
    def begins(self) -> Sequence[str]:
        """The first text of a section, or of a call where there is no section."""
        return pieces_of(self.section[0] or self._call[0])[:1]

    @property
    def call_format(self) -> CallFormat | None:
        """The format of a call in its section."""
        call, section = f"{self._call[0]}NAMEARGUMENTS{self.end}", self.section
        if self.wrapped:
            call, section = section[0] + call + section[1], ("", "")
        return CallFormat(call, self.trigger or self.begins[0], section, self.gap, self.lead, self.once, self.hold)

    def skip(self, source: TextSource, marker: str) -> Steps[str]:
        """Read the rest of a tag."""
        return "" if marker.endswith(">") else (yield from rest_of_tag(source))

    def read_block(self, parser: FamilyParser) -> Steps[None]:
        """Read a section, or a call without one."""
        source, first = parser.source, pieces_of(self._call[0])[0]
        begun, called = parser.marker == first, False
        while True:
            space = "" if begun else (yield from source.space())
            if not begun and not (yield from source.literal(first)):
                break
            call = parser.begin_call(first, header=True)
            if not (yield from parser.attempt(call, self.read_call(parser, call), before=space)) or not self.section[0]:
                return
            begun, called = False, True
        source.cut_in(first)
        if called:
            yield from source.literal(self.section[1].strip())
        else:
            parser.say_prose(space)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read a call behind the first of its beginning texts; see ``Grammar``."""
        source, named = parser.source, self._call[1].strip()
        *between, last = pieces_of(self._call[0])
        for piece in between[1:]:
            yield from source.spaced(piece)
        if between:
            yield from source.expect(last)
        yield from source.space()
        name = yield from read_name(source)
        yield from source.expect(named)
        marker = "" if named else (yield from self._marker(source))
        call.named(name)
        parser.end_header()
        end, *more = pieces_of(self.end)
        if (yield from self._read_arguments(parser, call, name, marker)) == end:
            for piece in more:
                yield from source.spaced(piece)
        call.complete()

    def _marker(self, source: TextSource) -> Steps[str]:
        """Read the text that begins an argument, or ends the call."""
        return need((yield from source.spaced(self._argument[0], pieces_of(self.end)[0], *pieces_of(self.section[1]))))

    def _read_arguments(self, parser: FamilyParser, call: FormingCall, name: str, marker: str) -> Steps[str]:
        """Read the arguments and the marker behind them, which is returned; ``marker``: the first, if read before."""
        source = parser.source
        if self.or_json and (yield from source.ahead()) == "{":
            yield from read_arguments(source, call)
            yield from source.expect(end := pieces_of(self.end)[0])
            return end
        arguments = BareArguments(source, call, parser.plan.parameters(name), line_end=self._line_end)
        marker = marker or (yield from self._marker(source))
        while marker == self._argument[0]:
            yield from self._read_argument(parser, arguments)
            marker = yield from self._marker(source)
        arguments.end()
        return marker

    def _read_argument(self, parser: FamilyParser, arguments: BareArguments) -> Steps[None]:
        """Read an argument behind the text that begins it."""
        source, text = parser.source, None
        first, *more = pieces_of(self._argument[1])
        bare = () if first.startswith("<") else ("<", "\n")
        ends = (first[0] if self.attribute else first, *(bare or (self._argument[0], *more)))
        name, end = yield from source.text_until(*ends)
        need(end == ends[0])
        if self.attribute:
            more = [first[1:]]
            if (yield from source.literal(f' {self.attribute}="')):
                word = yield from source.choice(_TRUE, _FALSE)
                if word is None:
                    yield from rest_of_tag(source)
                text = need(word) == _TRUE
        yield from source.expect(*more)
        yield from arguments.read(name.strip(), lambda emit: self._read_value(parser, emit), text=text)

    def _read_value(self, parser: FamilyParser, emit: Emit) -> Steps[None]:
        """Read a value and the text behind it; one that another begins in was never closed."""
        source, end = parser.source, self._argument[2].strip()
        yield from source.literal(self._line_end)
        if self.cdata and (yield from source.literal(_CDATA)):
            yield from source.until(markers_of(_CDATA_END), emit)
            need((yield from source.literal(end)))
            return
        first, *more = pieces_of(self._argument[1])
        again, closed = (more[-1], "") if more else (self._argument[0], first if first.startswith("<") else first[0])
        while need((yield from source.until(markers_of(end, again), emit))) == again:
            name = (yield from read_name(source)) if closed else ""
            need(parser.guided or (closed and not (name and (yield from source.literal(closed)))))
            emit(again + name)

    def without_format(self, raw: str, *, cut: bool) -> str:
        """Remove tags that are the format's own, or that the token limit has cut, from a text; see ``Grammar``."""
        if cut:
            tags = (pieces_of(self._call[0])[-1], self._argument[0], self._argument[2].strip(), pieces_of(self.end)[0])
            raw = markers_of(*tags).cut_off(raw)
        elif not self.own:
            return raw
        texts = (self._call[0], *self._argument[::2], self.end)
        patterns = (r"\s*".join(map(re.escape, pieces_of(text))) for text in texts)
        # With names and attributes.
        whole = (each if each.endswith(">") else each + r"[^<>\n]*(?:>|\Z)" for each in patterns)
        return re.sub("|".join(whole), "", raw)

    @property
    def _line_end(self) -> str:
        return "\n" if self._argument[2].startswith("\n") else ""

    def hold(self, tool: Tool) -> Format | None:
        """Make the format of a tool's arguments; None where one cannot be constrained by its schema."""
        held = held_arguments(tool, self._held)
        if held is None:
            return None
        pieces = [either(*forms, *([NOTHING] if optional else [])) for forms, optional in held.values()]
        return sequence(self._call[1], *pieces)

    def _held(self, name: str, value: Mapping[str, Any]) -> list[Format] | None:
        """The forms of an argument; None where it cannot be held."""
        key, keyed, value_end = self._argument
        end = value_end.strip()
        tags = []
        for text, form in bare_forms(value):
            attribute = f' {self.attribute}="{str(text).lower()}">' if self.attribute else ">"
            begin = key + name + keyed.replace(">", attribute)
            if form == FREE_TEXT:  # which must not hold the tag, with or without line ends
                tags.append(sequence(tag(begin, form, end), value_end.partition(end)[2]))
            else:
                tags.append(tag(begin, form, value_end))
        return tags or None


def rest_of_tag(source: TextSource, begun: str = "") -> Steps[str]:
    """Read the rest of an unreadable tag, which ``begun`` may begin; returns the text that is not a tag."""
    text = yield from source.run(NAME_CHARACTERS + ' ="' + begun, LONGEST_NAME)
    return "" if (yield from source.literal(">")) else text
