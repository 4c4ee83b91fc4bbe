"""Phi-4-mini: a JSON list of calls in tool tokens, or behind the word ``functools``; reasoning of the reasoning models.

    <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
    functools[{"name": "f", "arguments": {"a": 1}}]

Sources: https://huggingface.co/microsoft/Phi-4-mini-instruct (special tokens in tokenizer.json; the model card has the
declaration of tools only); ``functools`` is what the prompt of vLLM's example template for this model asks for
(examples/tool_chat_template_phi4_mini.jinja); the think tags are those of Phi-4-mini-reasoning.
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.family import Parser, Turn
from gateway.families.markers import Markers
from gateway.families.natively import read_call_list
from gateway.families.parsing import FamilyParser
from gateway.families.source import Steps
from gateway.families.thinking import ThinkTags

CALL = "<|tool_call|>"
CALL_END = "<|/tool_call|>"
WORD = "functools["
TAGS = ThinkTags(instead=(CALL,))
MARKERS = Markers(CALL, CALL_END, TAGS.open, TAGS.close)
_CALLS = Markers(*MARKERS.texts, WORD)


class Phi4Parser(FamilyParser):
    """Parses calls of both forms."""

    def __init__(self, turn: Turn, *, eager: bool, prompt: str) -> None:
        """Parse one answer; arguments as of ``Family.parser``."""
        self._opened = TAGS.opened_by(prompt)
        super().__init__(turn, eager=eager, markers=MARKERS)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        marker = yield from self.think(TAGS, opened=self._opened)
        while True:
            marker = marker or (yield from self.source.until(_CALLS, self.emitter.content))
            if marker is None:
                return
            if marker in {CALL, WORD}:
                call = self.begin_call()
                yield from read_call_list(self, call, word=WORD if marker == WORD else "")
            marker = None


class Phi4Family(BaseFamily):
    """Phi-4-mini and Phi-4-multimodal."""

    name = "phi4"
    tags = TAGS
    markers = MARKERS
    signs: tuple[tuple[str, ...], ...] = (("<|tool|>", "<|/tool|>"), (WORD,))
    model_types = frozenset({"phi4", "phi4mm", "phi4_multimodal", "Phi4MMForCausalLM"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of both forms."""
        return Phi4Parser(turn, eager=eager, prompt=prompt)
