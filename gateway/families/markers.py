"""Sets of markers, found in a text that arrives in pieces: an Aho-Corasick automaton that looks at a character once.

A. V. Aho, M. J. Corasick, "Efficient string matching", CACM 18(6), 1975.
"""

from __future__ import annotations

import re


class Node:
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
        self.follow: dict[str, Node] = {}
        self.fallback: Node | None = None
        self.marker: str | None = None


class Markers:
    """A set of markers. Made once per family, shared by its parsers.

    Attributes:
        texts: the markers.
        root: the state before the first character.
        first: finds a character that begins a marker.
    """

    def __init__(self, *texts: str) -> None:
        """Prepare the automaton.

        Raises:
            ValueError: when a marker is empty or holds another; which of the two is meant would be unclear.
        """
        texts = tuple(dict.fromkeys(texts))
        if any(one in other for one in texts for other in texts if one is not other):
            raise ValueError("A marker must not hold another marker.")
        self.texts = texts
        self.root = Node("")
        for text in texts:
            self._add(text)
        self._link()
        self.first = re.compile("[" + "".join(re.escape(text[0]) for text in texts) + "]" if texts else r"(?!)")

    def _add(self, text: str) -> None:
        if not text:
            raise ValueError("A marker must not be empty.")
        node = self.root
        for character in text:
            node = node.follow.setdefault(character, Node(node.path + character))
        node.marker = text

    def _link(self) -> None:
        level = [self.root]
        while level:
            for node in level:
                for character, child in node.follow.items():
                    child.fallback = self._longest_suffix(node.fallback, character)
            level = [child for node in level for child in node.follow.values()]

    def _longest_suffix(self, node: Node | None, character: str) -> Node:
        while node is not None:
            if character in node.follow:
                return node.follow[character]
            node = node.fallback
        return self.root

    def cut_off(self, text: str) -> str:
        """A text that the token limit has cut, without the beginning of a marker at its end.

        One character alone says nothing, nor does the beginning of a word: both stay.
        """
        begun = (
            marker[:length] for marker in self.texts for length in range(2, len(marker)) if not marker[0].isalpha()
        )
        longest = max((len(beginning) for beginning in begun if text.endswith(beginning)), default=0)
        return text[: len(text) - longest]

    def step(self, node: Node, character: str) -> Node:
        """The state after one more character."""
        return node.follow.get(character) or self._longest_suffix(node.fallback, character)
