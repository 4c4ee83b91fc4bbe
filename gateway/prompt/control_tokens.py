"""Control tokens of a prompt: those that its chat template writes, told from text of the data that looks like them.

In the template's own text each control token is replaced by a stand-in, ``mark number mark``, whose mark occurs in no
data. After rendering, text of a control token outside of stand-ins came from data, whatever joins and filters made it,
and is tokenized as plain text.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Final

from gateway.json_levels import inside, texts
from gateway.tokens.any_of import any_of

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
"""Roles of messages that reach a template: words of the gateway's, not of the data."""

# Control characters of Latin-1, which text hardly has and Python stores in a byte; then noncharacters, private ones.
_CANDIDATES = (range(0x90, 0xA0), range(0xFDD0, 0xFDF0), range(0xF0000, 0xFFFFE))
_PLAIN = {2}  # lengths of messages that have a role and a content
_CONTENT = operator.methodcaller("get", "content")
_PLACEHOLDER = re.compile(r"(\{\}|%s)")  # of a string that is formatted
_MARK = "m"  # number of the stand-in for a mark that occurs in data


def is_mark(character: str) -> bool:
    """Whether the character may be a mark."""
    return any(ord(character) in candidates for candidates in _CANDIDATES)


@dataclass(frozen=True, slots=True)
class PromptSpan:
    """A part of a rendered prompt.

    Attributes:
        text: without stand-ins.
        literal: whether texts of control tokens in it are plain text.
    """

    text: str
    literal: bool


class ControlTokens:
    """The texts of a tokenizer's control tokens."""

    def __init__(self, control_tokens: Iterable[str]) -> None:
        longest_first = sorted({text for text in control_tokens if text}, key=lambda text: (-len(text), text))
        self.texts: Sequence[str] = longest_first
        self._numbers = {text: str(number) for number, text in enumerate(longest_first)}
        self._by_number = {number: text for text, number in self._numbers.items()}
        self._pattern = any_of(longest_first)
        self._prefix = commonprefix(longest_first)  # noqa: RUF071 - of characters; found ten times as fast as a pattern
        self._overlap = _overlap(longest_first)

    def occurs_in(self, text: str) -> bool:
        """Whether the text of a control token is in it."""
        return self._pattern is not None and self._prefix in text and self._pattern.search(text) is not None

    def touches(self, text: str) -> bool:
        """Whether the text begins or ends within the text of a control token."""
        return any(
            text.endswith(token[:length]) or text.startswith(token[length:])
            for token in self.texts
            for length in range(1, len(token))
        )

    def broken(self, text: str, breaker: str) -> str:
        """The text with ``breaker`` behind the first character of each control token's text, overlapping ones too."""
        position = 0
        while self._pattern is not None and (found := self._pattern.search(text, position)):
            position = found.start() + 1 + len(breaker)
            text = text[: found.start() + 1] + breaker + text[found.start() + 1 :]
        return text

    def stand_ins(self, text: str, mark: str) -> str:
        """Text of a template with stand-ins for its control tokens."""
        if self._pattern is None or self._prefix not in text:
            return text
        return self._pattern.sub(lambda found: self.stand_in(found[0], mark), text)

    def stand_in(self, text: str, mark: str) -> str:
        """The stand-in for one control token."""
        return f"{mark}{self._numbers[text]}{mark}"

    def expanded(self, rendered: str, mark: str) -> str:
        """A rendering with the text of each control token in place of its stand-in."""
        return "".join(self.parts(rendered, mark))

    def parts(self, rendered: str, mark: str) -> list[str]:
        """Cut a rendering: texts and, between two of them each, the text of a control token of the template."""
        parts = rendered.split(mark)
        if _MARK in parts[1::2]:
            return self._parts_with_marks(parts, mark)
        parts[1::2] = map(self._by_number.__getitem__, parts[1::2])
        return parts

    def spans(self, parts: Sequence[str], *, every: bool = False) -> list[PromptSpan] | None:
        """Spans of a prompt where a text of ``parts`` holds a control token's text; None where none does.

        A literal span reaches from one control token of the template to the next, because tokenizers cut there anyway:
        no other token boundary moves.

        Args:
            parts: of the prompt.
            every: whether all that stands between control tokens of the template is literal.
        """
        if self._pattern is None or not (every or self._overlap or any(map(self.occurs_in, parts[::2]))):
            return None
        text = "".join(parts)
        ends = list(itertools.accumulate(map(len, parts)))
        own = {(end - len(part), end) for part, end in zip(parts[1::2], ends[1::2], strict=True)}
        found = ((0, len(text)),) if every else (match.span() for match in self._pattern.finditer(text))
        foreign = [span for span in found if span not in own]
        return _spans(text, ends, foreign) if foreign else None

    def _parts_with_marks(self, parts: Sequence[str], mark: str) -> list[str]:
        merged = [parts[0]]
        for number, text in zip(parts[1::2], parts[2::2], strict=True):
            if number == _MARK:
                merged[-1] += mark + text
            else:
                merged += self._by_number[number], text
        return merged


