"""The tools of a chat request: their schema, the choice among them, and their neutral form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, PrivateAttr, Tag

from gateway.api.openai.custom_tools import described, input_schema, is_pattern
from gateway.api.openai.validation import BRANCH, FUNCTION_OR_CUSTOM, RequestPart, branch_by
from gateway.http.access.caller import caller
from gateway.text.bad_request import BadRequestError, printable
from gateway.text.guides import check_schema, readable_part
from gateway.text.guides.keywords import types_of

_Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
MOST_TOOLS = 128


class FunctionDefinition(RequestPart):
    """A function that the model may call."""

    name: _Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool = False

    _readable: dict[str, Any] | None = PrivateAttr(default=None)

    @property
    def readable(self) -> dict[str, Any] | None:
        """The parameters for guides and parsers of calls; only the well-formed part of ill-formed ones."""
        return self.parameters if self._readable is None else self._readable

    def leave_unguided(self, error: BadRequestError) -> None:
        """Reduce ill-formed parameters to their readable part.

        The prompt then has no ``properties`` or ``required`` over which a template cannot iterate. Well-formed but
        unsupported parameters raise their error.
        """
        given, kinds = self.parameters or {}, {"properties": dict, "required": list}
        self._readable = readable_part(given, error)
        self.parameters = {key: part for key, part in given.items() if isinstance(part, kinds.get(key, object))}


class FunctionTool(RequestPart):
    """A tool that is a function."""

    type: Literal["function"]
    function: FunctionDefinition


class CustomGrammar(RequestPart):
    """A grammar: regular expressions are enforced where the engine can; others are only shown to the model."""

    syntax: Literal["lark", "regex"]
    definition: str


class PlainTextFormat(RequestPart):
    """Any text."""

    type: Literal["text"]


class GrammarFormat(RequestPart):
    """Text that follows a grammar."""

    type: Literal["grammar"]
    grammar: CustomGrammar


_Format = Annotated[
    Annotated[PlainTextFormat, Tag(BRANCH + "text")] | Annotated[GrammarFormat, Tag(BRANCH + "grammar")],
    Discriminator(
        branch_by("type"), custom_error_type="format", custom_error_message="the type must be 'text' or 'grammar'"
    ),
]


class CustomDefinition(RequestPart):
    """A tool whose input is text."""

    name: _Name
    description: str | None = None
    format: _Format | None = None


class CustomTool(RequestPart):
    """A tool that takes text instead of arguments."""

    type: Literal["custom"]
    custom: CustomDefinition


class ChosenTool(RequestPart):
    """The tool in a ``tool_choice``."""

    name: str


class NamedChoice(RequestPart):
    """The choice of one function."""

    type: Literal["function"]
    function: ChosenTool

    @property
    def chosen(self) -> tuple[str, str, str]:
        """The kind and the name of the chosen tool, and the path to that name."""
        return "function", self.function.name, "function.name"


class NamedCustomChoice(RequestPart):
    """The choice of one custom tool."""

    type: Literal["custom"]
    custom: ChosenTool

    @property
    def chosen(self) -> tuple[str, str, str]:
        """The kind and the name of the chosen tool, and the path to that name."""
        return "custom", self.custom.name, "custom.name"


Tool = Annotated[
    Annotated[FunctionTool, Tag(BRANCH + "function")] | Annotated[CustomTool, Tag(BRANCH + "custom")],
    FUNCTION_OR_CUSTOM,
]
_Allowed = Annotated[
    Annotated[NamedChoice, Tag(BRANCH + "function")] | Annotated[NamedCustomChoice, Tag(BRANCH + "custom")],
    FUNCTION_OR_CUSTOM,
]


class AllowedTools(RequestPart):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[_Allowed] = Field(min_length=1)

    @property
    def chosen(self) -> list[tuple[str, str, str]]:
        """The kind and the name of each allowed tool, and the path to that name."""
        found = [tool.chosen for tool in self.tools]
        return [(kind, name, f"tools[{index}].{path}") for index, (kind, name, path) in enumerate(found)]


class AllowedChoice(RequestPart):
    """A ``tool_choice`` that restricts the model to some of the tools."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class NamedFunction(RequestPart):
    """The choice of one function in the old form."""

    name: str


