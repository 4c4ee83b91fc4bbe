"""Distinguishes control tokens that a chat template writes from data with the same text.

In the template's own text each control token is replaced by a stand-in that no data can spell. After rendering, text of
a control token outside of stand-ins came from data, whatever joins and filters made it, and is tokenized as plain text.
"""

from __future__ import annotations

import functools
import itertools
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Final

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from gateway.text.client_json import write_client_json
from gateway.text.tokens.any_of import any_of

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
"""Roles of messages that reach a template: words of the gateway's, not of the data."""

# Control characters of Latin-1, which text hardly has and Python stores in a byte; none is white space.
_MARK = "\x90"
_SYMBOLS = "".join(chr(code) for code in range(0x80, 0xA0) if code not in {0x85, 0x90})
_STAND_IN = f"{_MARK}[{_SYMBOLS}]+{_MARK}"
STAND_IN_OR_NON_ASCII: Final = re.compile(f"{_STAND_IN}|[^\\x00-\\x7f]")
_NONCE = 8  # symbols
_PLACEHOLDER = re.compile(r"(\{\w*\}|%s)")  # of a string that is formatted
_ROLE_FILTER = "template_role"


def nonce() -> str:
    """Make random symbols, which data cannot guess."""
    return "".join(secrets.choice(_SYMBOLS) for _ in range(_NONCE))


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
    """The texts of a tokenizer's control tokens, and stand-ins for them.

    Attributes:
        texts: of the tokens, the longest first.
        nonce: part of each stand-in; equal texts and nonces make equal stand-ins.
    """

    def __init__(self, control_tokens: Iterable[str], own_nonce: str | None = None) -> None:
        self.texts: Sequence[str] = sorted(
            {text for text in control_tokens if text}, key=lambda text: (-len(text), text)
        )
        self.nonce = own_nonce or nonce()
        self._numbers = {text: number for number, text in enumerate(self.texts, 1)}
        self._by_key = {self._key(number): text for text, number in self._numbers.items()}
        self._pattern = any_of(self.texts)
        self._prefix = commonprefix(self.texts)  # noqa: RUF071 - of characters; found ten times as fast as a pattern
        self._overlap = _overlap(self.texts)

    def occurs_in(self, text: str) -> bool:
        """Tell whether a text has the text of a control token anywhere."""
        return self._pattern is not None and self._prefix in text and self._pattern.search(text) is not None

    def touches(self, text: str) -> bool:
        """Tell whether a text begins or ends within the text of a control token."""
        starts, ends, longest = self._pieces
        sizes = range(1, min(len(text), longest) + 1)
        return any(text[-size:] in starts or text[:size] in ends for size in sizes)

    def broken(self, text: str, breaker: str) -> str:
        """Put ``breaker`` behind the first character of each control token's text, overlapping ones too."""
        pieces: list[str] = []
        position = 0
        while self._pattern is not None and (found := self._pattern.search(text, position)):
            pieces += text[position : found.start() + 1], breaker
            position = found.start() + 1
        return "".join([*pieces, text[position:]])

    def stand_ins(self, text: str) -> str:
        """Replace control tokens in a template's text by stand-ins."""
        text = without_marks(text, self)
        if self._pattern is None or self._prefix not in text:
            return text
        return self._pattern.sub(lambda found: self.stand_in(self._numbers[found[0]]), text)

    def stand_in(self, number: int) -> str:
        """Make the stand-in with a number: 0 for a mark in the data, then those of the tokens, then others."""
        return f"{_MARK}{self._key(number)}{_MARK}"

    def expanded(self, rendered: str) -> str:
        """Replace stand-ins in a rendering by the texts of their control tokens."""
        return "".join(self.parts(rendered))

    def parts(self, rendered: str) -> list[str]:
        """Cut a rendering into texts, with a control token of the template between each two."""
        parts = rendered.split(_MARK)
        try:
            parts[1::2] = map(self._by_key.__getitem__, parts[1::2])
        except KeyError:  # a mark of the data, or a stand-in that the template has cut
            return self._parts_among_marks(rendered)
        return parts

    def spans(self, parts: Sequence[str], *, every: bool = False) -> list[PromptSpan] | None:
        """Make spans of a prompt where data has a control token's text; None where it has none.

        A literal span reaches from one control token of the template to the next, because tokenizers cut there anyway.

        Args:
            parts: parts of the prompt.
            every: whether all text between control tokens of the template is literal.
        """
        if self._pattern is None or not (every or self._overlap or any(map(self.occurs_in, parts[::2]))):
            return None
        text = "".join(parts)
        own = own_spans(parts)
        foreign = [span for found in self._pattern.finditer(text) if (span := found.span()) not in own]
        if not (foreign or every):
            return None
        return _spans(text, own, [(0, len(text))] if every or self._overlap else foreign)

    @functools.cached_property
    def _pieces(self) -> tuple[frozenset[str], frozenset[str], int]:
        """Beginnings and ends of the texts, and the length of the longest."""
        cuts = [(text[:size], text[size:]) for text in self.texts for size in range(1, len(text))]
        starts, ends = frozenset(start for start, _ in cuts), frozenset(end for _, end in cuts)
        return starts, ends, max(map(len, self.texts), default=0)

    def _key(self, number: int) -> str:
        code = ""
        while number:
            number, digit = divmod(number, len(_SYMBOLS))
            code += _SYMBOLS[digit]
        return self.nonce + code

    def _parts_among_marks(self, rendered: str) -> list[str]:
        found = re.split(f"{_MARK}({self.nonce}[{_SYMBOLS}]*){_MARK}", rendered)
        parts = [found[0]]
        for key, text in zip(found[1::2], found[2::2], strict=True):
            if key in self._by_key:
                parts += self._by_key[key], text
            else:
                parts[-1] += (_MARK if key == self.nonce else f"{_MARK}{key}{_MARK}") + text
        return parts


