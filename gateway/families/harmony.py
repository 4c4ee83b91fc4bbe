"""gpt-oss: harmony messages in channels. Analysis is reasoning, commentary to a function a call, the rest content.

    <|channel|>analysis<|message|>Thoughts.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
    <|start|>assistant<|channel|>final<|message|>Answer.<|return|>

without the line ends. A call ends the turn, so there is one in an answer. The recipient may also stand before the
channel. Source: https://github.com/openai/harmony (docs/format.md; tests/test_harmony.py for the spellings of headers).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.families.emitter import Call
from gateway.families.family import Turn
from gateway.families.json_calls import read_arguments
from gateway.families.markers import Markers
from gateway.families.parsing import FamilyParser
from gateway.families.source import Steps

START = "<|start|>"
CHANNEL = "<|channel|>"
CONSTRAIN = "<|constrain|>"
MESSAGE = "<|message|>"
END = "<|end|>"
CALL = "<|call|>"
RETURN = "<|return|>"
MARKERS = Markers(START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
FUNCTIONS = "functions."
_NAMES = ("analysis", "commentary", "final")
_RECIPIENT_FOLLOWS = "to="
_BEGINNINGS = Markers(START, CHANNEL, _RECIPIENT_FOLLOWS)
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*([a-z]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


class Place(NamedTuple):
    """Where a prompt leaves off.

    Attributes:
        header: what the prompt has of the last message's header.
        inside: whether the message itself has begun.
    """

    header: str
    inside: bool

    @classmethod
    def of(cls, prompt: str) -> Place:
        """The place at the end of ``prompt``."""
        header, message, _ = prompt.rpartition(START)[2].partition(MESSAGE)
        return cls(header, bool(message))

    @property
    def fresh(self) -> bool:
        """Whether the model writes the whole header but the role."""
        return not self.inside and CHANNEL not in self.header


class HarmonyParser(FamilyParser):
    """Parses messages. Text outside of messages is content."""

    def __init__(self, turn: Turn, *, eager: bool, prompt: str) -> None:
        """Parse one answer; arguments as of ``Family.parser``."""
        self._place = Place.of(prompt)
        self._said: set[bool] = set()  # kinds of text, reasoning or not, that had a message
        super().__init__(turn, eager=eager, markers=MARKERS)

    def run(self) -> Steps[None]:
        """Read message after message."""
        place = self._place
        call = self.begin_call()
        marker: str | None
        if place.inside:
            marker = yield from self._body(place.header, call)
        elif place.fresh:
            space = yield from self.source.space()
            marker = yield from self.source.choice(_BEGINNINGS)
            if marker is None:
                if not self.source.cut_in(_RECIPIENT_FOLLOWS):
                    self.emitter.content(space)
            else:
                marker = yield from self._message("" if marker == START else marker, call)
        else:
            marker = yield from self._message(place.header, call)
        while True:
            if marker not in {START, CHANNEL}:
                marker = yield from self.content_until(START, CHANNEL)
            if marker is None:
                return
            marker = yield from self._message("" if marker == START else marker, self.begin_call())

    def _message(self, beginning: str, call: Call) -> Steps[str | None]:
        """Read a header that began like this, and its message; returns the marker that ended it."""
        pieces = [beginning]
        marker = yield from self.source.until(MARKERS, pieces.append)
        while marker == CONSTRAIN or (marker == CHANNEL and CHANNEL not in pieces):
            pieces.append(marker)
            marker = yield from self.source.until(MARKERS, pieces.append)
        header = "".join(pieces)
        self.source.examined += len(header)
        if marker == MESSAGE:
            return (yield from self._body(header, call))
        # A header that was cut off is no text; anything else that a model writes here may be all there is.
        words = header.replace(CHANNEL, " ").split()
        if not ((self.source.cut and marker is None) or all(map(_of_header, words))):
            self.broken(call)
        return marker

    def _body(self, header: str, call: Call) -> Steps[str | None]:
        """Read a message to its end; returns the marker there. Of a call that is none, the arguments are content."""
        self.source.record()
        recipient = _RECIPIENT.search(header)
        if recipient and recipient[1] not in {"assistant", "user"}:
            if not (yield from self._call(call, recipient[1].removeprefix(FUNCTIONS))):
                self.broken(call)
            return (yield from self._text(reasoning=False, apart=False))
        self.source.recorded()
        channel = _CHANNEL.search(header)
        return (yield from self._text(reasoning=channel is not None and channel[1] == "analysis", apart=True))

    def _call(self, call: Call, name: str) -> Steps[bool]:
        if not call.named(name):
            return False
        yield from self.source.space()
        return (yield from read_arguments(self.source, call)) and call.complete()

    def _text(self, *, reasoning: bool, apart: bool) -> Steps[str | None]:
        """Read text of one kind; ``apart``: as a message, between which there is an empty line."""
        emit = self.emitter.reasoning if reasoning else self.emitter.content
        if apart and reasoning in self._said:
            emit("\n\n")
        if apart:
            self._said.add(reasoning)
        while True:
            marker = yield from self.source.until(MARKERS, emit)
            if marker not in {CONSTRAIN, MESSAGE}:
                return marker


def _of_header(word: str) -> bool:
    """Whether a word belongs to a header without a message: a role, a recipient, a channel or the beginning of one."""
    return word == "assistant" or word.startswith(_RECIPIENT_FOLLOWS) or any(each.startswith(word) for each in _NAMES)
