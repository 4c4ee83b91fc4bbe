"""Qwen3-Coder: calls as XML, whose values are text and get their types from the tool's schema.

    <tool_call>
    <function=f>
    <parameter=a>
    1
    </parameter>
    </function>
    </tool_call>

Source: the chat templates of https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct and, with reasoning, of
https://huggingface.co/Qwen/Qwen3.5-35B-A3B. Models may leave ``<tool_call>`` out; the function's tag is enough.
"""

from __future__ import annotations

import re

from gateway.families.bare_arguments import BareArguments, bare_formats
from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import LONGEST_NAME, NAME_CHARACTERS, read_name
from gateway.families.markers import Markers
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat, Format, constant, sequence, tag
from gateway.families.text_source import Steps
from gateway.families.tool_plan import Tool

OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
FUNCTION = "<function="
_PARAMETER = "<parameter="
_VALUE_CLOSE = "</parameter>"
_VALUE_END = Markers(_VALUE_CLOSE, _PARAMETER)
_KEY_END = Markers(">", "<", "\n")
_NEXT = Markers(_PARAMETER, "</function>", _CLOSE)
_TAGS = Markers(_VALUE_CLOSE, "</function>", _PARAMETER, FUNCTION)
_TAG = re.compile(r"<(?:function|parameter)=[^<>\n]*(?:>|\Z)|</(?:function|parameter)>")


class Qwen3CoderParser(FamilyParser):
    """Parses ``<function=...>`` blocks, with or without the tags around them."""

    call_markers = (OPEN, _CLOSE)
    opening = (OPEN,)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        seen = Markers(*self.markers.texts, FUNCTION)
        yield from self.think(opened=self.opened)
        while (marker := (yield from self.source.until(seen, self.emitter.content))) is not None:
            if marker == OPEN:
                yield from self.read_block()
            elif marker == FUNCTION:
                yield from self._functions(FUNCTION)

    def read_block(self) -> Steps[bool]:
        """Read the functions behind the opening tag; returns whether there was a call."""
        space = yield from self.source.space()
        if (yield from self.source.literal(FUNCTION)):
            return (yield from self._functions(space + FUNCTION))
        self.say_prose(space)
        return False

    def _functions(self, head: str) -> Steps[bool]:
        """Read functions, the tag of the first of which has been read.

        Args:
            head: the text of it that was read.
        """
        called = False
        while True:
            call = self.begin_call()
            if not (yield from self._function(call)) or not call.complete():
                if not call.started:
                    self.say_prose(head.removesuffix(FUNCTION) if self.source.cut else head)
                self.broken(call)
                return called or call.started
            called = True
            head = yield from self.source.space()
            if not (yield from self.source.literal(FUNCTION)):
                break
            head += FUNCTION
        yield from self.source.literal(_CLOSE)
        return called

    def _function(self, call: FormingCall) -> Steps[bool]:
        """Read a function behind ``<function=``."""
        self.begin_header()
        name = yield from read_name(self.source)
        if not (yield from self.source.literal(">")) or not call.named(name):
            return False
        self.end_header()
        arguments = BareArguments(call, self.plan.parameters(name), line_end="\n")
        while True:
            yield from self.source.space()
            marker = yield from self.source.choice(_NEXT)
            if marker != _PARAMETER:
                break
            if not (yield from self._parameter(arguments)):
                return False
        if marker is not None:
            arguments.end()
        return marker is not None

    def _parameter(self, arguments: BareArguments) -> Steps[bool]:
        """Read a parameter behind ``<parameter=``."""
        pieces: list[str] = []
        if (yield from self.source.until(_KEY_END, pieces.append)) != ">" or not arguments.begin("".join(pieces)):
            return False
        yield from self.source.literal("\n")
        while (marker := (yield from self.source.until(_VALUE_END, arguments.more))) == _PARAMETER:
            name = yield from self.source.run(NAME_CHARACTERS, LONGEST_NAME)
            if not self.guided and name and (yield from self.source.literal(">")):
                return False  # its closing tag is missing: where this value ends is not known
            arguments.more(_PARAMETER + name)
        if marker is not None:
            self.source.examined += arguments.close()
        return marker is not None

    def without_format(self, raw: str) -> str:
        """The text as of all families; of a call that was cut also without the tags of the function."""
        if self.source.cut:
            raw = _TAG.sub("", _TAGS.cut_off(raw))
        return super().without_format(raw)


def _parameter_formats(tool: Tool) -> Format | None:
    """The parameters of a function; None where one of them cannot be held to its schema."""
    values = bare_formats(tool)
    if values is None:
        return None
    parameters = [tag(f"{_PARAMETER}{name}>\n", value, "\n</parameter>\n") for name, value in values.items()]
    return sequence(constant(">\n"), *parameters)


QWEN3_CODER_CALLS = CallFormat(
    f"{OPEN}\n{FUNCTION}", "", f"</function>\n{_CLOSE}", trigger=OPEN, arguments=_parameter_formats
)
