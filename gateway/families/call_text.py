"""Calls without a marker of their own, as the Llama models write them: JSON objects or Python calls.

    {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
    [{"name": "f", "parameters": {"a": 1}}]
    [f(a=1, b="x"), g()]

A marker may go before and after them. Without one, they count as calls only at the beginning of a line and when
nothing else follows until the end of the answer: the same text can be part of an explanation.
"""

from __future__ import annotations

from gateway.families.emitter import Call, without
from gateway.families.family import Turn
from gateway.families.json_calls import read_json_call
from gateway.families.markers import Markers
from gateway.families.natively import NAME_CHARACTERS, read_name
from gateway.families.parsing import FamilyParser
from gateway.families.python_values import json_text, read_python_value
from gateway.families.source import Steps
from gateway.families.thinking import ThinkTags

_LINES = ("\n{", "\n[")


class CallTextParser(FamilyParser):
    """Parses answers with such calls."""

    def __init__(
        self,
        turn: Turn,
        *,
        eager: bool,
        before: str,
        after: str | None = None,
        ends: tuple[str, ...] = (),
        tags: ThinkTags | None = None,
        prompt: str = "",
    ) -> None:
        """Parse one answer.

        Args:
            turn: names the tools.
            eager: whether calls are said while they form.
            before: the marker before calls.
            after: the marker after them, which may be missing.
            ends: markers at the end of an answer.
            tags: around reasoning before the answer; None: there is none.
            prompt: the rendered prompt.
        """
        self._tags = tags
        self._opened = tags is not None and tags.opened_by(prompt)
        after_markers = (after,) if after else ()
        markers = (before, *after_markers, *ends, *((tags.open, tags.close) if tags else ()))
        super().__init__(turn, eager=eager, markers=Markers(*markers))
        self._before = before
        self._seen = Markers(*markers, *_LINES)
        self._after = Markers(*after_markers, *ends)

    def run(self) -> Steps[None]:
        """Read reasoning, then content and calls."""
        if self._tags is not None and (yield from self.think(self._tags, opened=self._opened)) is not None:
            yield from self._tagged()
        space = yield from self.source.space()
        if (yield from self.source.peek()) in {"{", "["}:
            yield from self._bare(space, (yield from self.source.take()))
        else:
            self.emitter.content(space)
        while (marker := (yield from self.source.until(self._seen, self.emitter.content))) is not None:
            if marker in _LINES:
                yield from self._bare(marker[0], marker[1])
            elif marker == self._before:
                yield from self._tagged()

    def _bare(self, space: str, opening: str) -> Steps[None]:
        """Calls without a marker, whose opening bracket has been read."""
        calls: list[Call] = []
        self.source.record()
        read = self._objects if opening == "{" else self._list
        good = yield from read(calls)
        if good:
            yield from self.source.space()
            yield from self.source.choice(self._after)
            if not (yield from self.source.more()):
                self._complete(calls)
                return
        if not any(call.started for call in calls):
            self.emitter.content(space + opening)
            self._give_up(calls)
        elif good:
            self.emitter.content(without(self.source.recorded(), self.markers.texts))

    def _tagged(self) -> Steps[None]:
        """Calls behind the marker."""
        calls: list[Call] = []
        self.source.record()
        yield from self.source.space()
        if (yield from self.source.literal("{")):
            good = yield from self._objects(calls)
        elif (yield from self.source.literal("[")):
            good = yield from self._list(calls)
        else:
            good = yield from self._function(calls)
        if good:
            self._complete(calls)
            yield from self.source.space()
            yield from self.source.choice(self._after)
        else:
            self._give_up(calls)

    def _objects(self, calls: list[Call]) -> Steps[bool]:
        """JSON objects, the first of which has been opened; between them a semicolon, or space alone."""
        more = True
        while more:
            if not (yield from self._object(calls)):
                return False
            yield from self.source.space()
            yield from self.source.literal(";")
            yield from self.source.space()
            more = yield from self.source.literal("{")
        return True

    def _object(self, calls: list[Call]) -> Steps[bool]:
        call = self.emitter.begin_call()
        calls.append(call)
        good = yield from read_json_call(self.source, call, opened=True)
        self._behind(call)
        return good

    def _list(self, calls: list[Call]) -> Steps[bool]:
        """JSON objects or Python calls behind a bracket that has been read."""
        more = True
        while more:
            yield from self.source.space()
            read = self._object if (yield from self.source.literal("{")) else self._function
            if not (yield from read(calls)):
                return False
            yield from self.source.space()
            more = yield from self.source.literal(",")
            yield from self.source.space()
            more = more and (yield from self.source.peek()) != "]"
        closed = yield from self.source.literal("]")
        self._behind(calls[-1])
        return closed

    def _function(self, calls: list[Call]) -> Steps[bool]:
        """One Python call with keyword arguments."""
        source = self.source
        call = self.emitter.begin_call()
        calls.append(call)
        name = yield from read_name(source)
        if not (yield from source.literal("(")) or not call.named(name):
            return False
        call.arguments("{")
        names: set[str] = set()
        while True:
            yield from source.space()
            if (yield from source.literal(")")):
                call.arguments("}")
                return True
            if not (yield from self._argument(call, names)):
                return False
            yield from source.space()
            if not (yield from source.literal(",")) and (yield from source.peek()) != ")":
                return False

    def _argument(self, call: Call, names: set[str]) -> Steps[bool]:
        """One argument; as in Python, none of the ``names`` before it may come again."""
        name = yield from self.source.run(NAME_CHARACTERS)
        yield from self.source.space()
        if not name or name in names or not (yield from self.source.literal("=")):
            return False
        call.arguments(f'{", " if names else ""}"{json_text(name)}": ')
        names.add(name)
        return (yield from read_python_value(self.source, call.arguments))

    def _behind(self, call: Call) -> None:
        """What was read of a call that has been said already is not said again."""
        if call.started:
            self.source.record()

    def _complete(self, calls: list[Call]) -> None:
        self.source.recorded()
        for call in calls:
            call.complete()

    def _give_up(self, calls: list[Call]) -> None:
        """What was read is no call, if none of it has been said."""
        said = next((call for call in calls if call.started), calls[0])
        self.broken(said)
