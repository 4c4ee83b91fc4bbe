"""A JSON call in a message of its own.

    Text.<|message_sep|>

    function call<|role_sep|>
    {"name": "f", "arguments": {"a": 1}}

The end of the answer's message and the name of a role stand before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gateway.families.family_parser import FamilyParser
from gateway.families.json_calls import JsonCalls, read_call_list
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps


@dataclass(frozen=True, kw_only=True)
class MessageCalls(JsonCalls):
    """Reads a call in such a message, or behind a marker; an answer has one call.

    Attributes:
        header: all that stands between the text and the call: a marker, the role, which is an ordinary word, a marker.
    """

    header: str
    each: bool = True
    around: tuple[str, str] = ("", "")
    whole: bool = True

    @cached_property
    def _pieces(self) -> Sequence[str]:
        return [piece.strip() for piece in re.findall(r"<[^<>]*>|[^<]+", self.header) if piece.strip()]

    @property
    def markers(self) -> Sequence[str]:
        """All that only belong to the format."""
        return (*super().markers, *self._pieces[::2])

    @property
    def opening(self) -> Sequence[str]:
        """Those that a call may follow."""
        return (*self.opens, self._pieces[0])

    @property
    def call_format(self) -> CallFormat:
        """The format as a structural tag, in both forms."""
        message = replace(self._form(self.header, self.header, ""), once=True)
        return replace(super().call_format, once=True, also=(message,))

    def read_block(self, parser: FamilyParser) -> Steps[bool]:
        """Read the call behind an opening marker; returns whether there was one."""
        source, call = parser.source, parser.begin_call()
        parser.begin_header()
        for text in self._pieces[1:]:
            yield from source.space()
            yield from source.literal(text)
        yield from source.space()
        if (yield from source.peek()) == "{":
            parser.end_header()
        return (yield from read_call_list(parser, call, keys=self.keys))

    def without_format(self, raw: str, *, cut: bool) -> str:  # noqa: ARG002 - of the base
        """The text without the role, which is shown nowhere; see ``Grammar``."""
        return raw.replace("".join(self._pieces[1:]), "")
