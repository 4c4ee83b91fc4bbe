"""Llama and LFM2: calls as JSON objects or Python calls, alone or between markers.

    {"name": "f", "parameters": {"a": 1}}
    <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}<|eom_id|>
    [{"name": "f", "parameters": {"a": 1}}]
    [f(a=1, b="x"), g()]
    <|python_start|>[f(a=1)]<|python_end|>
    <|tool_call_start|>[f(a=1)]<|tool_call_end|>

Without a marker they count as calls only at the beginning of a line and when nothing else follows until the end of the
answer: the same text can be part of an explanation.

Sources: https://github.com/meta-llama/llama-models (models/llama3_3/prompt_format.md: custom tools in JSON,
``<|python_tag|>`` and ``<|eom_id|>``; models/llama3_2/text_prompt_format.md and models/llama4/prompt_format.md:
zero-shot function calling, Llama 4's markers) and the chat template of
https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct; for the last line the model card of
https://huggingface.co/LiquidAI/LFM2-1.2B and SGLang's detector for it.
"""

from __future__ import annotations

from typing import ClassVar

from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import NAME_CHARACTERS, dumps, read_json_call, read_name
from gateway.families.markers import Markers
from gateway.families.parser_events import FormingCall, without
from gateway.families.python_literals import read_python_value
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps

LLAMA_JSON_CALLS = CallFormat('{"name": "', '", "parameters": ', "}", once=True)
_LINES = ("\n{", "\n[")


class LlamaParser(FamilyParser):
    """Parses answers with calls in all these forms.

    Attributes:
        before: the marker before calls.
        after: the markers after them, which may be missing.
    """

    before: ClassVar[str]
    after: ClassVar[Markers]

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        if (yield from self.think(opened=self.opened)) is not None:
            yield from self._tagged()
        space = yield from self.source.space()
        if (yield from self.source.peek()) in {"{", "["}:
            yield from self._bare(space, (yield from self.source.take()))
        else:
            self.emitter.content(space)
        seen = Markers(*self.markers.texts, *_LINES)
        while (marker := (yield from self.source.until(seen, self.emitter.content))) is not None:
            if marker in _LINES:
                yield from self._bare(marker[0], marker[1])
            elif marker == self.before:
                yield from self._tagged()

    def _bare(self, space: str, opening: str) -> Steps[None]:
        """Read calls without a marker, whose opening bracket has been read."""
        calls: list[FormingCall] = []
        self.source.record()
        read = self._objects if opening == "{" else self._list
        good = yield from read(calls)
        if good:
            yield from self.source.space()
            yield from self.source.choice(self.after)
            if not (yield from self.source.more()):
                self._complete(calls)
                return
        if not any(call.started for call in calls):
            self.emitter.content(space + opening)
            self._give_up(calls)
        elif good:
            self.emitter.content(without(self.source.recorded(), self.markers.texts))

    def _tagged(self) -> Steps[None]:
        """Read calls behind the marker."""
        calls: list[FormingCall] = []
        self.source.record()
        yield from self.source.space()
        if (yield from self.source.literal("{")):
            good = yield from self._objects(calls)
        elif (yield from self.source.literal("[")):
            good = yield from self._list(calls)
        else:
            good = yield from self._function(calls)
        if good:
            self._complete(calls)
            yield from self.source.space()
            yield from self.source.choice(self.after)
        else:
            self._give_up(calls)

    def _objects(self, calls: list[FormingCall]) -> Steps[bool]:
        """Read JSON objects, the first of which has been opened; between them a semicolon, or space alone."""
        more = True
        while more:
            if not (yield from self._object(calls)):
                return False
            yield from self.source.space()
            yield from self.source.literal(";")
            yield from self.source.space()
            more = yield from self.source.literal("{")
        return True

    def _object(self, calls: list[FormingCall]) -> Steps[bool]:
        call = FormingCall(self.emitter)
        calls.append(call)
        good = yield from read_json_call(self.source, call, opened=True)
        self._behind(call)
        return good

    def _list(self, calls: list[FormingCall]) -> Steps[bool]:
        """Read JSON objects or Python calls behind a bracket that has been read."""
        more = True
        while more:
            yield from self.source.space()
            read = self._object if (yield from self.source.literal("{")) else self._function
            if not (yield from read(calls)):
                return False
            yield from self.source.space()
            more = yield from self.source.literal(",")
            yield from self.source.space()
            more = more and (yield from self.source.peek()) != "]"
        closed = yield from self.source.literal("]")
        self._behind(calls[-1])
        return closed

    def _function(self, calls: list[FormingCall]) -> Steps[bool]:
        """Read one Python call with keyword arguments."""
        source = self.source
        call = FormingCall(self.emitter)
        calls.append(call)
        name = yield from read_name(source)
        if not (yield from source.literal("(")) or not call.named(name):
            return False
        call.arguments("{")
        names: set[str] = set()
        while True:
            yield from source.space()
            if (yield from source.literal(")")):
                call.arguments("}")
                return True
            if not (yield from self._argument(call, names)):
                return False
            yield from source.space()
            if not (yield from source.literal(",")) and (yield from source.peek()) != ")":
                return False

    def _argument(self, call: FormingCall, names: set[str]) -> Steps[bool]:
        """Read one argument; as in Python, none of the ``names`` before it may come again."""
        name = yield from self.source.run(NAME_CHARACTERS)
        yield from self.source.space()
        if not name or name in names or not (yield from self.source.literal("=")):
            return False
        call.arguments(f"{', ' if names else ''}{dumps(name)}: ")
        names.add(name)
        return (yield from read_python_value(self.source, call.arguments))

    def _behind(self, call: FormingCall) -> None:
        """Forget the text of a call that has been said already, so that it is not said again."""
        if call.started:
            self.source.record()

    def _complete(self, calls: list[FormingCall]) -> None:
        self.source.recorded()
        for call in calls:
            call.complete()

    def _give_up(self, calls: list[FormingCall]) -> None:
        """Give up calls that are none, unless one has been said."""
        said = next((call for call in calls if call.started), calls[0])
        self.broken(said)


class LlamaJsonParser(LlamaParser):
    """Parses the calls of Llama 3."""

    before = "<|python_tag|>"
    after = Markers("<|eom_id|>")
    call_markers = (before, *after.texts)


class PythonicParser(LlamaParser):
    """Parses the calls of Llama 4."""

    before = "<|python_start|>"
    after = Markers("<|python_end|>", "<|eom|>")
    call_markers = (before, *after.texts)


class Lfm2Parser(LlamaParser):
    """Parses the calls of LFM2."""

    before = "<|tool_call_start|>"
    after = Markers("<|tool_call_end|>")
    call_markers = (before, *after.texts)
