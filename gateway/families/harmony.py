"""gpt-oss: harmony messages in channels. Analysis is reasoning, commentary to a function a call, the rest content.

    <|channel|>analysis<|message|>Thoughts.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
    <|start|>assistant<|channel|>final<|message|>Answer.<|return|>

without the line ends. A call ends the turn, so there is one in an answer. The recipient may also stand before the
channel. Source: https://github.com/openai/harmony (docs/format.md; tests/test_harmony.py for the spellings of headers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from gateway.families.family import ThoughtEnd
from gateway.families.family_parser import FamilyParser, Grammar
from gateway.families.json_calls import read_arguments
from gateway.families.markers import ThinkTags
from gateway.families.model_family import ModelFamily
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import (
    CallFormat,
    Format,
    after_reasoning,
    constant,
    either,
    guide_format,
    sequence,
    tag_guide,
)
from gateway.families.text_source import Steps
from gateway.families.tool_plan import ToolPlan
from gateway.generation import Guide

_START = "<|start|>"
CHANNEL = "<|channel|>"
_CONSTRAIN = "<|constrain|>"
MESSAGE = "<|message|>"
_END = "<|end|>"
_CALL = "<|call|>"
_RETURN = "<|return|>"
STOP = (_CALL, _RETURN)
_FUNCTIONS = "functions."
_CALLS = CallFormat(f"{CHANNEL}commentary to={_FUNCTIONS}NAME {_CONSTRAIN}json{MESSAGE}ARGUMENTS{_CALL}", once=True)
_ANALYSIS = ThinkTags(f"{CHANNEL}analysis{MESSAGE}", _END, between=f"{_START}assistant")
_NAMES = ("analysis", "commentary", "final")
_RECIPIENT_FOLLOWS = "to="
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*([a-z]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class _Place(NamedTuple):
    """Where a prompt leaves off.

    Attributes:
        header: the part of the last message's header that the prompt has.
        inside: whether the message itself has begun.
    """

    header: str
    inside: bool

    @classmethod
    def of(cls, prompt: str) -> _Place:
        """The place at the end of ``prompt``."""
        header, message, _ = prompt.rpartition(_START)[2].partition(MESSAGE)
        return cls(header, bool(message))

    @property
    def fresh(self) -> bool:
        """Whether the model writes the whole header but the role."""
        return not self.inside and CHANNEL not in self.header


def _reasons(header: str) -> bool:
    """Whether a message with this header, and without a recipient, is reasoning."""
    channel = _CHANNEL.search(header)
    return channel is not None and channel[1] == "analysis"


@dataclass(frozen=True, kw_only=True)
class HarmonyCalls(Grammar):
    """Reads messages. Text outside of messages is content."""

    extra: tuple[str, ...] = (_START, CHANNEL, _CONSTRAIN, MESSAGE, _END, _CALL, _RETURN)
    whole: bool = True

    @property
    def call_format(self) -> CallFormat:
        """The format as a structural tag."""
        return _CALLS

    def begins_thinking(self, prompt: str) -> bool:
        """Whether the prompt ends inside of an analysis."""
        place = _Place.of(prompt)
        return place.inside and _reasons(place.header)

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read message after message."""
        yield from _Messages(parser).run()


