"""Tools of a request: their schema, the choice among them, and both in neutral terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gateway.bad_request import BadRequestError
from gateway.openai.branches import BRANCH
from gateway.openai.schemas import check_schema
from gateway.openai.schemas.keywords import types_of

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


def tools_for_template(functions: Sequence[FunctionDefinition]) -> list[dict[str, Any]]:
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


_INVALID = "invalid_value"


def check_parameters_of(offered: Offered) -> None:
    """Refuse schemas of arguments that are no schemas of objects.

    Raises:
        BadRequestError: with the path of the fault.
    """
    for function, path in zip(offered.functions, offered.paths, strict=True):
        if not function.parameters:
            continue
        check_schema(function.parameters, f"{path}.parameters")
        if types_of(function.parameters) not in {(), ("object",)}:
            raise BadRequestError(
                f"Invalid schema for function {function.name!r}: its type must be 'object'.",
                param=f"{path}.parameters.type",
                code="invalid_function_parameters",
            )


def check_tools(offered: Offered, choice: object) -> None:
    """Refuse names that are given twice, and choices of tools that are not there.

    Args:
        offered: the tools of the request.
        choice: ``tool_choice`` or ``function_call`` as given.
    """
    seen: dict[str, str] = {}
    for function, path in zip(offered.functions, offered.paths, strict=True):
        if function.name in seen:
            raise BadRequestError(f"The function {function.name!r} is given twice.", f"{path}.name", _INVALID)
        seen[function.name] = path
    field = "function_call" if isinstance(choice, NamedFunction) or offered.old else "tool_choice"
    if not offered.functions:
        if choice not in (None, "none", "auto"):
            raise BadRequestError(f"'{field}' is only allowed when there are tools.", field, _INVALID)
        return
    for name, path in _chosen(choice):
        if name not in seen:
            shown = name[:64].encode("ascii", "backslashreplace").decode()
            raise BadRequestError(f"There is no tool {shown!r} among those given.", path, _INVALID)


def _chosen(choice: object) -> Iterator[tuple[str, str]]:
    if isinstance(choice, NamedChoice):
        yield choice.function.name, "tool_choice.function.name"
    elif isinstance(choice, NamedFunction):
        yield choice.name, "function_call.name"
    elif isinstance(choice, AllowedChoice):
        for index, tool in enumerate(choice.allowed_tools.tools):
            yield tool.function.name, f"tool_choice.allowed_tools.tools[{index}].function.name"
