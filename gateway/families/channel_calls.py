"""Calls in the channels of Kimi K3's XTML, whose tags are made of three tokens and words between them.

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
from functools import partial
from typing import NamedTuple

from gateway.families.bare_arguments import BareArguments
from gateway.families.family_parser import FamilyParser
from gateway.families.grammar import Grammar
from gateway.families.json_calls import read_arguments, read_name
from gateway.families.markers import Markers
from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat, numbered_arguments
from gateway.families.text_source import Steps, TextSource

OPEN, _CLOSE, _SEPARATOR = "<|open|>", "<|close|>", "<|sep|>"
_END = (_CLOSE, "call")
_TOKENS = Markers(OPEN, _CLOSE, _SEPARATOR)
_VALUE_ENDS = Markers('"', *_TOKENS.texts)
_TAGS = re.compile(r"<\|(?:open|close)\|>.*?(?:<\|sep\|>|\Z)", re.DOTALL)


class Tag(NamedTuple):
    """A tag that has been read.

    Attributes:
        token: that begins it.
        word: its name.
        attributes: by their names.
    """

    token: str
    word: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ChannelCalls(Grammar):
    """Reads channels, and the calls in them; text outside of channels is content."""

    extra: tuple[str, ...] = _TOKENS.texts
    whole: bool = True

    @property
    def call_format(self) -> CallFormat:
        """The format as a structural tag, with all arguments as one JSON text."""
        return CallFormat(
            f'{OPEN}call tool="',
            '" index="',
            f"{_CLOSE}json{_SEPARATOR}{_CLOSE}call{_SEPARATOR}",
            section=(f"{_CLOSE}response{_SEPARATOR}{OPEN}tools{_SEPARATOR}", f"{_CLOSE}tools{_SEPARATOR}"),
            arguments=partial(numbered_arguments, between=f'"{_SEPARATOR}{OPEN}json type="object"{_SEPARATOR}'),
        )

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read an answer."""
        parser.say_prose = parser.emitter.reasoning if parser.opened else parser.emitter.content
        while (token := (yield from parser.source.until(parser.markers, parser.say_prose))) is not None:
            if token == _SEPARATOR:
                continue
            call = parser.begin_call()
            parser.begin_header()
            tag = yield from _read_tag(parser.source, token)
            if tag is None:
                parser.broken(call)
            elif tag.word in {"think", "response", "tools"}:
                _enter(parser, thinking=tag.word == "think" and token == OPEN)
            elif tag.word == "call" and token == OPEN:
                if (yield from self._read_call(parser, call, tag)):
                    _enter(parser, thinking=False)
                else:
                    parser.broken(call)

    def _read_call(self, parser: FamilyParser, call: FormingCall, tag: Tag) -> Steps[bool]:
        """Read the arguments of a call behind its tag, and complete it; returns whether it is a whole call."""
        source, name = parser.source, tag.attributes.get("tool", "")
        if not call.named(name):
            return False
        parser.end_header()
        inner = yield from _read_next_tag(source)
        if inner and inner[:2] == (OPEN, "json"):
            yield from source.space()
            return (yield from read_arguments(source, call)) and call.complete()  # closing tags are read as all are
        arguments = BareArguments(call, parser.plan.parameters(name))
        while inner and inner[:2] == (OPEN, "argument"):
            read = yield from _read_argument(source, arguments, inner)
            inner = (yield from _read_next_tag(source)) if read else None
        if inner is None or inner[:2] != _END:
            return False
        arguments.end()
        return call.complete()

    def without_format(self, raw: str, *, cut: bool) -> str:
        """The text without its tags; the token of the first, where it is not cut, has been read before."""
        return _TAGS.sub("", raw if cut else OPEN + raw)


def _enter(parser: FamilyParser, *, thinking: bool) -> None:
    """Say the text that comes next as reasoning, or as content."""
    if parser.thinking and not thinking:
        parser.emitter.end_reasoning()
    parser.thinking = thinking
    parser.say_prose = parser.emitter.reasoning if thinking else parser.emitter.content


def _read_next_tag(source: TextSource) -> Steps[Tag | None]:
    """Read a tag, with the token that begins it; None where there is none."""
    yield from source.space()
    token = yield from source.choice(_TOKENS)
    return (yield from _read_tag(source, token)) if token else None


def _read_tag(source: TextSource, token: str) -> Steps[Tag | None]:
    """Read a tag behind the token that begins it; None where it is none."""
    yield from source.space()
    word = yield from read_name(source)
    attributes: dict[str, str] = {}
    yield from source.space()
    while not (yield from source.literal(_SEPARATOR)):
        key = yield from read_name(source)
        pieces: list[str] = []
        if not key or not (yield from source.literal('="')):
            return None
        if (yield from source.until(_VALUE_ENDS, pieces.append)) != '"':
            return None
        attributes[key] = "".join(pieces).replace("&quot;", '"').replace("&amp;", "&")
        yield from source.space()
    return Tag(token, word, attributes)


def _read_argument(source: TextSource, arguments: BareArguments, tag: Tag) -> Steps[bool]:
    """Read an argument behind its tag, up to the one that closes it."""
    text = tag.attributes.get("type", "string") == "string"
    if not arguments.begin(tag.attributes.get("key", ""), text=text):
        return False
    if (yield from source.until(_TOKENS, arguments.more)) != _CLOSE:
        return False
    source.examined += arguments.close()
    closing = yield from _read_tag(source, _CLOSE)
    return closing is not None and closing.word == "argument"
