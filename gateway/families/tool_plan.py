"""The plan of one answer: the tools that it may call, and the form of its content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gateway.generation import Guide
from gateway.records import dataclass


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
    """The tools and the structure that a request wants in one answer.

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
        """Whether a call may be made."""
        return self.choice != "none" and bool(self.tools)

    def parameters(self, name: str) -> Mapping[str, Any] | None:
        """The parameters of one of its tools."""
        return {tool.name: tool.parameters for tool in self.tools}[name]
