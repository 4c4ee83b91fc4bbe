"""Granite: a JSON list of calls behind ``<|tool_call|>``, or calls in ``<tool_call>`` tags; reasoning in 3.2 and 3.3.

    <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]                          version 3
    <tool_call>                                                                  version 4
    {"name": "f", "arguments": {"a": 1}}
    </tool_call>

    <think>Thoughts.</think><response>Answer.</response>                         version 3.3
    Here is my thought process: Thoughts. Here is my response: Answer.           version 3.2

Sources: ``chat_template`` in tokenizer_config.json of https://huggingface.co/ibm-granite/granite-3.3-8b-instruct and of
https://huggingface.co/ibm-granite/granite-4.0-h-small; for version 3.2 the model card of
https://huggingface.co/ibm-granite/granite-3.2-8b-instruct. Version 3.1 writes ``<tool_call>`` before the list, as noted
in vLLM's parser for Granite.
"""

from __future__ import annotations

from typing import Any

from gateway.families.family import Parser, Preparation
from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import read_call_list
from gateway.families.markers import Markers, ThinkTags
from gateway.families.model_family import ModelFamily
from gateway.families.text_source import Steps
from gateway.families.tool_plan import ToolPlan

_CALL = "<|tool_call|>"
OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
TAGS = ThinkTags(instead=(_CALL, OPEN))
_ANSWER = "<response>"
_ANSWER_END = "</response>"
_THOUGHTS = Markers("Here is my thought process:", "Here's my thought process:")
_PHRASES = ("Here is my response:", "Here's my response:")
# By whether calls may be made: all markers, with the end of a tagged answer, with the beginning of a phrased one.
_MARKERS = (TAGS.markers, Markers(_CALL, OPEN, _CLOSE, *TAGS.markers.texts))
_TAGGED_ANSWER = tuple(Markers(*markers.texts, _ANSWER_END) for markers in _MARKERS)
_PHRASED_ANSWER = tuple(Markers(*markers.texts, *_PHRASES) for markers in _MARKERS)


class GraniteParser(FamilyParser):
    """Parses calls of all versions, and reasoning of both that have it; of version 4, too, should there be any."""

    call_markers = (_CALL, OPEN, _CLOSE)
    opening = (_CALL, OPEN)

    def __init__(self, plan: ToolPlan, **options: Any) -> None:
        """Parse one answer; options as of all parsers."""
        super().__init__(plan, **{**options, "markers": _MARKERS[plan.calls], "tags": TAGS})

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        yield from self._reason()
        while (yield from self.content_until(*self.opening)):
            yield from self.read_block()

    def _reason(self) -> Steps[None]:
        source = self.source
        space = "" if self.opened else (yield from source.space())
        if not self.opened and (yield from source.choice(_THOUGHTS)):
            yield from self._phrased()
        elif self.opened or (yield from source.literal(TAGS.open)):
            yield from self.think(opened=True)
            yield from source.space()
            if (yield from source.literal(_ANSWER)):
                self.markers = _TAGGED_ANSWER[self.plan.calls]
            else:
                source.cut_in(_ANSWER)
        else:
            self.emitter.content(space)

    def _phrased(self) -> Steps[None]:
        """Read reasoning of version 3.2, up to the phrase that begins the answer."""
        ends = _PHRASED_ANSWER[self.plan.calls]
        marker = yield from self.source.until(ends, self.emitter.reasoning)
        while marker is not None and marker not in _PHRASES:
            if marker in self.opening:
                yield from self.read_block()
                break
            marker = yield from self.source.until(ends, self.emitter.reasoning)
        self.emitter.end_reasoning()

    def read_block(self) -> Steps[bool]:
        """Read the array or the call behind a marker; returns whether there was a call."""
        call = self.begin_call()
        yield from self.source.space()
        yield from self.source.literal(OPEN)
        called = yield from read_call_list(self, call)
        if called:
            yield from self.source.literal(_CLOSE)
        return called


class GraniteFamily(ModelFamily):
    """A family whose answers without calls may have tags of Granite's own, too."""

    def parser(self, plan: ToolPlan, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """Make a parser for one answer; see ``Family.parser``."""
        guide = preparation.guide
        if not plan.calls and (guide is None or guide.kind == "structural_tag"):
            return self.native_parser(plan, prompt)
        return super().parser(plan, preparation, prompt, eager=eager)
