"""Calls in the channels of Kimi K3's XTML, whose tags are three tokens with words between them.

    <|open|>think<|sep|>Thoughts.<|close|>think<|sep|><|open|>response<|sep|>Text.<|close|>response<|sep|>
    <|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|>
    <|open|>argument key="a" type="number"<|sep|>1<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>

all in one line. Strings stand bare, all other values are JSON, and so may be all arguments, in a ``json`` tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gateway.text.families.bare_arguments import BareArguments
from gateway.text.families.family_parser import FamilyParser, Grammar
from gateway.text.families.json_calls import read_arguments, read_name
from gateway.text.families.markers import Markers
from gateway.text.families.parser_events import FormingCall
from gateway.text.families.text_source import BrokenCallError, Emit, Steps, TextSource, need

OPEN, _CLOSE, _SEPARATOR = "<|open|>", "<|close|>", "<|sep|>"
_TOKENS = Markers(OPEN, _CLOSE, _SEPARATOR)
_TAGS = re.compile(r"<\|(?:open|close)\|>.*?(?:<\|sep\|>|\Z)", re.DOTALL)


class _Tag(NamedTuple):
    token: str  # that begins it
    word: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ChannelCalls(Grammar):
    """Reads channels and the calls in them; text outside of channels is content."""

    extra: tuple[str, ...] = _TOKENS.texts
    whole: bool = True

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read an answer."""
        _enter(parser, thinking=parser.opened)
        while (token := (yield from parser.source.until(parser.markers, parser.say_prose))) is not None:
            if token == _SEPARATOR:
                continue
            call = parser.begin_call(header=True)
            yield from parser.attempt(call, self._read_tagged(parser, call, token))

    def _read_tagged(self, parser: FamilyParser, call: FormingCall, token: str) -> Steps[None]:
        """Read a tag behind its token, and the call that it begins, if it does."""
        tag = yield from _read_tag(parser.source, token)
        if tag.word in {"think", "response", "tools"}:
            _enter(parser, thinking=tag.word == "think" and token == OPEN)
        elif tag.word == "call" and token == OPEN:
            yield from self._read_call(parser, call, tag.attributes.get("tool", ""))
            _enter(parser, thinking=False)

    def _read_call(self, parser: FamilyParser, call: FormingCall, name: str) -> Steps[None]:
        """Read the arguments of a call behind its tag, and complete it."""
        source = parser.source
        call.named(name)
        parser.end_header()
        try:
            inner = yield from _read_tag(source)
        except BrokenCallError:
            call.arguments("{")  # shows an error of JSON; clients may read an empty text as no arguments
            raise
        if inner[:2] == (OPEN, "json"):
            yield from read_arguments(source, call, _CLOSE)  # closing tags are read as all are
        else:
            arguments = BareArguments(source, call, parser.plan.parameters(name))
            while inner[:2] == (OPEN, "argument"):
                yield from _read_argument(source, arguments, inner.attributes)
                inner = yield from _read_tag(source)
            need(inner[:2] == (_CLOSE, "call"))
            arguments.end()
        call.complete()

    def without_format(self, raw: str, *, cut: bool) -> str:
        """Remove tags from a text; the token of the first tag was read before, unless it is cut."""
        return _TAGS.sub("", raw if cut else OPEN + raw)


def _enter(parser: FamilyParser, *, thinking: bool) -> None:
    """Say the text that comes next as reasoning, or as content."""
    if parser.thinking and not thinking:
        parser.emitter.end_reasoning()
    parser.thinking = thinking
    parser.say_prose = parser.emitter.reasoning if thinking else parser.emitter.content


def _read_tag(source: TextSource, token: str | None = None) -> Steps[_Tag]:
    """Read a tag; ``token``: that begins it, where that has been read."""
    token = token or need((yield from source.spaced(*_TOKENS.texts)))
    yield from source.space()
    word = yield from read_name(source)
    attributes: dict[str, str] = {}
    while not (yield from source.spaced(_SEPARATOR)):
        key = need((yield from read_name(source)))
        need((yield from source.literal('="')))
        value, end = yield from source.text_until('"', *_TOKENS.texts)
        need(end == '"')
        attributes[key] = value.replace("&quot;", '"').replace("&amp;", "&")
    return _Tag(token, word, attributes)


def _read_argument(source: TextSource, arguments: BareArguments, attributes: Mapping[str, str]) -> Steps[None]:
    """Read an argument behind its tag, up to and including the one that closes it."""

    def value(emit: Emit) -> Steps[None]:
        need((yield from source.until(_TOKENS, emit)) == _CLOSE)

    text = attributes.get("type", "string") == "string"
    yield from arguments.read(attributes.get("key", ""), value, text=text)
    need((yield from _read_tag(source, _CLOSE)).word == "argument")
