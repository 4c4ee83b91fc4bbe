"""Markers of a format, and the think tags among them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property

_TAIL = 64  # characters of whitespace at the prompt's end at most


class Markers:
    """Finds a set of markers in a text that arrives in pieces.

    No marker may contain another one: the two could not be distinguished.
    """

    def __init__(self, *texts: str) -> None:
        """Prepare to find the markers; ``ValueError`` where one is empty, or holds another."""
        self.texts = tuple(dict.fromkeys(texts))
        if not all(texts):
            raise ValueError("A marker must not be empty.")
        if any(one in other for one in self.texts for other in self.texts if one is not other):
            raise ValueError("A marker must not contain another marker.")
        first = "[" + "".join(re.escape(text[0]) for text in texts) + "]" if texts else r"(?!)"
        self.first = re.compile(first)  # finds a character that begins a marker
        self.first_or_space = re.compile(rf"{first}|[ \t\r\n]\Z")  # and whitespace at the end of a text
        self._longest = max(map(len, texts), default=0)
        self._beginnings = frozenset(text[:length] for text in texts for length in range(1, len(text)))

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.texts)) or r"(?!)")

    def also(self, *texts: str) -> Markers:
        """Add markers to a copy of the set."""
        return markers_of(*self.texts, *texts)

    def find(self, text: str, at: int) -> tuple[int, str]:
        """Find the first marker from ``at`` on; an empty one where the rest of the text may become a marker."""
        begins = self.first.search(text, at)
        if begins is None:
            return len(text), ""
        hit = self._any.search(text, begins.start())
        return (hit.start(), hit[0]) if hit else (self.begun(text, at), "")

    def begun(self, text: str, at: int = 0) -> int:
        """The place from ``at`` on where an unfinished marker begins; the end of the text without one."""
        begins = self.first.search(text, max(at, len(text) - self._longest))
        while begins is not None and text[begins.start() :] not in self._beginnings:
            begins = self.first.search(text, begins.end())
        return len(text) if begins is None else begins.start()

    def cut_off(self, text: str) -> str:
        """Remove an incomplete marker from the end of a text that the token limit has cut.

        A single character, or a letter and what follows it, stays, because it may as well be text.
        """
        begun = self.begun(text)
        return text if len(text) - begun < 2 or text[begun].isalpha() else text[:begun]

    def removed(self, text: str) -> str:
        """Remove the markers from a text."""
        return self._any.sub("", text)


@cache
def markers_of(*texts: str) -> Markers:
    """Make a set of markers, once for each format."""
    return Markers(*texts)


@dataclass(frozen=True)
class ThinkTags:
    """The tags around the reasoning of a family's models.

    A missing closing tag leaves everything reasoning, up to a marker that can only come after it.

    Attributes:
        open: tag before the reasoning.
        close: tag after it.
        between: text that the model writes between the closing tag and the answer; a guide keeps to it.
        final: text that begins an answer without calls; a guide keeps to it, too.
        instead: markers that end the reasoning where the model forgot to close it.
        until_calls: whether markers that begin calls end the reasoning, in addition to ``instead``.
        label: text that the model writes behind the opening tag and that is not reasoning.
        anywhere: whether reasoning may begin again behind text or a call.
        phrases: ordinary texts that begin reasoning in place of the tag, and those that end it then.
        answer: texts that the model may write, one after the other, between the reasoning and the answer.
        answer_end: text that the model may write behind an answer with reasoning.
    """

    open: str = "<think>"
    close: str = "</think>"
    between: str = ""
    final: str = ""
    instead: tuple[str, ...] = ()
    until_calls: bool = True
    label: str = ""
    anywhere: bool = False
    phrases: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    answer: tuple[str, ...] = ()
    answer_end: str = ""

    @cached_property
    def markers(self) -> Markers:
        """The opening and the closing tag."""
        return Markers(self.open, self.close)

    def opened_by(self, prompt: str) -> bool:
        """Tell whether the prompt ends inside the reasoning: with the opening tag, perhaps a label, and whitespace."""
        labelled = self.open + self.label
        return prompt[-len(labelled) - _TAIL :].rstrip().endswith((self.open, labelled.rstrip()))

    def closed_by(self, prompt: str) -> bool:
        """Tell whether the prompt ends behind the reasoning: with a closing tag, perhaps with the text between."""
        _, opened, rest = prompt.rstrip().rpartition(self.open)
        behind = (self.close + self.between).rstrip()  # without a thought just before, where gpt-oss ends any message
        return rest.endswith(self.close) or (bool(opened) and rest.count(self.close) == 1 and rest.endswith(behind))
