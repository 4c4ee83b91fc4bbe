"""Searches stop strings in a stream of text, and releases text as soon as it cannot belong to one."""

from __future__ import annotations

import re
from typing import Protocol


class StopSearch(Protocol):
    """The search for the end of an answer, as the assembler uses it; see ``StopMatcher``."""

    matched: str | None
    position: int
    end: int

    def push(self, text: str) -> str:
        """Add text; returns the part that certainly does not belong to a stop string."""
        ...

    def skip(self, text: str) -> str:
        """Add text that is not to be searched."""
        ...

    def flush(self) -> str:
        """End the text; returns the held-back part."""
        ...


class AnswerTextReader(StopSearch, Protocol):
    """A reader of the whole text of an answer, which decides on the parts to search.

    Text that it returns is the model's own, for log-probs and token ids; the reader itself collects the part for the
    client.
    """

    def end_at(self, texts: tuple[str, ...]) -> None:
        """Add texts that end the answer; only before the first ``push``."""
        ...

    def count(self, start: int, end: int) -> None:
        """Count a token that covers these characters of the whole text, before ``push`` of its text."""
        ...

    def take_token(self, text: str) -> str | None:
        """Add the text of a whole token as ``count`` and ``push`` do, and return it; None if it is held back."""
        ...


class StopMatcher:
    """Finds the first stop string of a text that arrives in chunks of any size.

    The first match is the one that is complete first, character by character; of two that are complete at the same
    character the longest. So the outcome depends on the text alone and not on the chunks, and generation can end at
    the very token that completed a stop. Held back is exactly the longest end of the text that begins some stop.

    Work is linear in the text (each stop is a Knuth-Morris-Pratt automaton, built only as deep as the text goes), and
    text without any stop's first character costs one search.

    Attributes:
        matched: the stop string that was found; None until then.
        position: characters of the whole text before the match; valid once ``matched`` is set.
        end: characters of the whole text up to and including the match; valid once ``matched`` is set.
    """

    __slots__ = ("_automata", "_first", "_held", "_seen", "end", "matched", "position")

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Watch for ``stops``; none at all is allowed.

        Raises:
            ValueError: when a stop is empty.
        """
        if not all(stops):
            raise ValueError("A stop string must not be empty.")
        longest_first = sorted(dict.fromkeys(stops), key=len, reverse=True)
        self._automata = [_Automaton(stop) for stop in longest_first]
        self._first = re.compile("[" + "".join(re.escape(stop[0]) for stop in stops) + "]") if stops else None
        self._held = ""
        self._seen = 0
        self.matched: str | None = None
        self.position = 0
        self.end = 0

    def push(self, text: str) -> str:
        """Add text; returns the part that certainly does not belong to a stop string, none after a match."""
        if self.matched is not None:
            return ""
        if self._first is None:
            return text
        held = self._held
        start = 0
        if not held:
            hit = self._first.search(text)
            if hit is None:
                self._seen += len(text)
                return text
            start = hit.start()
        index, depth = start, 0
        while index < len(text):
            character = text[index]
            index += 1
            depth = 0
            for automaton in self._automata:
                state = automaton.step(character)
                if state == automaton.length:
                    return self._match(automaton.stop, held + text[:index], index)
                depth = max(depth, state)
            if not depth:  # no stop string has begun
                hit = self._first.search(text, index)
                index = len(text) if hit is None else hit.start()
        if start < len(text):
            text = held + text
            self._seen += len(text) - len(held)
            self._held = text[len(text) - depth :]
            return text[: len(text) - depth]
        return ""

    def take(self, text: str) -> str | None:
        """Add text as ``push`` does; None, and nothing is added, where it completes a stop string."""
        if not self._held and self._first is not None and self._first.search(text) is None:  # mostly
            self._seen += len(text)
            return text
        held, states = self._held, [automaton.state for automaton in self._automata]
        shown = self.push(text)
        if self.matched is None:
            return shown
        self.matched, self._held = None, held
        for automaton, state in zip(self._automata, states, strict=True):
            automaton.state = state
        return None

    def skip(self, text: str) -> str:
        """Add text that is not to be searched; only before the first ``push``."""
        self._seen += len(text)
        return text

    def flush(self) -> str:
        """End the text; returns the held-back part, none after a match."""
        held, self._held = self._held, ""
        return held

    def _match(self, stop: str, text: str, consumed: int) -> str:
        self.matched = stop
        self.end = self._seen + consumed
        self.position = self.end - len(stop)
        self._held = ""
        return text[: len(text) - len(stop)]


class _Automaton:
    """Knuth-Morris-Pratt for one string: ``state`` is how many of its characters the text ends with."""

    __slots__ = ("_fallback", "length", "state", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = len(stop)
        self.state = 0
        self._fallback = [0, 0]  # by state: the next shorter state that the text may be in

    def step(self, character: str) -> int:
        """Read one character (not called again after a match); return the new state."""
        stop, fallback, state = self.stop, self._fallback, self.state
        while state and stop[state] != character:
            state = fallback[state]
        if stop[state] == character:
            state += 1
            while len(fallback) <= state:
                self._extend()
        self.state = state
        return state

    def _extend(self) -> None:
        fallback, stop = self._fallback, self.stop
        length = len(fallback)  # the prefix whose fallback is missing
        state = fallback[length - 1]
        while state and stop[state] != stop[length - 1]:
            state = fallback[state]
        fallback.append(state + 1 if stop[state] == stop[length - 1] else 0)
