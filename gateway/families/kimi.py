"""Kimi K2: calls between tool tokens with ids of their own, and the Thinking models' reasoning between think tags.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
    <|tool_calls_section_end|>

all in one line. Sources: https://github.com/MoonshotAI/Kimi-K2 (docs/tool_call_guidance.md: format and ids); the chat
template of https://huggingface.co/moonshotai/Kimi-K2-Thinking.
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.emitter import Call
from gateway.families.family import Parser, Turn
from gateway.families.json_calls import read_arguments
from gateway.families.markers import Markers
from gateway.families.natively import LONGEST_NAME, NAME_CHARACTERS, arguments_format
from gateway.families.parsing import MarkedCallsParser
from gateway.families.source import Steps
from gateway.families.structural import Format, constant, sequence, tag, triggered
from gateway.families.thinking import ThinkTags

SECTION = "<|tool_calls_section_begin|>"
SECTION_END = "<|tool_calls_section_end|>"
CALL = "<|tool_call_begin|>"
CALL_END = "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"


class KimiParser(MarkedCallsParser):
    """Parses calls; the name is in the id, between ``functions.`` and the number."""

    opening = CALL

    def read_call(self, call: Call) -> Steps[bool]:
        """Read what follows the marker; see ``MarkedCallsParser``."""
        source = self.source
        yield from source.space()
        call_id = yield from source.run(NAME_CHARACTERS + ":", LONGEST_NAME)
        yield from source.space()
        name = call_id.rpartition(":")[0].removeprefix("functions.")
        if not (yield from source.literal(ARGUMENTS)):
            return False
        self.end_header()
        if not call.named(name, call_id):
            return False
        yield from source.space()
        return (yield from read_arguments(source, call)) and call.complete()


class KimiFamily(BaseFamily):
    """Kimi K2, which needs its own ids back in the history."""

    name = "kimi"
    tags = ThinkTags(instead=(SECTION,))
    markers = Markers(SECTION, SECTION_END, CALL, CALL_END, ARGUMENTS, "<think>", "</think>")
    signs: tuple[tuple[str, ...], ...] = ((SECTION,), ("<|im_system|>tool_declare<|im_middle|>",))
    model_types = frozenset({"kimi_k2", "kimi_k25"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of calls and of the reasoning before them."""
        return KimiParser(turn, eager=eager, markers=self.markers, tags=self.tags, prompt=prompt)

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """Calls with ids as the model numbers them; where one is demanded, each in a section of its own."""
        before, after = (SECTION, SECTION_END) if demanded else ("", "")
        number = {"type": "regex", "pattern": "[0-9]{1,4}"}
        tags = [
            tag(
                f"{before}{CALL}functions.{tool.name}:",
                sequence(number, constant(ARGUMENTS), arguments_format(tool)),
                CALL_END + after,
            )
            for tool in turn.tools
        ]
        return triggered(before + CALL, tags, demanded=demanded, once=not turn.parallel)
