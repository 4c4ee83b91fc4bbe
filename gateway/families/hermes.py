"""Hermes and Qwen: ``<tool_call>`` around JSON, and Qwen3's reasoning between ``<think>`` tags.

    <tool_call>
    {"name": "f", "arguments": {"a": 1}}
    </tool_call>

The keys may come in either order: prompts of Hermes have shown the arguments first. Sources:
https://github.com/NousResearch/Hermes-Function-Calling (prompt_assets/sys_prompt.yml); for Qwen2.5 and Qwen3
https://github.com/QwenLM/Qwen2.5 (docs/source/framework/function_call.md) and the templates of their models; for
Qwen3's reasoning and its switch https://github.com/QwenLM/Qwen3 (docs/source/inference/transformers.md).
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.family import Parser, Turn
from gateway.families.json_calls import read_json_call
from gateway.families.markers import Markers
from gateway.families.parsing import FamilyParser
from gateway.families.schemas import arguments_schema
from gateway.families.source import Steps
from gateway.families.structural import Format, json_format, tag, triggered
from gateway.families.thinking import ThinkTags

OPEN = "<tool_call>"
CLOSE = "</tool_call>"


class HermesParser(FamilyParser):
    """Parses ``<tool_call>`` blocks; one may hold several objects, and the closing tag may be missing."""

    def __init__(self, turn: Turn, *, eager: bool, markers: Markers, tags: ThinkTags | None, prompt: str) -> None:
        """Parse one answer.

        Args:
            turn: names the tools.
            eager: whether calls are said while they form.
            markers: the tool tags, and the think tags where there are any.
            tags: around the reasoning; None: there is none.
            prompt: the rendered prompt.
        """
        self._tags = tags
        self._opened = tags is not None and tags.opened_by(prompt)
        super().__init__(turn, eager=eager, markers=markers)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        if self._tags is not None:
            yield from self.think(self._tags, opened=self._opened, block=self._block)
        while (yield from self.content_until(OPEN)):
            yield from self._block()

    def _block(self) -> Steps[bool]:
        """Read what follows the opening tag; returns whether there was a call."""
        called = False
        while True:
            call = self.begin_call()
            if not (yield from read_json_call(self.source, call)) or not call.complete():
                self.broken(call)
                return called or call.started
            called = True
            yield from self.source.space()
            if (yield from self.source.peek()) != "{":
                break
        yield from self.source.literal(CLOSE)
        return called


class HermesFamily(BaseFamily):
    """Models that were taught Hermes' format and do not reason."""

    name = "hermes"
    markers = Markers(OPEN, CLOSE)
    signs: tuple[tuple[str, ...], ...] = ((OPEN,),)
    shared_types = frozenset({"qwen2", "qwen2_moe", "Qwen2ForCausalLM", "Qwen2MoeForCausalLM"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of ``<tool_call>`` blocks, and of reasoning before them."""
        return HermesParser(turn, eager=eager, markers=self.markers, tags=self.tags, prompt=prompt)

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """``<tool_call>`` blocks as the templates write them."""
        tags = [
            tag(
                f'{OPEN}\n{{"name": "{tool.name}", "arguments": ',
                json_format(arguments_schema(tool) if tool.strict else {"type": "object"}),
                f"}}\n{CLOSE}",
            )
            for tool in turn.tools
        ]
        return triggered(OPEN, tags, demanded=demanded, once=not turn.parallel)


class QwenFamily(HermesFamily):
    """Qwen3 and QwQ: the same calls, with reasoning, which a template's switch may turn off."""

    name = "qwen3"
    tags = ThinkTags(between="\n\n", instead=(OPEN,))
    markers = Markers(OPEN, CLOSE, "<think>", "</think>")
    signs = ((OPEN, "<think>"),)
    shared_types = frozenset({"qwen3", "qwen3_moe", "qwen3_next", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"})
