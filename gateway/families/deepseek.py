"""DeepSeek V3, R1 and V3.1: calls between tool tokens, and reasoning between ``<think>`` tags.

V3 and R1 fence the arguments:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
    ```json
    {"a": 1}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

V3.1 does not:

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>

Sources: ``chat_template`` in tokenizer_config.json of https://huggingface.co/deepseek-ai/DeepSeek-V3-0324 and
https://huggingface.co/deepseek-ai/DeepSeek-R1; the model card of https://huggingface.co/deepseek-ai/DeepSeek-V3.1
(ToolCall). V3.1 at times fences the arguments too, as noted in llama.cpp's tests for it.
"""

# ruff: noqa: RUF001, RUF002 - the tokens are spelled with these characters

from __future__ import annotations

from collections.abc import Sequence

from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_calls import NAME_CHARACTERS, read_arguments, read_name
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps

CALLS = "<｜tool▁calls▁begin｜>"
_CALLS_END = "<｜tool▁calls▁end｜>"
_CALL = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FENCE = "```"
FENCED_CALLS = CallFormat(
    f"{_CALL}function{_SEPARATOR}",
    f"\n{_FENCE}json\n",
    f"\n{_FENCE}{_CALL_END}",
    trigger=_CALL,
    section=(CALLS, _CALLS_END),
)
UNFENCED_CALLS = CallFormat(_CALL, _SEPARATOR, _CALL_END, section=(CALLS, _CALLS_END))


class DeepseekGrammar(Grammar):
    """Reads calls of both formats: the text behind the separator tells which it is."""

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (CALLS, _CALLS_END, _CALL, _CALL_END, _SEPARATOR)

    @property
    def opening(self) -> Sequence[str]:
        """The one before a call."""
        return (_CALL,)

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[bool]:
        """Read a call behind its marker; see ``Grammar``."""
        source = parser.source
        yield from source.space()
        name = yield from read_name(source)  # or the type of the tool, `function`
        yield from source.space()
        if not (yield from source.literal(_SEPARATOR)):
            return False
        yield from source.space()
        following = yield from source.peek()
        if following and following in NAME_CHARACTERS:
            name = yield from read_name(source)
            yield from source.space()
        if not call.named(name):
            return False
        fenced = yield from source.literal(_FENCE)
        if fenced:
            yield from source.literal("json")
        yield from source.space()
        if (yield from source.peek()) in {"{", '"'}:
            parser.end_header()
        if not (yield from read_arguments(source, call)) or not call.complete():
            return False
        if fenced:
            yield from source.space()
            yield from source.literal(_FENCE)
        return True
