"""The parser of one answer, and the base class of grammars, which are generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.text.families.family import Event, Tool, ToolPlan
from gateway.text.families.markers import Markers, ThinkTags
from gateway.text.families.parser_events import Emitter, FormingCall, PassthroughState
from gateway.text.families.structural_tags import CallFormat, Format, arguments_format
from gateway.text.families.text_source import BrokenCallError, Steps, TextSource


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """The base of formats of calls; the base itself reads everything as content.

    A subclass reads one kind of format; its fields differ between families. A grammar has no state: the state of an
    answer is in the parser, whose ``source`` it reads and whose ``emitter`` it calls. It implements ``read_call``;
    ``read_block``, where several calls may follow one marker; or ``run``. Text that it leaves unread is content.

    Attributes:
        opens: the markers that begin a call; models write the first.
        close: the marker behind calls, which may be missing; empty: there is none.
        extra: other texts that only belong to the format.
        whole: whether it is the format of whole answers, so that it reads those without calls too.
        call: a call as models write it, as of ``CallFormat``; empty: a guide cannot hold it.
        trigger: as of ``CallFormat``; by default the first of ``begins``, where models begin calls with it.
        section: texts before the first and after the last of calls; empty: there are none.
        gap: text between two calls.
        lead: text before calls that stand alone.
        once: whether a guide lets an answer have one call at most, as its models were taught.
    """

    opens: tuple[str, ...] = ()
    close: str = ""
    extra: tuple[str, ...] = ()
    whole: bool = False
    call: str = ""
    trigger: str = ""
    section: tuple[str, str] = ("", "")
    gap: str = ""
    lead: str = ""
    once: bool = False

    @property
    def markers(self) -> Sequence[str]:
        """Texts that only belong to the format, without think tags; content and reasoning never have them."""
        return [text for text in (*self.opens, self.close, *self.extra) if text]

    @property
    def opening(self) -> Sequence[str]:
        """The markers and ordinary texts that begin a call."""
        return self.opens

    @property
    def begins(self) -> Sequence[str]:
        """The markers with which the first call of an answer begins, as models write it."""
        return self.opens

    @property
    def call_format(self) -> CallFormat | None:
        """The format as a structural tag; None where there is none."""
        if not self.call:
            return None
        written = [text for text in self.opens[:1] if text in self.section[0] + self.call]
        trigger = self.trigger or "".join(written)
        return CallFormat(self.call, trigger, self.section, self.gap, self.lead, self.once, self.hold)

    def hold(self, tool: Tool) -> Format | None:
        """Make the format of a tool's arguments, as of ``CallFormat``."""
        return arguments_format(tool)

    def starts_behind(self, prompt: str) -> bool:  # noqa: ARG002 - for subclasses
        """Whether an answer starts directly behind the prompt, so that a guide may have reasoning in it."""
        return True

    def run(self, parser: FamilyParser) -> Steps[None]:
        """Read an answer."""
        tags = parser.tags
        thoughts = (tags.open,) if tags and tags.anywhere else ()
        yield from parser.think(opened=parser.opened)
        while (marker := (yield from parser.content_until(*self.opening, *thoughts))) is not None:
            if marker in thoughts:
                yield from parser.think(opened=True)
            else:
                parser.marker = marker
                yield from self.read_block(parser)

    def skip(self, source: TextSource, marker: str) -> Steps[str]:  # noqa: ARG002 - for subclasses
        """Read the rest of a marker that begins nothing here; an empty marker: up to the end of a broken call.

        Returns read text that is not part of the format.
        """
        yield from ()
        return ""

    def read_block(self, parser: FamilyParser) -> Steps[None]:
        """Read the text behind ``parser.marker``, which begins calls."""
        call = parser.begin_call(header=True)
        yield from parser.attempt(call, self.read_call(parser, call))

    def read_call(self, parser: FamilyParser, call: FormingCall) -> Steps[None]:
        """Read one call behind the opening marker, and complete it.

        ``end_header`` marks where the arguments begin.

        Raises:
            BrokenCallError: the text is not a whole call of a known tool.
        """
        raise NotImplementedError

    def without_format(self, raw: str, *, cut: bool) -> str:  # noqa: ARG002 - for subclasses
        """Remove the parts of the format other than markers from the text of a broken, perhaps ``cut`` call."""
        return raw


NO_CALLS = Grammar()
"""The grammar of answers without calls."""