def _kind(value: Any) -> str | None:
    if isinstance(value, str):
        return BRANCH + "text"
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    if kind in ("allowed_tools", "custom"):
        return f"{BRANCH}{kind}"
    return BRANCH + "named" if isinstance(value, dict | BaseModel) else None


_MESSAGE = "must be a string or an object"
ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(BRANCH + "text")]
    | Annotated[NamedChoice, Tag(BRANCH + "named")]
    | Annotated[NamedCustomChoice, Tag(BRANCH + "custom")]
    | Annotated[AllowedChoice, Tag(BRANCH + "allowed_tools")],
    Discriminator(_kind, custom_error_type="choice", custom_error_message=_MESSAGE),
]
FunctionCallChoice = Annotated[
    Annotated[Literal["none", "auto"], Tag(BRANCH + "text")] | Annotated[NamedFunction, Tag(BRANCH + "named")],
    Discriminator(_kind, custom_error_type="choice", custom_error_message=_MESSAGE),
]


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a request and the choice among them, from the new or the old form.

    Attributes:
        functions: all of them, custom tools as functions.
        paths: where each stands in the request.
        choice: whether calls are forbidden, possible or demanded.
        allowed: names of those that may be called; None: all of them.
        named: whether one function was chosen by its name.
        choice_path: where the choice stands in the request.
        old: whether they came as ``functions``.
        custom: names of those that are custom tools.
        patterns: by place, paths of formats that are regular expressions which a guide may have.
        shown: paths of formats that the model is only shown.
    """

    functions: Sequence[FunctionDefinition] = ()
    paths: Sequence[str] = ()
    choice: Literal["none", "auto", "required"] = "none"
    allowed: frozenset[str] | None = None
    named: bool = False
    choice_path: str = "tool_choice"
    old: bool = False
    custom: frozenset[str] = frozenset()
    patterns: Mapping[int, str] = field(default_factory=dict)
    shown: Sequence[str] = ()

    @property
    def callable(self) -> list[tuple[FunctionDefinition, str]]:
        """The tools that may be called, each with its path."""
        if self.choice == "none":
            return []
        pairs = zip(self.functions, self.paths, strict=True)
        return [(each, path) for each, path in pairs if self.allowed is None or each.name in self.allowed]


NO_TOOLS = OfferedTools()


def offered(
    tools: Sequence[FunctionTool | CustomTool],
    choice: Literal["none", "auto", "required"] | NamedChoice | NamedCustomChoice | AllowedChoice | None,
    functions: Sequence[FunctionDefinition],
    call: Literal["none", "auto"] | NamedFunction | None,
) -> OfferedTools:
    """Read the tools of a request: ``tools`` with ``tool_choice``, or ``functions`` with ``function_call``."""
    if not (tools or functions or isinstance(choice, BaseModel)):
        return NO_TOOLS
    if functions:
        paths = [f"functions[{index}]" for index in range(len(functions))]
        if isinstance(call, NamedFunction):
            return OfferedTools(functions, paths, "required", frozenset({call.name}), True, "function_call.name", True)
        return OfferedTools(functions, paths, call or "auto", choice_path="function_call", old=True)
    found = _functions(tools)
    if isinstance(choice, NamedChoice | NamedCustomChoice):
        _, name, path = choice.chosen
        return dataclasses.replace(
            found, choice="required", allowed=frozenset({name}), named=True, choice_path=f"tool_choice.{path}"
        )
    if isinstance(choice, AllowedChoice):
        allowed = choice.allowed_tools
        names = frozenset(name for _, name, _ in allowed.chosen)
        return dataclasses.replace(found, choice=allowed.mode, allowed=names, choice_path="tool_choice.allowed_tools")
    return dataclasses.replace(found, choice=(choice or "auto") if found.functions else "none")


def _functions(tools: Sequence[FunctionTool | CustomTool]) -> OfferedTools:
    """The tools as functions, without a choice."""
    functions: list[FunctionDefinition] = []
    paths: list[str] = []
    custom: set[str] = set()
    patterns: dict[int, str] = {}
    shown: list[str] = []
    for index, tool in enumerate(tools):
        if isinstance(tool, CustomTool):
            path = f"tools[{index}].custom"
            function, pattern = _function(tool.custom)
            custom.add(function.name)
            if pattern:
                patterns[len(functions)] = f"{path}.format"
            elif isinstance(tool.custom.format, GrammarFormat):
                shown.append(f"{path}.format")
        else:
            path, function = f"tools[{index}].function", tool.function
        functions.append(function)
        paths.append(path)
    return OfferedTools(functions, paths, custom=frozenset(custom), patterns=patterns, shown=shown)


def _function(tool: CustomDefinition) -> tuple[FunctionDefinition, bool]:
    """The function of a custom tool, and whether a guide may have the format of its input."""
    if not isinstance(tool.format, GrammarFormat):
        return FunctionDefinition(name=tool.name, description=tool.description, parameters=input_schema()), False
    grammar = tool.format.grammar
    description = described(tool.description, grammar.syntax, grammar.definition)
    regular = grammar.syntax == "regex" and is_pattern(grammar.definition)
    schema = input_schema(grammar.definition if regular else None)
    return FunctionDefinition(name=tool.name, description=description, parameters=schema), regular


def tools_for_template(functions: Sequence[FunctionDefinition]) -> list[dict[str, Any]]:
    """Convert tools for chat templates: always with parameters, without fields that only decoding needs."""
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


def check_parameters_of(offered: OfferedTools) -> None:
    """Reject schemas of arguments that are not schemas of objects.

    An ill-formed schema of a tool that is not strict, and that the model may choose, is left unguided.

    Raises:
        BadRequestError: with the path of the fault.
    """
    for function, path in zip(offered.functions, offered.paths, strict=True):
        if not function.parameters:
            continue
        try:
            check_schema(function.parameters, f"{path}.parameters", caller().id)
        except BadRequestError as error:
            if function.strict or offered.choice == "required":
                raise
            function.leave_unguided(error)
            continue
        if types_of(function.parameters) not in {(), ("object",)}:
            raise BadRequestError(
                f"Invalid schema for function {function.name!r}: its type must be 'object'.",
                param=f"{path}.parameters.type",
                code="invalid_function_parameters",
            )


def check_tools(offered: OfferedTools, choice: object) -> None:
    """Reject names that are given twice, and choices of tools that are not given.

    Args:
        offered: the tools of the request.
        choice: ``tool_choice`` or ``function_call`` as given.
    """
    seen: dict[str, str] = {}
    for function, path in zip(offered.functions, offered.paths, strict=True):
        if function.name in seen:
            raise BadRequestError(
                f"The tool name {function.name!r} is used twice; each tool must have a different name.",
                f"{path}.name",
                _INVALID,
            )
        seen[function.name] = path
    field = "function_call" if isinstance(choice, NamedFunction) or offered.old else "tool_choice"
    if not offered.functions:
        if choice not in (None, "none", "auto"):
            raise BadRequestError(f"'{field}' is only allowed when tools are given.", field, _INVALID)
        return
    for kind, name, path in _chosen(choice):
        if name not in seen or (kind == "custom") != (name in offered.custom):
            what = "custom tool" if kind == "custom" else "function" if name in seen else "tool"
            raise BadRequestError(f"The request has no {what} named {printable(name)!r}.", path, _INVALID)


def _chosen(choice: object) -> Iterator[tuple[str, str, str]]:
    """Of each tool that a choice names: its kind, its name, and the path of that."""
    if isinstance(choice, NamedChoice | NamedCustomChoice):
        kind, name, path = choice.chosen
        yield kind, name, f"tool_choice.{path}"
    elif isinstance(choice, NamedFunction):
        yield "function", choice.name, "function_call.name"
    elif isinstance(choice, AllowedChoice):
        for kind, name, path in choice.allowed_tools.chosen:
            yield kind, name, f"tool_choice.allowed_tools.{path}"
