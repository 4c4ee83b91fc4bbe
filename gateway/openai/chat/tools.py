"""Tools of a request: their schema, the choice among them, and both in neutral terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gateway.openai.branches import BRANCH

_Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
MOST_TOOLS = 128


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class FunctionDefinition(_Part):
    """A function that the model may call."""

    name: _Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False


class FunctionTool(_Part):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionDefinition


class ChosenFunction(_Part):
    """The name of a function."""

    name: str


class NamedChoice(_Part):
    """The choice of one function."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTool(_Part):
    """One of the tools that may be called."""

    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(_Part):
    """A part of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[AllowedTool] = Field(min_length=1, max_length=MOST_TOOLS)


class AllowedChoice(_Part):
    """The choice of a part of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class NamedFunction(_Part):
    """The choice of one function in the old form."""

    name: str


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return BRANCH + "text"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if kind == "allowed_tools":
        return BRANCH + "allowed"
    return BRANCH + "named" if isinstance(value, dict | BaseModel) else None


_MESSAGE = "A string or an object is expected"
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(BRANCH + "text")]
    | Annotated[NamedChoice, Tag(BRANCH + "named")]
    | Annotated[AllowedChoice, Tag(BRANCH + "allowed")],
    Discriminator(_kind, custom_error_type="choice", custom_error_message=_MESSAGE),
]
FunctionCallChoice = Annotated[
    Annotated[Literal["none", "auto"], Tag(BRANCH + "text")] | Annotated[NamedFunction, Tag(BRANCH + "named")],
    Discriminator(_kind, custom_error_type="choice", custom_error_message=_MESSAGE),
]


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools of a request and the choice among them, whichever form they came in.

    Attributes:
        functions: all of them.
        paths: where each stands in the request.
        choice: whether calls are forbidden, possible or demanded.
        allowed: names of those that may be called; None: all of them.
        named: whether one function was chosen by its name.
        choice_path: where the choice stands in the request.
        old: whether they came as ``functions``.
    """

    functions: Sequence[FunctionDefinition] = ()
    paths: Sequence[str] = ()
    choice: Literal["none", "auto", "required"] = "none"
    allowed: frozenset[str] | None = None
    named: bool = False
    choice_path: str = "tool_choice"
    old: bool = False

    @property
    def callable(self) -> list[tuple[FunctionDefinition, str]]:
        """Those that may be called, each with its path."""
        if self.choice == "none":
            return []
        pairs = zip(self.functions, self.paths, strict=True)
        return [(each, path) for each, path in pairs if self.allowed is None or each.name in self.allowed]


_NOTHING = Offered()


def offered(
    tools: Sequence[FunctionTool],
    choice: Literal["none", "auto", "required"] | NamedChoice | AllowedChoice | None,
    functions: Sequence[FunctionDefinition],
    call: Literal["none", "auto"] | NamedFunction | None,
) -> Offered:
    """The tools of a request: ``tools`` with ``tool_choice``, or ``functions`` with ``function_call``."""
    if not (tools or functions or isinstance(choice, BaseModel)):
        return _NOTHING
    if functions:
        paths = [f"functions[{index}]" for index in range(len(functions))]
        if isinstance(call, NamedFunction):
            return Offered(functions, paths, "required", frozenset({call.name}), True, "function_call.name", True)
        return Offered(functions, paths, call or "auto", choice_path="function_call", old=True)
    given = [tool.function for tool in tools]
    paths = [f"tools[{index}].function" for index in range(len(given))]
    if isinstance(choice, NamedChoice):
        return Offered(given, paths, "required", frozenset({choice.function.name}), True, "tool_choice.function.name")
    if isinstance(choice, AllowedChoice):
        names = frozenset(tool.function.name for tool in choice.allowed_tools.tools)
        return Offered(given, paths, choice.allowed_tools.mode, names, choice_path="tool_choice.allowed_tools")
    return Offered(given, paths, (choice or "auto") if given else "none")


def for_template(functions: Sequence[FunctionDefinition]) -> list[dict[str, Any]]:
    """Tools as chat templates read them: always with parameters, and without what only concerns decoding."""
    return [
        {
            "type": "function",
            "function": {
                "name": each.name,
                **({} if each.description is None else {"description": each.description}),
                "parameters": each.parameters or {"type": "object", "properties": {}},
            },
        }
        for each in functions
    ]