@dataclass(eq=False, kw_only=True)
class FamilyParser:
    """Parses one answer: reasoning, where the family has it, then content and calls."""

    plan: ToolPlan
    grammar: Grammar
    prompt: str  # the rendered one
    markers: Markers  # cut out of content, reasoning and broken calls, since they must never reach the client
    tags: ThinkTags | None  # around the reasoning; None: there is none. They are among the markers
    guided: bool  # whether a guide holds the calls
    eager: bool  # whether calls without a guide are streamed before they are complete, too

    def __post_init__(self) -> None:
        """Begin to read."""
        self.opened = self.tags is not None and self.tags.opened_by(self.prompt)
        self.thinking = False  # whether the text that comes next is reasoning, as far as is known
        self.source = TextSource()
        self.marker = ""  # the text that was read last of those that begin calls
        self.emitter = Emitter(self.plan, eager=self.eager or self.guided)
        self.say_prose = self.emitter.content  # takes text that turned out to be no call; inside reasoning: reasoning
        self._header: int | None = 0  # characters of the call's header; None: it has not ended
        self._steps = self._whole()
        next(self._steps, None)

    def feed(self, text: str) -> list[Event]:
        """Add text of the answer; returns the events that are certain now."""
        if text:
            self.source.push(text)
            next(self._steps, None)
        return self.emitter.take()

    def passing(self) -> PassthroughState | None:
        """The state in which texts need not be fed, a new one after each fed text; None where they must be."""
        return self.emitter.passing(self.source.taker, self.source.awaited)

    def finish(self, *, cut: bool) -> list[Event]:
        """End the answer; returns the held-back events. ``cut``: whether the token limit ended it."""
        self.source.end(cut=cut)
        next(self._steps, None)
        self.emitter.finish()
        return self.emitter.take()

    def content_until(self, *ends: str) -> Steps[str | None]:
        """Read content up to one of ``ends``, or the end; returns the found text. Other markers are dropped."""
        markers = self.markers.also(*ends)
        while (marker := (yield from self.source.until(markers, self.emitter.content))) is not None:
            if marker in ends:
                break
            yield from self.grammar.skip(self.source, marker)
        return marker

    def think(self, *, opened: bool) -> Steps[None]:
        """Read the reasoning between the tags, if there is any; ``opened``: whether it has begun before."""
        tags = self.tags
        if tags is None:
            return
        begun = tags.open if opened else (yield from self._begin_thinking(tags))
        if begun is None:
            return
        ends = {tags.close} if begun == tags.open else set(tags.phrases[1])
        self.thinking = True
        if tags.label and not (yield from self.source.literal(tags.label)):
            self.source.cut_in(tags.label)
        marker = yield from self._thoughts(tags, ends)
        self.thinking = False
        self.emitter.end_reasoning()
        if marker in ends:
            yield from self._begin_answer(tags)

    def _begin_thinking(self, tags: ThinkTags) -> Steps[str | None]:
        """Read what begins the reasoning; returns it, or None where there is none."""
        space = yield from self.source.space()
        begun = yield from self.source.choice(tags.open, *tags.phrases[0])
        if begun is None and tags.answer_end and tags.closed_by(self.prompt):
            self.emitter.end_reasoning()
            yield from self._begin_answer(tags)
        elif begun is None and not self.source.cut_in(tags.open):
            self.emitter.content(space)
        return begun

    def _thoughts(self, tags: ThinkTags, ends: set[str]) -> Steps[str | None]:
        """Read the reasoning up to one of its ends, or up to a call; returns the marker that ended it, if any.

        A marker of ``tags.instead`` ends it; but behind one that opens a call only a call does, and other text is
        reasoning.
        """
        markers, opening, calls = self.markers.also(*ends), self.grammar.opening, self.emitter.calls
        while self.emitter.calls == calls:
            marker = yield from self.source.until(markers, self.emitter.reasoning)
            if marker is None or marker in ends or (marker in tags.instead and marker not in opening):
                return marker
            if marker in tags.instead:
                self.marker, self.say_prose = marker, self.emitter.reasoning
                yield from self.grammar.read_block(self)
                self.say_prose = self.emitter.content
        return None

    def _begin_answer(self, tags: ThinkTags) -> Steps[None]:
        """Read the texts that may stand before the answer."""
        for text in tags.answer:
            if not (yield from self.source.spaced(text)):
                self.source.cut_in(text)
        if tags.answer_end:
            self.markers = self.markers.also(tags.answer_end)

    def begin_call(self, begun: str = "", *, header: bool = False) -> FormingCall:
        """Begin a call; text read from now on can still become content by ``broken``.

        ``begun``: text of the call that was read before. ``header``: whether the text up to ``end_header`` is the
        format's; of a cut call it is not shown.
        """
        self.source.record(begun)
        self._header = None if header else 0
        return FormingCall(self.emitter)

    def end_header(self) -> None:
        """End the header of the call."""
        self._header = self.source.recorded_length

    def attempt(self, call: FormingCall, reading: Steps[None], before: str = "") -> Steps[bool]:
        """Read a begun call; returns whether it is one. Else its text, and the text ``before`` it, are content."""
        try:
            yield from reading
        except BrokenCallError:
            rest = yield from self.grammar.skip(self.source, "")
            self.say_prose("" if call.started else before)
            self.broken(call)
            if call.started and not self.source.cut:
                self.emitter.content(rest)
            return False
        return True

    def broken(self, call: FormingCall) -> None:
        """End a broken call: emit its text since ``begin_call`` as content, or as reasoning within reasoning.

        The header and an incomplete marker of a call that the token limit has cut are left out. Nothing is emitted for
        a call that was already emitted.
        """
        raw = self.source.recorded()
        if call.started:
            return
        self.source.examined += len(raw)
        if not self.source.cut:  # the beginning of a marker that the call's punctuation looked like: read it again
            begun = self.markers.begun(raw)
            self.source.unread(raw[begun:])
            raw = raw[:begun]
        else:
            raw = "" if self._header is None else self.markers.cut_off(raw[self._header :])
        self.say_prose(self.markers.removed(self.grammar.without_format(raw, cut=self.source.cut)))

    def _whole(self) -> Steps[None]:
        yield from self.grammar.run(self)
        yield from self.content_until()