class _Messages:
    """The messages of one answer."""

    def __init__(self, parser: FamilyParser) -> None:
        self._parser = parser
        self._source = parser.source
        self._said: set[bool] = set()  # kinds of text, reasoning or not, that had a message

    def run(self) -> Steps[None]:
        place = _Place.of(self._parser.prompt)
        call = self._parser.begin_call()
        marker: str | None
        if place.inside:
            marker = yield from self._body(place.header, call)
        elif place.fresh:
            space = yield from self._source.space()
            marker = yield from self._source.choice(_START, CHANNEL, _RECIPIENT_FOLLOWS)
            if marker is None:
                if not self._source.cut_in(_RECIPIENT_FOLLOWS):
                    self._parser.emitter.content(space)
            else:
                marker = yield from self._message("" if marker == _START else marker, call)
        else:
            marker = yield from self._message(place.header, call)
        while True:
            if marker not in {_START, CHANNEL}:
                marker = yield from self._parser.content_until(_START, CHANNEL)
            if marker is None:
                return
            marker = yield from self._message("" if marker == _START else marker, self._parser.begin_call())

    def _message(self, beginning: str, call: FormingCall) -> Steps[str | None]:
        """Read the rest of a header, and its message; returns the marker that ended it."""
        pieces = [beginning]
        marker = yield from self._source.until(self._parser.markers, pieces.append)
        while marker == _CONSTRAIN or (marker == CHANNEL and CHANNEL not in pieces):
            pieces.append(marker)
            marker = yield from self._source.until(self._parser.markers, pieces.append)
        header = "".join(pieces)
        self._source.examined += len(header)
        if marker == MESSAGE:
            return (yield from self._body(header, call))
        # A header that was cut off is no text; anything else that a model writes here may be all there is.
        words = header.replace(CHANNEL, " ").split()
        if not ((self._source.cut and marker is None) or all(map(_of_header, words))):
            self._parser.broken(call)
        return marker

    def _body(self, header: str, call: FormingCall) -> Steps[str | None]:
        """Read a message to its end; returns the marker there. Of a call that is none, the arguments are content."""
        self._source.record()
        recipient = _RECIPIENT.search(header)
        if recipient and recipient[1] not in {"assistant", "user"}:
            yield from self._parser.attempt(call, self._call(call, recipient[1].removeprefix(_FUNCTIONS)))
            return (yield from self._text(reasoning=False, apart=False))
        self._source.recorded()
        return (yield from self._text(reasoning=_reasons(header), apart=True))

    def _call(self, call: FormingCall, name: str) -> Steps[None]:
        call.named(name)
        yield from self._source.space()
        yield from read_arguments(self._source, call)
        call.complete()

    def _text(self, *, reasoning: bool, apart: bool) -> Steps[str | None]:
        """Read text of one kind; ``apart``: as a message, between which there is an empty line."""
        emit = self._parser.emitter.reasoning if reasoning else self._parser.emitter.content
        if apart and reasoning in self._said:
            emit("\n\n")
        if apart:
            self._said.add(reasoning)
        self._parser.thinking = reasoning
        while True:
            marker = yield from self._source.until(self._parser.markers, emit)
            if marker not in {_CONSTRAIN, MESSAGE}:
                self._parser.thinking = False
                return marker


def _of_header(word: str) -> bool:
    """Whether a word belongs to a header without a message: a role, a recipient, a channel or the beginning of one."""
    return word == "assistant" or word.startswith(_RECIPIENT_FOLLOWS) or any(each.startswith(word) for each in _NAMES)


class HarmonyFamily(ModelFamily):
    """gpt-oss. All of its answers are messages, so its markers are always wanted.

    Where the engine has structural tags, guides begin after the analysis and calls keep the native format, one to an
    answer. Elsewhere a guide begins with the first token, in place of any message.
    """

    @property
    def reasons(self) -> bool:
        """True: in the analysis channel."""
        return True

    def thought_end(self, plan: ToolPlan, prompt: str) -> ThoughtEnd | None:
        """The way to end the analysis; where calls may be made, the model is free to begin another one."""
        text = _ANALYSIS.close + _ANALYSIS.between
        if not self._by_messages(plan, prompt):
            guide, guided = super()._guide(plan, prompt)
            return ThoughtEnd(text if guided or plan.calls else f"{text}{CHANNEL}final{MESSAGE}", guide)
        answer = _answer(plan)
        if answer is None:
            return ThoughtEnd(f"{text}{CHANNEL}final{MESSAGE}")
        return ThoughtEnd(text, tag_guide(answer))

    def _guide(self, plan: ToolPlan, prompt: str) -> tuple[Guide | None, bool]:
        if not self._by_messages(plan, prompt):
            return super()._guide(plan, prompt)
        answer = _answer(plan)
        if answer is None:
            return None, False
        return tag_guide(after_reasoning(_ANALYSIS, prompt, answer)), plan.calls

    def _by_messages(self, plan: ToolPlan, prompt: str) -> bool:
        """Whether a guide has messages in it: the engine takes such guides, and the prompt leaves the header open."""
        own = plan.response is not None and plan.response.kind == "structural_tag"
        if "structural_tag" not in plan.guide_types or not _Place.of(prompt).fresh or own:
            return False
        return not (plan.calls and plan.choice == "auto" and plan.response is None)


def _answer(plan: ToolPlan) -> Format | None:
    """The format of the message that is the answer; None where it is free."""
    calls = _CALLS.alone(plan) if plan.calls else None
    answers = [] if calls is None else [calls]
    if plan.response is not None and plan.choice != "required":
        answers.append(sequence(constant(f"{CHANNEL}final{MESSAGE}"), guide_format(plan.response)))
    return either(*answers) if answers else None