def own_spans(parts: Sequence[str]) -> dict[tuple[int, int], None]:
    """The places of the template's control tokens in the text of ``ControlTokens.parts``, in order."""
    ends = list(itertools.accumulate(map(len, parts)))
    return dict.fromkeys((end - len(part), end) for part, end in zip(parts[1::2], ends[1::2], strict=True))


def _spans(text: str, own: Iterable[tuple[int, int]], foreign: Sequence[tuple[int, int]]) -> list[PromptSpan]:
    """Spans of a text with control tokens of the template; data between them is literal where foreign text is."""
    spans: list[PromptSpan] = []
    begun = first = 0
    waiting = iter(foreign)
    start, end = next(waiting)
    for last, after in itertools.chain(own, [(len(text), len(text))]):  # data stands between first and last
        while end <= first:
            start, end = next(waiting, (len(text) + 1, len(text) + 1))
        if start < last and first < last:
            if begun < first:
                spans.append(PromptSpan(text[begun:first], False))
            spans.append(PromptSpan(text[first:last], True))
            begun = last
        first = after
    return [*spans, PromptSpan(text[begun:], False)] if begun < len(text) else spans


def _overlap(longest_first: Sequence[str]) -> bool:
    """Whether the text of a control token and text beside it may be read as another control token."""
    first = {text[0] for text in longest_first}
    if any(not first.isdisjoint(text[1:]) for text in longest_first):
        return True
    in_order = sorted(longest_first)
    return any(after.startswith(before) for before, after in itertools.pairwise(in_order))


