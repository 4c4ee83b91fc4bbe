"""The base of all family parsers: a grammar, written as a generator, that is fed as text arrives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from gateway.families.emitter import Call, Emitter, without
from gateway.families.events import Event
from gateway.families.family import Turn
from gateway.families.markers import Markers
from gateway.families.source import Source, Steps
from gateway.families.thinking import ThinkTags

_NOTHING = Markers()


class FamilyParser(ABC):
    """Parses one answer. A family implements ``run``; text that it leaves unread is content.

    Attributes:
        source: what is read.
        emitter: what is said.
        markers: the family's markers that must never reach the client.
        say_prose: takes text that turned out to be no call: content, or reasoning inside reasoning.
    """

    def __init__(self, turn: Turn, *, eager: bool, markers: Markers | None = None) -> None:
        """Parse one answer.

        Args:
            turn: names the tools that may be called.
            eager: whether calls are said while they form.
            markers: cut out of broken calls, of content (``content_until``) and of reasoning (``think``); with the
                think tags, where there are any.
        """
        self.turn = turn
        self.source = Source()
        self.emitter = Emitter(turn, eager=eager)
        self.markers = markers or _NOTHING
        self.say_prose = self.emitter.content
        self._header: int | None = 0
        self._steps = self._whole()
        next(self._steps, None)

    @property
    def examined(self) -> int:
        """Characters looked at so far."""
        return self.source.examined

    def feed(self, text: str) -> list[Event]:
        """Take more of the answer; returns what is certain now."""
        if text:
            self.source.push(text)
            next(self._steps, None)
        return self.emitter.take()

    def finish(self, *, cut: bool) -> list[Event]:
        """End the answer; returns what was still held back. ``cut``: whether the token limit ended it."""
        self.source.end(cut=cut)
        next(self._steps, None)
        self.emitter.finish()
        return self.emitter.take()

    @abstractmethod
    def run(self) -> Steps[None]:
        """Read the answer from ``source`` and say it with ``emitter``."""

    def content_until(self, *wanted: str) -> Steps[str | None]:
        """Read content up to one of the ``wanted`` markers; the family's other markers are dropped on the way.

        Returns:
            The marker, None at the end.
        """
        while True:
            marker = yield from self.source.until(self.markers, self.emitter.content)
            if marker is None or marker in wanted:
                return marker

    def think(
        self, tags: ThinkTags, *, opened: bool, block: Callable[[], Steps[bool]] | None = None
    ) -> Steps[str | None]:
        """Read the reasoning before the answer, if there is any.

        Args:
            tags: around it.
            opened: whether the prompt has opened it already.
            block: reads what follows a marker of ``tags.instead`` and returns whether it was a call. A call ends the
                reasoning; what is none is reasoning. Without it, such a marker ends the reasoning.

        Returns:
            The marker that ended it in place of the closing tag and has been read, when there is no ``block``; else
            None.
        """
        if not opened:
            space = yield from self.source.space()
            if not (yield from self.source.literal(tags.open)):
                if not self.source.cut_in(tags.open):
                    self.emitter.content(space)
                return None
        found: str | None = None
        while (marker := (yield from self.source.until(self._inside(tags), self.emitter.reasoning))) is not None:
            if marker == tags.close:
                break
            if marker in tags.instead:
                if block is None:
                    found = marker
                    break
                self.say_prose = self.emitter.reasoning
                called = yield from block()
                self.say_prose = self.emitter.content
                if called:
                    break
        self.emitter.end_reasoning()
        return found

    def _inside(self, tags: ThinkTags) -> Markers:
        """The markers to look for inside reasoning: the family's, if the tags are among them."""
        return self.markers if tags.close in self.markers.texts else tags.ends

    def begin_call(self) -> Call:
        """A call may begin here: what is read from now on can still become content, by ``broken``."""
        self.source.record()
        self._header = 0
        return self.emitter.begin_call()

    def begin_header(self) -> None:
        """What is read of the call from here on is the format's, up to ``end_header``: no text for anyone."""
        self._header = None

    def end_header(self) -> None:
        """The header of the call has been read."""
        self._header = self.source.recorded_length

    def broken(self, call: Call) -> None:
        """What was read since ``begin_call`` is no call: it is content (inside reasoning: reasoning).

        Of a call that the token limit has cut, the header is not shown, nor a marker that was cut itself. A call that
        has been said already stays as it is; nothing is said twice.
        """
        raw = self.source.recorded()
        if not call.started:
            self.source.examined += len(raw)
            self.say_prose(self.without_format(raw))

    def without_format(self, raw: str) -> str:
        """The text of a broken call without what only belongs to the format."""
        if self.source.cut:
            raw = "" if self._header is None else self.markers.cut_off(raw[self._header :])
        return without(raw, self.markers.texts)

    def _whole(self) -> Steps[None]:
        yield from self.run()
        yield from self.content_until()


class MarkedCallsParser(FamilyParser):
    """Parses reasoning between tags, then content and calls, each of which begins with one marker.

    Attributes:
        opening: the marker.
    """

    opening: str

    def __init__(self, turn: Turn, *, eager: bool, markers: Markers, tags: ThinkTags, prompt: str) -> None:
        """Parse one answer.

        Args:
            turn: names the tools.
            eager: whether calls are said while they form.
            markers: around calls and reasoning.
            tags: around the reasoning.
            prompt: the rendered prompt.
        """
        self._tags = tags
        self._opened = tags.opened_by(prompt)
        super().__init__(turn, eager=eager, markers=markers)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        yield from self.think(self._tags, opened=self._opened)
        while (yield from self.content_until(self.opening)):
            call = self.begin_call()
            self.begin_header()
            if not (yield from self.read_call(call)):
                self.broken(call)

    @abstractmethod
    def read_call(self, call: Call) -> Steps[bool]:
        """Read what follows the marker; whether it is a whole call of a known tool.

        It says by ``end_header`` where the arguments begin.
        """


class ContentParser(FamilyParser):
    """An answer without calls: reasoning, where the family has it, and content."""

    def __init__(self, turn: Turn, *, tags: ThinkTags | None = None, prompt: str = "") -> None:
        """Parse one answer.

        Args:
            turn: what is wanted.
            tags: around the reasoning; None: there is none.
            prompt: the rendered prompt.
        """
        self._tags = tags
        self._opened = tags is not None and tags.opened_by(prompt)
        super().__init__(turn, eager=False, markers=Markers(tags.open, tags.close) if tags else None)

    def run(self) -> Steps[None]:
        """Read the reasoning; what follows is content."""
        if self._tags is not None:
            yield from self.think(self._tags, opened=self._opened)
