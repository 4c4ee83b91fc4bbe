"""Markers of a format, and the think tags among them.

A set of markers is found in a text that arrives in pieces by an automaton, which looks at a character once: A. V. Aho,
M. J. Corasick, "Efficient string matching", CACM 18(6), 1975.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property

_TAIL = 64  # characters of whitespace at the prompt's end at most


class MarkerState:
    """A state of the automaton.

    Attributes:
        path: the marker prefix that the text ends with in this state.
        follow: the next state by character, along a marker.
        fallback: the state of the longest proper suffix of ``path`` that begins a marker; None at the root.
        marker: the marker that ends here, else None.
    """

    __slots__ = ("fallback", "follow", "marker", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.follow: dict[str, MarkerState] = {}
        self.fallback: MarkerState | None = None
        self.marker: str | None = None


class Markers:
    """A set of markers.

    Attributes:
        texts: the markers.
        root: the state before the first character.
        first: finds a character that begins a marker.
    """

    def __init__(self, *texts: str) -> None:
        """Prepare the automaton.

        Raises:
            ValueError: when a marker is empty, or holds another, so that the two could not be told apart.
        """
        texts = tuple(dict.fromkeys(texts))
        if any(one in other for one in texts for other in texts if one is not other):
            raise ValueError("A marker must not hold another marker.")
        self.texts = texts
        self.root = MarkerState("")
        for text in texts:
            self._add(text)
        self._link()
        self.first = re.compile("[" + "".join(re.escape(text[0]) for text in texts) + "]" if texts else r"(?!)")

    def _add(self, text: str) -> None:
        if not text:
            raise ValueError("A marker must not be empty.")
        node = self.root
        for character in text:
            node = node.follow.setdefault(character, MarkerState(node.path + character))
        node.marker = text

    def _link(self) -> None:
        level = [self.root]
        while level:
            for node in level:
                for character, child in node.follow.items():
                    child.fallback = self._longest_suffix(node.fallback, character)
            level = [child for node in level for child in node.follow.values()]

    def _longest_suffix(self, node: MarkerState | None, character: str) -> MarkerState:
        while node is not None:
            if character in node.follow:
                return node.follow[character]
            node = node.fallback
        return self.root

    def also(self, *texts: str) -> Markers:
        """These markers and more."""
        return markers_of(*self.texts, *texts)

    def cut_off(self, text: str) -> str:
        """A text that the token limit has cut, without the beginning of a marker at its end.

        One character alone says nothing, nor does the beginning of a word: both stay.
        """
        begun = (
            marker[:length] for marker in self.texts for length in range(2, len(marker)) if not marker[0].isalpha()
        )
        longest = max((len(beginning) for beginning in begun if text.endswith(beginning)), default=0)
        return text[: len(text) - longest]

    def begun(self, text: str) -> str:
        """The end of a text that begins a marker; empty where there is none."""
        node = self.root
        for character in text[-max(map(len, self.texts), default=1) :]:
            node = self.step(self.root if node.marker else node, character)
        return "" if node.marker else node.path

    def step(self, node: MarkerState, character: str) -> MarkerState:
        """The state after one more character."""
        return node.follow.get(character) or self._longest_suffix(node.fallback, character)


@cache
def markers_of(*texts: str) -> Markers:
    """A set of markers that formats have, prepared once."""
    return Markers(*texts)


@dataclass(frozen=True)
class ThinkTags:
    """The tags around a family's reasoning, which its models write before the answer.

    A missing closing tag leaves everything reasoning, up to a marker that can only come after it.

    Attributes:
        open: before the reasoning.
        close: after it.
        between: text that the model writes between the closing tag and the answer; a guide keeps to it.
        instead: markers that end the reasoning where the model forgot to close it, such as a call's.
        label: text that the model writes behind the opening tag and that is no reasoning.
        anywhere: whether reasoning may begin again behind text or a call.
        phrases: ordinary texts that begin reasoning in place of the tag, and those that end it then.
        answer: texts that the model may write, one after the other, between the reasoning and the answer.
        answer_end: text that the model may write behind an answer with reasoning.
    """

    open: str = "<think>"
    close: str = "</think>"
    between: str = ""
    instead: tuple[str, ...] = ()
    label: str = ""
    anywhere: bool = False
    phrases: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    answer: tuple[str, ...] = ()
    answer_end: str = ""

    @cached_property
    def markers(self) -> Markers:
        """The two tags."""
        return Markers(self.open, self.close)

    def opened_by(self, prompt: str) -> bool:
        """Whether the prompt ends inside the reasoning: with the opening tag, perhaps its label, whitespace aside."""
        labelled = self.open + self.label
        return prompt[-len(labelled) - _TAIL :].rstrip().endswith((self.open, labelled.rstrip()))

    def closed_by(self, prompt: str) -> bool:
        """Whether the prompt ends behind the reasoning: with the closing tag, so that there will be none."""
        return prompt[-len(self.close) - _TAIL :].rstrip().endswith(self.close)

    @cached_property
    def beginnings(self) -> Markers:
        """All that begin reasoning."""
        return Markers(self.open, *self.phrases[0])
