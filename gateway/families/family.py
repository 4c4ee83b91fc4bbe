"""The protocol of a model family: its part before generation (guide, special tokens, stops) and after it (parsing)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.families.parser_events import Event
from gateway.families.tool_plan import ToolPlan
from gateway.generation import Guide


@dataclass(frozen=True, slots=True)
class Preparation:
    """The family's part in a request to the engine.

    Attributes:
        guide: constraint on the answer; None leaves it free.
        special: texts of special tokens that the parser must see; all others stay hidden. A text that is no special
            token of the tokenizer is there as text anyway.
        stop: texts of special tokens that end the turn besides the model's end ids.
        guided: whether the guide guarantees every call; parsers are eager then.
    """

    guide: Guide | None = None
    special: frozenset[str] = frozenset()
    stop: tuple[str, ...] = ()
    guided: bool = False


@dataclass(frozen=True, slots=True)
class ThoughtEnd:
    """The way to end a model's reasoning early.

    Attributes:
        text: that ends it, with what the model writes before an answer.
        guide: of the answer behind it; None leaves it free.
    """

    text: str
    guide: Guide | None = None


class Parser(Protocol):
    """Turns the text of one answer into events, as it arrives. No event is ever taken back."""

    @property
    def examined(self) -> int:
        """Characters looked at so far, each time that one was; the measure of linearity."""
        ...

    def feed(self, text: str) -> list[Event]:
        """Take more of the answer; returns the events that are certain now."""
        ...

    def finish(self, *, cut: bool) -> list[Event]:
        """End the answer; returns the events that were still held back. ``cut``: whether the token limit ended it."""
        ...


class Family(Protocol):
    """A model family: how its models write tool calls and reasoning. One instance serves all requests."""

    @property
    def name(self) -> str:
        """For settings and logs."""
        ...

    @property
    def reasons(self) -> bool:
        """Whether its models write reasoning apart from the answer."""
        ...

    def prepare(self, plan: ToolPlan, prompt: str = "") -> Preparation:
        """Prepare the generation of an answer.

        Args:
            plan: of the answer.
            prompt: the rendered prompt, whose end tells whether a think tag is already open.
        """
        ...

    def parser(self, plan: ToolPlan, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """Make a parser for one answer.

        Args:
            plan: of the answer.
            preparation: from ``prepare`` with this plan.
            prompt: as of ``prepare``.
            eager: whether an unguided call is reported while it forms, instead of once it is complete and valid.
                Guided calls always are.
        """
        ...
