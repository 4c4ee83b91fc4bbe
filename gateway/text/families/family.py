"""The protocol of a model family: guide, special tokens and stops before generation, the parser after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from gateway.text.guides.guide import Guide


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Attributes:
        name: of the function.
        description: its purpose, for the model.
        parameters: JSON schema of its arguments; None: it takes none.
        strict: whether its arguments must follow the schema exactly.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """The tools and the structure of one answer.

    Attributes:
        tools: those that may be called; ``tool_choice`` and ``allowed_tools`` are already applied.
        choice: whether calls are forbidden, possible or demanded. A named function is ``required`` with one tool.
        parallel: whether more than one call may be made (``parallel_tool_calls``).
        single: whether the answer is one call and ends with it, as for a named function; then ``parallel`` is off.
        response: structure of the content (``response_format``); None: free text.
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
        """Whether the answer may have calls: there are tools, and ``choice`` is not ``none``."""
        return self.choice != "none" and bool(self.tools)

    def parameters(self, name: str) -> Mapping[str, Any] | None:
        """The JSON schema of a tool's arguments; None for a tool without arguments.

        Raises:
            KeyError: no tool has this name.
        """
        return {tool.name: tool.parameters for tool in self.tools}[name]


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user: never empty, without the family's markers."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the model's reasoning: never empty, without the family's markers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins."""

    index: int  # of the call in this answer, from 0, without gaps
    name: str  # of the tool; one of those that may be called
    id: str | None = None  # the model's own where its format has one


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments; the texts of one index concatenated are the JSON text of one object."""

    index: int  # of the call
    text: str  # never empty


Event: TypeAlias = Content | Reasoning | CallStart | CallArguments


@dataclass(frozen=True, slots=True)
class Preparation:
    """A family's additions to a request to the engine.

    Attributes:
        guide: constraint on the answer; None leaves it free.
        special: texts of special tokens that the parser must see; all others stay hidden. A text that is not a
            special token of the tokenizer is visible as ordinary text anyway.
        stop: texts of special tokens that end the turn, in addition to the model's end ids.
        guided: whether the guide guarantees every call; parsers are eager then.
    """

    guide: Guide | None = None
    special: frozenset[str] = frozenset()
    stop: tuple[str, ...] = ()
    guided: bool = False


@dataclass(frozen=True, slots=True)
class ReasoningEnd:
    """A way to end a model's reasoning early."""

    text: str  # that ends it, with what the model writes before an answer
    guide: Guide | None = None  # of the answer behind it; None leaves it free


class Parser(Protocol):
    """Converts the text of one answer to events as it arrives; no event is ever taken back."""

    def feed(self, text: str) -> list[Event]:
        """Add text of the answer; returns the events that are certain now."""
        ...

    def finish(self, *, cut: bool) -> list[Event]:
        """End the answer; returns the held-back events. ``cut``: whether the token limit ended it."""
        ...


class Family(Protocol):
    """A model family: how its models write tool calls and reasoning.

    One instance serves all requests.
    """

    @property
    def name(self) -> str:
        """The name for settings and logs."""
        ...

    @property
    def reasons(self) -> bool:
        """Whether the family's models write reasoning separately from the answer."""
        ...

    def prepare(self, plan: ToolPlan, prompt: str = "") -> Preparation:
        """Prepare the generation of an answer.

        Args:
            plan: the tool plan of the answer.
            prompt: the rendered prompt, whose end tells whether a think tag is already open.
        """
        ...

    def parser(self, plan: ToolPlan, preparation: Preparation, prompt: str, *, eager: bool = False) -> Parser:
        """Make a parser for one answer.

        Args:
            plan: the tool plan of the answer.
            preparation: from ``prepare`` with this plan.
            prompt: as of ``prepare``.
            eager: whether an unguided call is reported before it is complete and valid.
                Guided calls always are.
        """
        ...
