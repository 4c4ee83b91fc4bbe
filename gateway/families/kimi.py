"""Kimi K2: calls between tool tokens with ids of their own, and the Thinking models' reasoning between think tags.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
    <|tool_calls_section_end|>

all in one line. Sources: https://github.com/MoonshotAI/Kimi-K2 (docs/tool_call_guidance.md: format and ids); the chat
template of https://huggingface.co/moonshotai/Kimi-K2-Thinking.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_calls import LONGEST_NAME, NAME_CHARACTERS, read_arguments
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat, Format, arguments_format, constant, sequence
from gateway.families.text_source import Steps
from gateway.families.tool_plan import Tool

SECTION = "<|tool_calls_section_begin|>"
_SECTION_END = "<|tool_calls_section_end|>"
_CALL = "<|tool_call_begin|>"
_CALL_END = "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"


class KimiGrammar(Grammar):
    """Reads calls; the name is in the id, between ``functions.`` and the number."""

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (SECTION, _SECTION_END, _CALL, _CALL_END, _ARGUMENTS)

    @property
    def opening(self) -> Sequence[str]:
        """The one before a call."""
        return (_CALL,)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[bool]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        yield from source.space()
        call_id = yield from source.run(NAME_CHARACTERS + ":", LONGEST_NAME)
        yield from source.space()
        name = call_id.rpartition(":")[0].removeprefix("functions.")
        if not (yield from source.literal(_ARGUMENTS)):
            return False
        parser.end_header()
        if not call.named(name, call_id):
            return False
        yield from source.space()
        return (yield from read_arguments(source, call)) and call.complete()


def _numbered_arguments(tool: Tool) -> Format:
    """The number of the call, as the model counts them, and its arguments."""
    number = {"type": "regex", "pattern": "[0-9]{1,4}"}
    return sequence(number, constant(_ARGUMENTS), arguments_format(tool))


KIMI_CALLS = CallFormat(
    f"{_CALL}functions.",
    ":",
    _CALL_END,
    trigger=_CALL,
    section=(SECTION, _SECTION_END),
    arguments=_numbered_arguments,
)
