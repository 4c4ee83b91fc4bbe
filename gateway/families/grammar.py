"""The base of all grammars: the way in which calls are written, as markers and generators that read what is between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.families.parser_events import FormingCall
from gateway.families.structural_tags import CallFormat
from gateway.families.text_source import Steps

if TYPE_CHECKING:
    from gateway.families.family_parser import FamilyParser


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """A format of calls. By itself it has none: everything is content.

    A subclass reads one kind of format; its fields are what differs between families. It has no state: that of an
    answer is in the parser, whose ``source`` it reads and whose ``emitter`` it tells. It implements ``read_call``;
    ``read_block``, where several calls may follow one marker; or ``run``. Text that it leaves unread is content.

    Attributes:
        opens: the markers that begin a call; models write the first.
        close: the marker behind calls, which may be missing; empty: there is none.
        extra: other texts that only belong to the format.
        whole: whether it is the format of whole answers, so that it reads those without calls too.
    """

    opens: tuple[str, ...] = ()
    close: str = ""
    extra: tuple[str, ...] = ()
    whole: bool = False

    @property
    def markers(self) -> Sequence[str]:
        """Texts that only belong to the format, without think tags: cut out of content, reasoning and broken calls."""
        return [text for text in (*self.opens, self.close, *self.extra) if text]

    @property
    def opening(self) -> Sequence[str]:
        """Those of the markers that begin a call."""
        return self.opens

    @property
    def call_format(self) -> CallFormat | None:
        """The format as a structural tag; None where it cannot be written as one."""
        return None

    def begins_thinking(self, prompt: str) -> bool:  # noqa: ARG002 - for subclasses
        """Whether an answer to the prompt begins with reasoning that no think tag tells."""
        return False

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read an answer."""
        tags = parser.tags
        thoughts = (tags.open,) if tags and tags.anywhere else ()
        yield from parser.think(opened=parser.opened)
        while (marker := (yield from parser.content_until(*self.opening, *thoughts))) is not None:
            if marker in thoughts:
                yield from parser.think(opened=True)
            else:
                yield from self.read_block(parser)

    def read_block(self, parser: FamilyParser) -> Steps[bool]:
        """Read the text behind an opening marker; returns whether there was a call."""
        call = parser.begin_call()
        parser.begin_header()
        if (yield from self.read_call(parser, call)):
            return True
        parser.broken(call)
        return call.started

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[bool]:
        """Read one call behind the opening marker, and complete it; ``end_header`` tells where its arguments begin.

        Returns:
            Whether it is a whole call of a known tool.
        """
        raise NotImplementedError

    def without_format(self, raw: str, *, cut: bool) -> str:  # noqa: ARG002 - for subclasses
        """The text of a broken call without what only belongs to the format and is no marker.

        Args:
            raw: the text.
            cut: whether the token limit ended the answer.
        """
        return raw
