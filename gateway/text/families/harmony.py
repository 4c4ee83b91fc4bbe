"""gpt-oss: harmony messages in channels: analysis is reasoning, commentary to a function a call, the rest content.

    <|channel|>analysis<|message|>Thoughts.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
    <|start|>assistant<|channel|>final<|message|>Answer.<|return|>

without the line ends. A call ends the turn, so there is one in an answer. The recipient may also stand before the
channel. Source: https://github.com/openai/harmony (docs/format.md; tests/test_harmony.py for the spellings of headers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_calls import read_arguments
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.text_source import Steps, need

_START, _CHANNEL, _CONSTRAIN, _MESSAGE, _END = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"
_CALL, _RETURN = "<|call|>", "<|return|>"
_ENDS = (_CALL, _RETURN, _END)
_FUNCTIONS = "functions."
_NAMES = ("analysis", "commentary", "final")
_RECIPIENT_FOLLOWS = "to="
_CHANNEL_NAME = re.compile(re.escape(_CHANNEL) + r"\s*([a-z]*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_HEADER = re.compile(
    r"(?:\s*(?:<\|channel\|>|(?:assistant|analysis|commentary|final)\b[^\w\s<]*"
    r"|(?:to=[^\s<]*|<\|constrain\|>)(?:\s*\b(?:json|code)\b)?))*"
)


def _place(prompt: str) -> tuple[str, bool]:
    """Return the header of the prompt's last message as far as written, and whether that message's text has begun."""
    header, message, _ = prompt.rpartition(_START)[2].rpartition(_END)[2].partition(_MESSAGE)
    return header, bool(message)


def _recipient(header: str) -> str:
    """The function that a message is for; empty where it is for none, as behind the last of two channels, the final."""
    _, *others = _CHANNEL_NAME.findall(header) or [""]
    found = [] if others[-1:] == ["final"] else _RECIPIENT.findall(header)
    return found[-1] if found and found[-1] not in {"assistant", "user"} else ""


def _reasons(header: str) -> bool:
    """Whether a message with this header, and without a recipient, is reasoning."""
    return _CHANNEL_NAME.findall(header)[-1:] == ["analysis"]


@dataclass(frozen=True, kw_only=True)
class HarmonyCalls(Grammar):
    """Reads messages; text outside of messages is content."""

    extra: tuple[str, ...] = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, _END, _CALL, _RETURN)
    whole: bool = True

    def starts_behind(self, prompt: str) -> bool:
        """Whether the model writes the whole header except the role, or is in its analysis."""
        header, inside = _place(prompt)
        return _reasons(header) if inside else _CHANNEL not in header

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read message after message."""
        yield from _Messages(parser).run()


class _Messages:
    """The messages of one answer."""

    def __init__(self, parser: FamilyParser) -> None:
        self._parser = parser
        self._source = parser.source
        self._said: set[bool] = set()  # which had a message: reasoning (True), content (False)

    def run(self) -> Steps[None]:
        header, inside = _place(self._parser.prompt)
        call = self._parser.begin_call()
        marker: str | None
        if inside:
            marker = yield from self._body(header, call)
        elif _CHANNEL in header:
            marker = yield from self._message(header, call)
        else:
            space = yield from self._source.space()
            marker = yield from self._source.choice(_START, _CHANNEL, _RECIPIENT_FOLLOWS)
            if marker is not None:
                marker = yield from self._message(marker, call)
            elif not self._source.cut_in(_RECIPIENT_FOLLOWS):
                self._parser.emitter.content(space)
        begins = (_START, _CHANNEL)
        while marker in begins or (marker := (yield from self._parser.content_until(*begins))) is not None:
            marker = yield from self._message(marker, self._parser.begin_call())

    def _message(self, beginning: str, call: FormingCall) -> Steps[str | None]:
        """Read the rest of a header, and its message; returns the marker that ended it."""
        pieces = ["" if beginning == _START else beginning]
        marker = yield from self._source.until(self._parser.markers, pieces.append)
        while marker == _CONSTRAIN or (marker == _CHANNEL and (_CHANNEL not in pieces or _recipient("".join(pieces)))):
            pieces.append(marker)
            marker = yield from self._source.until(self._parser.markers, pieces.append)
        header = "".join(pieces)
        self._source.examined += len(header)
        if marker == _CALL and _recipient(header):
            self._source.unread(marker)
            marker = _MESSAGE
        if marker == _MESSAGE:
            return (yield from self._body(header, call))
        # A header that was cut off is not text; anything else that a model writes here may be its whole answer.
        self._source.recorded()
        words = header.replace(_CHANNEL, " ").split()
        if not ((self._source.cut and marker is None) or all(map(_of_header, words))):
            shown = self._parser.markers.removed(_HEADER.sub("", header, count=1))
            self._parser.say_prose(shown if shown.strip() else "")
        return marker

    def _body(self, header: str, call: FormingCall) -> Steps[str | None]:
        """Read a message to its end; returns the marker there. Of a call that is none, the arguments are content."""
        self._source.record()
        if recipient := _recipient(header):
            yield from self._parser.attempt(call, self._call(call, recipient.removeprefix(_FUNCTIONS)))
            return (yield from self._text(reasoning=False, separate=False))
        self._source.recorded()
        return (yield from self._text(reasoning=_reasons(header), separate=True))

    def _call(self, call: FormingCall, name: str) -> Steps[None]:
        need((yield from self._source.ahead()) or not self._source.cut)
        call.named(name)
        yield from read_arguments(self._source, call, *_ENDS)
        call.complete()

    def _text(self, *, reasoning: bool, separate: bool) -> Steps[str | None]:
        """Read text of one kind, as part of a message or as a message; an empty line separates messages."""
        emit = self._parser.emitter.reasoning if reasoning else self._parser.emitter.content
        if separate and reasoning in self._said:
            emit("\n\n")
        if separate:
            self._said.add(reasoning)
        self._parser.thinking = reasoning
        while True:
            marker = yield from self._source.until(self._parser.markers, emit)
            if marker not in {_CONSTRAIN, _MESSAGE}:
                self._parser.thinking = False
                return marker


def _of_header(word: str) -> bool:
    """Whether a word belongs to a header without a message: a role, a recipient, a channel or the beginning of one."""
    return word == "assistant" or word.startswith(_RECIPIENT_FOLLOWS) or any(each.startswith(word) for each in _NAMES)
