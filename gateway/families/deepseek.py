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

from gateway.families.base import BaseFamily
from gateway.families.emitter import Call
from gateway.families.family import Parser, Turn
from gateway.families.json_calls import read_arguments
from gateway.families.markers import Markers
from gateway.families.natively import NAME_CHARACTERS, arguments_format, read_name
from gateway.families.parsing import MarkedCallsParser
from gateway.families.source import Steps
from gateway.families.structural import Format, tag, triggered
from gateway.families.thinking import ThinkTags

CALLS = "<｜tool▁calls▁begin｜>"
CALLS_END = "<｜tool▁calls▁end｜>"
CALL = "<｜tool▁call▁begin｜>"
CALL_END = "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
_FENCE = "```"


class DeepseekParser(MarkedCallsParser):
    """Parses calls of both formats: what follows the separator tells which it is."""

    opening = CALL

    def read_call(self, call: Call) -> Steps[bool]:
        """Read what follows the marker; see ``MarkedCallsParser``."""
        source = self.source
        yield from source.space()
        name = yield from read_name(source)  # or the type of the tool, `function`
        yield from source.space()
        if not (yield from source.literal(SEPARATOR)):
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
            self.end_header()
        if not (yield from read_arguments(source, call)) or not call.complete():
            return False
        if fenced:
            yield from source.space()
            yield from source.literal(_FENCE)
        return True


class DeepseekFamily(BaseFamily):
    """DeepSeek V3 and R1, whose templates write the arguments of calls in the history as they are given."""

    name = "deepseek_v3"
    tags = ThinkTags(instead=(CALLS,))
    markers = Markers(CALLS, CALLS_END, CALL, CALL_END, SEPARATOR, "<think>", "</think>")
    signs: tuple[tuple[str, ...], ...] = ((CALLS,),)
    shared_types = frozenset({"deepseek_v3", "DeepseekV3ForCausalLM"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of both formats."""
        return DeepseekParser(turn, eager=eager, markers=self.markers, tags=self.tags, prompt=prompt)

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """Calls as the templates write them; where one is demanded, each in a block of its own."""
        before, after = (CALLS, CALLS_END) if demanded else ("", "")
        tags = [
            tag(before + CALL + self._head(tool.name), arguments_format(tool), self._foot() + CALL_END + after)
            for tool in turn.tools
        ]
        return triggered(before + CALL, tags, demanded=demanded, once=not turn.parallel)

    def _head(self, name: str) -> str:
        return f"function{SEPARATOR}{name}\n{_FENCE}json\n"

    def _foot(self) -> str:
        return f"\n{_FENCE}"


class NewerDeepseekFamily(DeepseekFamily):
    """DeepSeek V3.1: calls without a fence."""

    name = "deepseek_v31"
    signs = ((CALLS, "<｜Assistant｜></think>"), (CALLS, "thinking is defined"))
    shared_types = frozenset()

    def _head(self, name: str) -> str:
        return f"{name}{SEPARATOR}"

    def _foot(self) -> str:
        return ""