class AssembledTokens(NodeTransformer):
    """Control tokens that a template assembles from its own pieces around a role or another word.

    Phi-3 writes ``<|``, the role and ``|>``; Hunyuan writes ``'<|user{}|>'.format(':suffix')``. Pieces and words have
    stand-ins, too, and so has the role of a message where it is written: the same text of the data has none.
    """

    def __init__(self, control_tokens: ControlTokens, constants: Iterable[str]) -> None:
        """Find them; ``constants`` are the template's, with stand-ins for whole control tokens."""
        self._control_tokens = control_tokens
        parts = {part for text in constants for part in _PLACEHOLDER.split(text)}
        pieces = {piece for part in parts for piece in re.split(_STAND_IN, part)}
        lengths = range(1, max(map(len, control_tokens.texts), default=1))
        starts = {piece[:length] for piece in pieces for length in lengths}
        ends = {piece[-length:] for piece in pieces for length in lengths}
        words = pieces.union(ROLES)
        found = {
            (text[:first], text[first:last], text[last:])
            for text in control_tokens.texts
            for first in range(1, len(text))
            if text[:first] in ends
            for last in range(first + 1, len(text))
            if text[first:last] in words and text[last:] in starts
        }
        numbers = itertools.count(len(control_tokens.texts) + 1)
        self._before, self._inside, self._after = (
            {
                text: control_tokens.stand_in(next(numbers))
                for text in sorted({each[place] for each in found}, key=len)[::-1]
            }
            for place in range(3)
        )
        self._texts = {
            stand_in: text for each in (self._before, self._inside, self._after) for text, stand_in in each.items()
        }

    def __bool__(self) -> bool:
        return bool(self._texts)

    def marked(self, constant: str) -> str:
        """Mark a constant of the template with stand-ins for pieces at its beginning and end, or for all of it."""
        if constant in self._inside and constant not in ROLES:
            return self._inside[constant]
        return "".join(map(self._marked, _PLACEHOLDER.split(constant)))

    def joined(self, rendered: str) -> str:
        """Replace assembled control tokens in a rendering by stand-ins, and other pieces by their texts."""
        groups = (("|".join(each.values())) for each in (self._before, self._inside, self._after))
        rendered = re.sub("".join(f"({group})" for group in groups), self._token, rendered)
        return re.sub("|".join(self._texts), lambda found: self._texts[found[0]], rendered)

    def role(self, role: Any) -> Any:
        """Write a role, with a stand-in where it may be a part of a control token."""
        return self._inside.get(role, role) if isinstance(role, str) else role

    def visit_written(self, node: Any) -> Any:
        """Make roles that are operands of the node pass ``role``."""
        self.generic_visit(node)
        for name, value in node.iter_fields():
            if isinstance(value, list):
                setattr(node, name, [_written(each) for each in value])
            else:
                setattr(node, name, _written(value))
        return node

    visit_Add = visit_Concat = visit_Output = visit_written  # noqa: N815 - Jinja's names

    def visit_Call(self, node: nodes.Call) -> Any:  # noqa: N802 - Jinja's name
        """Make roles that a text is formatted with pass ``role``."""
        formats = isinstance(node.node, nodes.Getattr) and node.node.attr == "format"
        return self.visit_written(node) if formats else self.generic_visit(node)

    def _marked(self, text: str) -> str:
        before = next((piece for piece in self._before if text.endswith(piece)), "")
        text = text.removesuffix(before)
        after = next((piece for piece in self._after if text.startswith(piece)), "")
        return self._after.get(after, "") + text.removeprefix(after) + self._before.get(before, "")

    def _token(self, found: re.Match[str]) -> str:
        text = "".join(self._texts[part] for part in found.groups())
        return self._control_tokens.stand_ins(text)


def _written(node: Any) -> Any:
    """An expression of a role through the filter that gives it a stand-in; any other as it is."""
    is_role = (isinstance(node, nodes.Getattr) and node.attr == "role") or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "role"
    )
    return nodes.Filter(node, _ROLE_FILTER, [], [], None, None, lineno=node.lineno) if is_role else node


def with_stand_ins(
    tree: nodes.Template, control_tokens: ControlTokens, filters: dict[str, Callable[..., Any]]
) -> AssembledTokens:
    """Put stand-ins for control tokens into the texts of a parsed template.

    Args:
        tree: syntax tree of the template, which is changed.
        control_tokens: the tokenizer's control tokens.
        filters: filters of the environment, to which one is added.
    """
    kinds: list[tuple[type[nodes.Expr], str]] = [(nodes.TemplateData, "data"), (nodes.Const, "value")]
    constants = [
        (node, field, control_tokens.stand_ins(text))
        for kind, field in kinds
        for node in tree.find_all(kind)
        if isinstance(text := getattr(node, field), str)
    ]
    assembled = AssembledTokens(control_tokens, [text for *_, text in constants])
    for node, field, text in constants:
        setattr(node, field, assembled.marked(text))
    filters[_ROLE_FILTER] = assembled.role
    if assembled:
        assembled.visit(tree)
    return assembled


def holds_marks(*data: Any) -> bool:
    """Tell whether a string of nested data has the mark of stand-ins, which JSON writes as it is."""
    return _MARK.encode() in write_client_json(data)


def without_marks(data: Any, control_tokens: ControlTokens) -> Any:
    """Copy nested data with a stand-in for each mark of stand-ins."""
    if isinstance(data, str):
        return data.replace(_MARK, control_tokens.stand_in(0))
    if isinstance(data, Mapping):
        return {without_marks(key, control_tokens): without_marks(value, control_tokens) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [without_marks(item, control_tokens) for item in data]
    return data
