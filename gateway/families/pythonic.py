"""Pythonic calls: a list of Python calls with keyword arguments, alone or between markers.

    [f(a=1, b="x"), g()]
    <|python_start|>[f(a=1)]<|python_end|>
    <|tool_call_start|>[f(a=1)]<|tool_call_end|>

Sources: https://github.com/meta-llama/llama-models (models/llama3_2/text_prompt_format.md and
models/llama4/prompt_format.md: zero-shot function calling; Llama 4's markers); for the last line the model card of
https://huggingface.co/LiquidAI/LFM2-1.2B and SGLang's detector for it. JSON objects between the same markers are read,
too.
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.call_text import CallTextParser
from gateway.families.family import Parser, Turn
from gateway.families.markers import Markers
from gateway.families.thinking import ThinkTags


class PythonicFamily(BaseFamily):
    """Llama 4, and Llama 3.2 with a pythonic template."""

    name = "pythonic"
    before = "<|python_start|>"
    after = "<|python_end|>"
    end = "<|eom|>"
    markers = Markers(before, after, end)
    stop: tuple[str, ...] = (end,)
    signs: tuple[tuple[str, ...], ...] = ((before,), ("[func_name1(",))
    model_types = frozenset({"llama4", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of Python calls, and of JSON calls in their place."""
        return CallTextParser(
            turn, eager=eager, before=self.before, after=self.after, ends=self.stop, tags=self.tags, prompt=prompt
        )


class Lfm2Family(PythonicFamily):
    """LFM2 and LFM2.5: the same between markers of its own, behind the reasoning of those that reason."""

    name = "lfm2"
    before = "<|tool_call_start|>"
    after = "<|tool_call_end|>"
    tags = ThinkTags(instead=(before,))
    markers = Markers(before, after, "<think>", "</think>")
    stop = ()
    signs = ((before,),)
    model_types = frozenset({"lfm2", "lfm2_moe", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM"})
