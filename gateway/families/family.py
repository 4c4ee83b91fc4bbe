"""The protocol of a model family: its part before generation (guide, special tokens, stops) and after it (parsing)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from gateway.families.events import Event
from gateway.generation.sampling_params import Guide


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Attributes:
        name: of the function.
        description: what it does, for the model.
        parameters: JSON schema of its arguments; None: it takes none.
        strict: whether its arguments must follow the schema exactly.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What is wanted of one answer.

    Attributes:
        tools: those that may be called in this turn; named and allowed choices are already applied.
        choice: whether calls are forbidden, possible or demanded. A named choice is ``required`` with one tool.
        parallel: whether more than one call may be made.
        single: whether the answer is one call and ends with it, as where a function is chosen by its name; then
            ``parallel`` is off.
        response: structure wanted of the content; None: free text.
        guide_types: the kinds of guide that the engine takes; empty: no guided decoding.
    """

    tools: tuple[Tool, ...] = ()
    choice: Literal["none", "auto", "required"] = "none"
    parallel: bool = True
    single: bool = False
    response: Guide | None = None
    guide_types: frozenset[str] = frozenset()

    @property
    def calls(self) -> bool:
        """Whether a call may be made."""
        return self.choice != "none" and bool(self.tools)


@dataclass(frozen=True, slots=True)
class Preparation:
    """What generation must know of the family before it starts.

    Attributes:
        guide: what the engine holds the answer to; None leaves it free.
        special: texts of special tokens that the parser must see; all others stay hidden. A text that is no special
            token of the tokenizer is there as text anyway.
        stop: texts of special tokens that end the turn besides the model's end ids.
        guided: whether the guide guarantees every call; parsers are eager then.
    """

    guide: Guide | None = None
    special: frozenset[str] = frozenset()
    stop: tuple[str, ...] = ()
    guided: bool = False


class Parser(Protocol):
    """Turns the text of one answer into events, as it arrives. Nothing that it has said is ever taken back.

    Attributes:
        examined: characters looked at so far, each time that one was; the measure of linearity.
    """

    @property
    def examined(self) -> int:
        """Characters looked at so far."""
        ...

    def feed(self, text: str) -> list[Event]:
        """Take more of the answer; returns what is certain now."""
        ...

    def finish(self, *, cut: bool) -> list[Event]:
        """End the answer; returns what was still held back.

        Args:
            cut: whether the token limit ended it.
        """
        ...


class Family(Protocol):
    """A model family: how its models write tool calls and reasoning. One instance serves all requests.

    Attributes:
        name: for settings and logs.
        reasons: whether its models write reasoning apart from the answer.
    """

    @property
    def name(self) -> str:
        """For settings and logs."""
        ...

    @property
    def reasons(self) -> bool:
        """Whether its models write reasoning apart from the answer."""
        ...

    def prepare(self, turn: Turn, prompt: str = "") -> Preparation:
        """Say what generation must know.

        Args:
            turn: what is wanted.
            prompt: the rendered prompt, whose end tells whether a think tag is already open; a guide that begins
                after the reasoning needs it.
        """
        ...

    def parser(self, turn: Turn, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """Make a parser for one answer.

        Args:
            turn: what is wanted.
            preparation: what ``prepare`` said of this turn.
            prompt: the rendered prompt, whose end tells whether a think tag is already open.
            eager: whether an unguided call is reported while it forms, instead of once it is complete and valid.
                Guided calls always are.
        """
        ...
