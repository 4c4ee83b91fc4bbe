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

from gateway.families.base import BaseFamily
from gateway.families.family import Parser, Preparation, Turn
from gateway.families.markers import Markers
from gateway.families.natively import arguments_format, read_call_list
from gateway.families.parsing import FamilyParser
from gateway.families.source import Steps
from gateway.families.structural import Format, tag, triggered
from gateway.families.thinking import ThinkTags

CALL = "<|tool_call|>"
OPEN = "<tool_call>"
CLOSE = "</tool_call>"
TAGS = ThinkTags(instead=(CALL, OPEN))
ANSWER = "<response>"
ANSWER_END = "</response>"
_THOUGHTS = Markers("Here is my thought process:", "Here's my thought process:")
_ANSWER = ("Here is my response:", "Here's my response:")
_CALLS = (CALL, OPEN, CLOSE)
_TAGGED = (TAGS.open, TAGS.close)
_WITHOUT_CALLS = ThinkTags()
# By whether calls may be made: all markers, with the end of a tagged answer, with the beginning of a phrased one.
_MARKERS = (Markers(*_TAGGED), Markers(*_CALLS, *_TAGGED))
_TAGGED_ANSWER = tuple(Markers(*markers.texts, ANSWER_END) for markers in _MARKERS)
_PHRASED_ANSWER = tuple(Markers(*markers.texts, *_ANSWER) for markers in _MARKERS)


class GraniteParser(FamilyParser):
    """Parses reasoning of both versions, and calls of all."""

    def __init__(self, turn: Turn, *, eager: bool, prompt: str) -> None:
        """Parse one answer; arguments as of ``Family.parser``."""
        self._opened = TAGS.opened_by(prompt)
        super().__init__(turn, eager=eager, markers=_MARKERS[turn.calls])

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        yield from self._reason()
        while (yield from self.content_until(CALL, OPEN)):
            yield from self._block()

    def _reason(self) -> Steps[None]:
        source = self.source
        space = "" if self._opened else (yield from source.space())
        if not self._opened and (yield from source.choice(_THOUGHTS)):
            yield from self._phrased()
        elif self._opened or (yield from source.literal(TAGS.open)):
            tags = TAGS if self.turn.calls else _WITHOUT_CALLS
            yield from self.think(tags, opened=True, block=self._block)
            yield from source.space()
            if (yield from source.literal(ANSWER)):
                self.markers = _TAGGED_ANSWER[self.turn.calls]
            else:
                source.cut_in(ANSWER)
        else:
            self.emitter.content(space)

    def _phrased(self) -> Steps[None]:
        """Reasoning of version 3.2, up to the phrase that begins the answer."""
        ends = _PHRASED_ANSWER[self.turn.calls]
        marker = yield from self.source.until(ends, self.emitter.reasoning)
        while marker is not None and marker not in _ANSWER:
            if marker in {CALL, OPEN}:
                yield from self._block()
                break
            marker = yield from self.source.until(ends, self.emitter.reasoning)
        self.emitter.end_reasoning()

    def _block(self) -> Steps[bool]:
        """Read what follows a call's marker; returns whether there was a call."""
        call = self.begin_call()
        yield from self.source.space()
        yield from self.source.literal(OPEN)
        called = yield from read_call_list(self, call)
        if called:
            yield from self.source.literal(CLOSE)
        return called


class GraniteFamily(BaseFamily):
    """Granite 3.0 to 3.3."""

    name = "granite"
    tags: ThinkTags | None = TAGS
    markers = _MARKERS[True]
    signs: tuple[tuple[str, ...], ...] = (("<|start_of_role|>",),)
    model_types = frozenset({"granite", "granitemoe", "GraniteForCausalLM", "GraniteMoeForCausalLM"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of all versions."""
        return GraniteParser(turn, eager=eager, prompt=prompt)

    def parser(self, turn: Turn, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """As of all families; but an answer without calls may have tags of Granite's own."""
        guide = preparation.guide
        if not turn.calls and self.reasons and (guide is None or guide.kind == "structural_tag"):
            return self.native_parser(turn, prompt, eager=False)
        return super().parser(turn, preparation, prompt, eager=eager)


class NewerGraniteFamily(GraniteFamily):
    """Granite 4, which does not reason."""

    name = "granite4"
    tags = None
    markers = Markers(*_CALLS)
    signs = (("<|start_of_role|>", OPEN),)
    model_types = frozenset({"granitemoehybrid", "GraniteMoeHybridForCausalLM"})
    older_types = GraniteFamily.model_types

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """Tagged calls as the template writes them."""
        tags = [
            tag(f'{OPEN}\n{{"name": "{tool.name}", "arguments": ', arguments_format(tool), f"}}\n{CLOSE}")
            for tool in turn.tools
        ]
        return triggered(OPEN, tags, demanded=demanded, once=not turn.parallel)