def _spans(text: str, ends: Sequence[int], foreign: Sequence[tuple[int, int]]) -> list[PromptSpan]:
    """Spans of a text whose parts, data and control tokens in turn, end at ``ends``."""
    spans: list[PromptSpan] = []
    begun = 0
    waiting = iter(foreign)
    start, end = next(waiting)
    for first, last in zip([0, *ends[1::2]], ends[::2], strict=True):  # of the data between two control tokens
        while end <= first:
            start, end = next(waiting, (len(text) + 1, len(text) + 1))
        if start >= last:
            continue
        if begun < first:
            spans.append(PromptSpan(text[begun:first], False))
        spans.append(PromptSpan(text[first:last], True))
        begun = last
    return [*spans, PromptSpan(text[begun:], False)] if begun < len(text) else spans


def _overlap(longest_first: Sequence[str]) -> bool:
    """Whether the text of a control token and text beside it may be read as another control token."""
    first = {text[0] for text in longest_first}
    if any(not first.isdisjoint(text[1:]) for text in longest_first):
        return True
    in_order = sorted(longest_first)
    return any(after.startswith(before) for before, after in itertools.pairwise(in_order))


class AssembledTokens:
    """Control tokens that a template puts together: pieces of its own around a role, or around another of its words.

    Phi-3 writes ``<|``, the role and ``|>``; Hunyuan writes ``'<|user{}|>'.format(':suffix')``. Such pieces have
    stand-ins, too. Not covered: a template that puts the same pieces around data, where that is such a word.
    """

    def __init__(self, control_tokens: ControlTokens, constants: Iterable[str], mark: str) -> None:
        """Find them; ``constants`` are the template's, with stand-ins for whole control tokens."""
        self._control_tokens = control_tokens
        self._mark = mark
        pieces = {piece for text in constants for part in _PLACEHOLDER.split(text) for piece in part.split(mark)}
        lengths = range(1, max(map(len, control_tokens.texts), default=1))
        starts = {piece[:length] for piece in pieces for length in lengths}
        ends = {piece[-length:] for piece in pieces for length in lengths}
        words = pieces.union(ROLES)
        found = [
            (text[:first], text[first:last], text[last:])
            for text in control_tokens.texts
            for first in range(1, len(text))
            if text[:first] in ends
            for last in range(first + 1, len(text))
            if text[first:last] in words and text[last:] in starts
        ]
        self._before = sorted({before for before, _, _ in found}, key=len, reverse=True)
        self._after = sorted({after for _, _, after in found}, key=len, reverse=True)
        inside = "|".join(sorted({re.escape(word) for _, word, _ in found}))
        self._assembled = re.compile(f"{mark}<(\\d+){mark}({inside}){mark}>(\\d+){mark}")
        self._piece = re.compile(f"{mark}([<>])(\\d+){mark}")

    def __bool__(self) -> bool:
        return bool(self._before)

    def marked(self, constant: str) -> str:
        """A constant of the template with stand-ins for the pieces that it begins or ends with."""
        return "".join(map(self._marked, _PLACEHOLDER.split(constant)))

    def joined(self, rendered: str) -> str:
        """A rendering with stand-ins for the control tokens that were put together, and the text of other pieces."""
        return self._piece.sub(self._text, self._assembled.sub(self._stand_in, rendered))

    def _marked(self, text: str) -> str:
        before, after = "", ""
        for number, piece in enumerate(self._before):
            if text.endswith(piece):
                text, after = text.removesuffix(piece), f"{self._mark}<{number}{self._mark}"
                break
        for number, piece in enumerate(self._after):
            if text.startswith(piece):
                text, before = text.removeprefix(piece), f"{self._mark}>{number}{self._mark}"
                break
        return before + text + after

    def _stand_in(self, found: re.Match[str]) -> str:
        text = self._before[int(found[1])] + found[2] + self._after[int(found[3])]
        return self._control_tokens.stand_ins(text, self._mark)

    def _text(self, found: re.Match[str]) -> str:
        return (self._before if found[1] == "<" else self._after)[int(found[2])]


def unused_mark(*data: Any) -> str:
    """A character that no string of the data holds."""
    used = set().union(*(text for text in strings(data) if not text.isascii()))
    return next(mark for mark in map(chr, itertools.chain(*_CANDIDATES)) if mark not in used)


def without_mark(data: Any, mark: str, spare: str) -> Any:
    """Copy nested data with ``spare`` in place of ``mark``."""
    if isinstance(data, str):
        return data.replace(mark, spare)
    if isinstance(data, Mapping):
        return {without_mark(key, mark, spare): without_mark(value, mark, spare) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_mark(item, mark, spare) for item in data]
    return data


def with_mark(rendered: str, mark: str, spare: str) -> str:
    """A rendering of ``without_mark`` data, with stand-ins for the marks that the data had."""
    return rendered.replace(spare, f"{mark}{_MARK}{mark}")


def occurs(mark: str, messages: Sequence[Mapping[str, Any]], *data: Any) -> bool:
    """Whether any string of a conversation, or of further nested data, holds the mark."""
    contents = [*map(_CONTENT, messages)]
    if any(data) or set(map(len, messages)) != _PLAIN or set(map(type, contents)) != {str}:
        contents = strings((messages, *data))
    return any(mark in text for text in contents)


def strings(data: Any) -> list[str]:
    """Every string in nested lists and mappings, keys included."""
    found: list[str] = []
    level = [data]
    while level:
        found += texts(level)
        level = inside(level)
    return found
