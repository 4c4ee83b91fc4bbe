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

from gateway.families.bare_values import bare_values
from gateway.families.base import BaseFamily
from gateway.families.emitter import Call
from gateway.families.family import Parser, Tool, Turn
from gateway.families.markers import Markers
from gateway.families.natively import LONGEST_NAME, NAME_CHARACTERS, read_name
from gateway.families.parsing import FamilyParser
from gateway.families.source import Steps
from gateway.families.structural import Format, constant, sequence, tag, triggered
from gateway.families.thinking import ThinkTags
from gateway.families.typed_values import BareArguments

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
_FUNCTION = "<function="
_PARAMETER = "<parameter="
_VALUE_CLOSE = "</parameter>"
_VALUE_END = Markers(_VALUE_CLOSE, _PARAMETER)
_KEY_END = Markers(">", "<", "\n")
_NEXT = Markers(_PARAMETER, "</function>", CLOSE)
_TAGS = Markers(_VALUE_CLOSE, "</function>", _PARAMETER, _FUNCTION)
_TAG = re.compile(r"<(?:function|parameter)=[^<>\n]*(?:>|\Z)|</(?:function|parameter)>")


class Qwen3CoderParser(FamilyParser):
    """Parses ``<function=...>`` blocks, with or without the tags around them."""

    def __init__(
        self, turn: Turn, *, eager: bool, guided: bool, markers: Markers, tags: ThinkTags | None, prompt: str
    ) -> None:
        """Parse one answer.

        Args:
            turn: names the tools.
            eager: whether calls are said while they form.
            guided: whether a guide closes every value, so that all text before the closing tag is the value.
            markers: the tool tags, and the think tags where there are any.
            tags: around the reasoning; None: there is none.
            prompt: the rendered prompt.
        """
        self._tags = tags
        self._guided = guided
        self._opened = tags is not None and tags.opened_by(prompt)
        self._parameters = {tool.name: tool.parameters for tool in turn.tools}
        self._seen = Markers(*markers.texts, _FUNCTION)
        super().__init__(turn, eager=eager, markers=markers)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        if self._tags is not None:
            yield from self.think(self._tags, opened=self._opened, block=self._block)
        while (marker := (yield from self.source.until(self._seen, self.emitter.content))) is not None:
            if marker == OPEN:
                yield from self._block()
            elif marker == _FUNCTION:
                yield from self._functions(_FUNCTION)

    def _block(self) -> Steps[bool]:
        """Read what follows the opening tag; returns whether there was a call."""
        space = yield from self.source.space()
        if (yield from self.source.literal(_FUNCTION)):
            return (yield from self._functions(space + _FUNCTION))
        self.say_prose(space)
        return False

    def _functions(self, head: str) -> Steps[bool]:
        """Read functions, the tag of the first of which has been read.

        Args:
            head: what was read of it.
        """
        called = False
        while True:
            call = self.begin_call()
            if not (yield from self._function(call)) or not call.complete():
                if not call.started:
                    self.say_prose(head.removesuffix(_FUNCTION) if self.source.cut else head)
                self.broken(call)
                return called or call.started
            called = True
            head = yield from self.source.space()
            if not (yield from self.source.literal(_FUNCTION)):
                break
            head += _FUNCTION
        yield from self.source.literal(CLOSE)
        return called

    def _function(self, call: Call) -> Steps[bool]:
        """Read a function behind ``<function=``."""
        self.begin_header()
        name = yield from read_name(self.source)
        if not (yield from self.source.literal(">")) or not call.named(name):
            return False
        self.end_header()
        arguments = BareArguments(call, self._parameters[name], line_end="\n")
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
            if not self._guided and name and (yield from self.source.literal(">")):
                return False  # where this value ends nobody knows: its closing tag is missing
            arguments.more(_PARAMETER + name)
        if marker is not None:
            self.source.examined += arguments.close()
        return marker is not None

    def without_format(self, raw: str) -> str:
        """As of all families; but of a call that was cut, the tags of the function are left out as well."""
        if self.source.cut:
            raw = _TAG.sub("", _TAGS.cut_off(raw))
        return super().without_format(raw)


class Qwen3CoderFamily(BaseFamily):
    """Qwen3-Coder, which does not reason."""

    name = "qwen3_coder"
    markers = Markers(OPEN, CLOSE)
    signs: tuple[tuple[str, ...], ...] = ((OPEN, _FUNCTION),)

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of XML calls, and of reasoning before them."""
        guided = self._natively(turn)
        return Qwen3CoderParser(turn, eager=eager, guided=guided, markers=self.markers, tags=self.tags, prompt=prompt)

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """Blocks as the templates write them, where every argument of every tool can be held to its schema."""
        tags = [_call_format(tool) for tool in turn.tools]
        whole = [each for each in tags if each is not None]
        if len(whole) < len(tags):
            return None
        return triggered(OPEN, whole, demanded=demanded, once=not turn.parallel)


def _call_format(tool: Tool) -> Format | None:
    values = bare_values(tool)
    if values is None:
        return None
    parameters = [tag(f"{_PARAMETER}{name}>\n", value, "\n</parameter>\n") for name, value in values.items()]
    return tag(f"{OPEN}\n{_FUNCTION}{tool.name}", sequence(constant(">\n"), *parameters), f"</function>\n{CLOSE}")


class Qwen35Family(Qwen3CoderFamily):
    """Qwen3.5 and its successors: the same calls, with reasoning."""

    name = "qwen3_5"
    tags = ThinkTags(between="\n\n", instead=(OPEN,))
    markers = Markers(OPEN, CLOSE, "<think>", "</think>")
    signs = ((OPEN, _FUNCTION, "<think>"),)
    model_types = frozenset({"qwen3_5", "qwen3_5_moe"})
