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

from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import read_json_call
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps

OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
HERMES_CALLS = CallFormat(f'{OPEN}\n{{"name": "', '", "arguments": ', f"}}\n{_CLOSE}", trigger=OPEN)


class HermesParser(FamilyParser):
    """Parses ``<tool_call>`` blocks; one may hold several objects, and the closing tag may be missing."""

    call_markers = (OPEN, _CLOSE)
    opening = (OPEN,)

    def read_block(self) -> Steps[bool]:
        """Read the objects behind the opening tag; returns whether there was a call."""
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
        yield from self.source.literal(_CLOSE)
        return called
