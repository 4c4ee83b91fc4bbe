"""Phi-4-mini: a JSON list of calls in tool tokens, or behind the word ``functools``; reasoning of the reasoning models.

    <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
    functools[{"name": "f", "arguments": {"a": 1}}]

Sources: https://huggingface.co/microsoft/Phi-4-mini-instruct (special tokens in tokenizer.json; the model card has the
declaration of tools only); the prompt of vLLM's example template for this model asks for ``functools``
(examples/tool_chat_template_phi4_mini.jinja); the think tags are those of Phi-4-mini-reasoning.
"""

from __future__ import annotations

from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import read_call_list
from gateway.families.markers import Markers
from gateway.families.text_source import Steps

CALL = "<|tool_call|>"
WORD = "functools["


class Phi4Parser(FamilyParser):
    """Parses calls of both forms."""

    call_markers = (CALL, "<|/tool_call|>")

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        seen = Markers(*self.markers.texts, WORD)
        marker = yield from self.think(opened=self.opened)
        while marker := marker or (yield from self.source.until(seen, self.emitter.content)):
            if marker in {CALL, WORD}:
                yield from read_call_list(self, self.begin_call(), word=WORD if marker == WORD else "")
            marker = None
