"""Translates tools of a Responses request to functions of a chat request, and names of called functions back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, TypeAdapter, ValidationError

from gateway.api.openai.translation import digested_name, function_name, no_such_tool, not_run, placed
from gateway.api.openai.validation import BRANCH, RequestPart, error_of
from gateway.text.bad_request import BadRequestError

_KINDS = frozenset({"function", "custom", "namespace"})
_SYNTAXES = frozenset({"lark", "regex"})


class ResponsesFunctionTool(RequestPart):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomFormat(RequestPart):
    """The form of a custom tool's input: any text, or a grammar of the syntax ``lark`` or ``regex``."""

    type: str
    syntax: str | None = None
    definition: str | None = None


class ResponsesCustomTool(RequestPart):
    """A tool whose input is text."""

    type: Literal["custom"]
    name: str
    description: str | None = None
    format: CustomFormat | None = None


class NamespaceTool(RequestPart):
    """Functions and custom tools under one name."""

    type: Literal["namespace"]
    name: str = Field(min_length=1)
    description: str | None = None
    tools: list[Any]


class OtherTool(RequestPart):
    """A tool of another type: one that OpenAI's own servers run, or the client's own."""

    type: str


def _branch(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    known = isinstance(kind, str) and kind in _KINDS
    return BRANCH + (str(kind) if known else "other") if isinstance(value, dict | BaseModel) else None


Tool = Annotated[
    Annotated[ResponsesFunctionTool, Tag(BRANCH + "function")]
    | Annotated[ResponsesCustomTool, Tag(BRANCH + "custom")]
    | Annotated[NamespaceTool, Tag(BRANCH + "namespace")]
    | Annotated[OtherTool, Tag(BRANCH + "other")],
    Discriminator(_branch, custom_error_type="choice", custom_error_message="must be an object"),
]
_tool: TypeAdapter[ResponsesFunctionTool | ResponsesCustomTool | NamespaceTool | OtherTool] = TypeAdapter(Tool)


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """A tool as the client knows it.

    Attributes:
        name: of the tool.
        namespace: that it stands in, None outside of any.
        custom: whether it is a custom tool.
    """

    name: str
    namespace: str | None = None
    custom: bool = False


def joined_name(name: str, namespace: str | None) -> str:
    """Make the function name of a namespace's tool: the namespace's name before the tool's name."""
    return function_name(f"{namespace}__{name}") if namespace else name


@dataclass(slots=True)
class ResponsesTools:
    """The tools of one Responses request, as functions of a chat request.

    Attributes:
        functions: the tools of the chat request, custom ones among them.
        paths: where each of them stands in the client's request.
        origins: the client's tool by the name of its function.
        renamed: paths within the chat request's tools that differ in the client's.
        hosted: types of tools that are left out, because no client runs them.
        left_out: what else of the tools is not read.
    """

    functions: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    origins: dict[str, ToolOrigin] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    hosted: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _functions: dict[tuple[str, str | None], str] = field(default_factory=dict)  # by name and namespace

    def add(self, tools: Sequence[Any], path: str, *, once: bool = False) -> None:
        """Add tools of the client's request.

        Args:
            tools: as they came.
            path: of their array.
            once: whether a tool that is there already is passed over.

        Raises:
            BadRequestError: with the path of the fault.
        """
        for index, given in enumerate(tools):
            place = f"{path}[{index}]"
            tool = _validated(given, place)
            if isinstance(tool, NamespaceTool):
                self._add_namespace(tool, place, once=once)
            elif isinstance(tool, OtherTool):
                self.hosted.append(tool.type)
            else:
                self._add(tool, place, None, once=once)

    def function_of(self, name: str, namespace: str | None) -> str:
        """The function name of a tool, which need not be in this request."""
        return self._functions.get((name, namespace or None)) or joined_name(name, namespace)

    def origin_of(self, function: str) -> ToolOrigin:
        """The client's tool of a called function."""
        return self.origins.get(function, ToolOrigin(function))

    def _add_namespace(self, namespace: NamespaceTool, path: str, *, once: bool) -> None:
        about = namespace.description
        for index, given in enumerate(namespace.tools):
            place = f"{path}.tools[{index}]"
            tool = _validated(given, place)
            if not isinstance(tool, ResponsesFunctionTool | ResponsesCustomTool):
                self.hosted.append(tool.type)
                continue
            if about:  # functions have no field for a namespace: the first one's description has it
                tool.description = f"{about}\n\n{tool.description}" if tool.description else about
                about = None
            self._add(tool, place, namespace.name, once=once)

    def _add(
        self, tool: ResponsesFunctionTool | ResponsesCustomTool, path: str, namespace: str | None, *, once: bool
    ) -> None:
        origin = ToolOrigin(tool.name, namespace, isinstance(tool, ResponsesCustomTool))
        name = joined_name(tool.name, namespace)
        if once and self.origins.get(name) == origin:
            return
        if namespace and name in self.origins and self.origins[name] != origin:
            name = digested_name(name, f"{namespace}\0{tool.name}")
        kind = "custom" if origin.custom else "function"
        self.renamed[f"tools[{len(self.functions)}].{kind}"] = path
        if isinstance(tool, ResponsesCustomTool):
            given: dict[str, Any] = {"description": tool.description, "format": self._format(tool, path)}
        else:
            given = {"description": tool.description, "parameters": tool.parameters, "strict": tool.strict}
        function = {"name": name} | {key: value for key, value in given.items() if value is not None}
        extra = [key for key, value in (tool.model_extra or {}).items() if value is not None]
        self.left_out += [f"{path}.{key}" for key in extra]
        self.origins.setdefault(name, origin)
        self._functions.setdefault((tool.name, namespace or None), name)
        self.functions.append({"type": kind, kind: function})
        self.paths.append(path)

    def _format(self, tool: ResponsesCustomTool, path: str) -> dict[str, Any] | None:
        """Return the format of a custom tool for chat completions, or None for text and unknown types."""
        form = tool.format
        if form is None or form.type == "text":
            return None
        if form.type == "grammar" and form.syntax in _SYNTAXES and form.definition is not None:
            return {"type": "grammar", "grammar": {"syntax": form.syntax, "definition": form.definition}}
        self.left_out.append(f"{path}.format")
        return None


def _validated(given: Any, path: str) -> ResponsesFunctionTool | ResponsesCustomTool | NamespaceTool | OtherTool:
    try:
        return _tool.validate_python(given)
    except ValidationError as error:
        raise placed(error_of(error), path) from None


_MODES = ("none", "auto", "required")
_OWN = ("function", "custom")
_INVALID = "invalid_value"


def chosen(choice: Any, tools: ResponsesTools) -> dict[str, Any] | str | None:
    """Make the ``tool_choice`` of the chat request.

    Args:
        choice: of the client's request; None: absent.
        tools: of the request.

    Raises:
        BadRequestError: when the choice demands a tool that cannot be called here.
    """
    if choice is None or choice in _MODES:
        if choice == "required" and not tools.functions and tools.hosted:
            raise not_run(tools.hosted[0])
        return choice if tools.functions or choice == "required" else None
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if not isinstance(kind, str):
        message = "Invalid value for 'tool_choice': must be none, auto, required or an object with a type."
        raise BadRequestError(message, "tool_choice", _INVALID)
    if kind == "allowed_tools":
        return _allowed(choice, tools)
    if kind not in _OWN:
        raise not_run(kind)
    return _choice_of(_named(choice, tools, "tool_choice"), tools)


def _choice_of(function: str, tools: ResponsesTools) -> dict[str, Any]:
    kind = "custom" if tools.origins[function].custom else "function"
    return {"type": kind, kind: {"name": function}}


def _allowed(choice: Mapping[str, Any], tools: ResponsesTools) -> dict[str, Any] | str:
    given, mode = choice.get("tools"), choice.get("mode", "auto")
    if not isinstance(given, list) or not given or not all(isinstance(each, dict) for each in given):
        message = "Invalid value for 'tool_choice.tools': must be an array of tools."
        raise BadRequestError(message, "tool_choice.tools", _INVALID)
    if mode not in ("auto", "required"):
        message = "Invalid value for 'tool_choice.mode': must be auto or required."
        raise BadRequestError(message, "tool_choice.mode", _INVALID)
    names = list(_callable(given, tools))
    if not names and mode == "required":
        raise not_run(str(given[0].get("type")))
    if not names:
        return "none"
    allowed = [_choice_of(name, tools) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}


def _callable(given: Sequence[Mapping[str, Any]], tools: ResponsesTools) -> Iterator[str]:
    """The functions of those tools that are the client's own; a namespace stands for all that are in it."""
    for index, each in enumerate(given):
        if each.get("type") in _OWN:
            yield _named(each, tools, f"tool_choice.tools[{index}]")
        elif each.get("type") == "namespace":
            inside = {name for name, origin in tools.origins.items() if origin.namespace == each.get("name")}
            yield from sorted(inside)


def _named(choice: Mapping[str, Any], tools: ResponsesTools, path: str) -> str:
    name, namespace = choice.get("name"), choice.get("namespace")
    if not isinstance(name, str) or not isinstance(namespace, str | None):
        raise BadRequestError(
            f"Missing required parameter: '{path}.name'.", f"{path}.name", "missing_required_parameter"
        )
    function = tools.function_of(name, namespace)
    if function not in tools.origins:
        raise no_such_tool(name, f"{path}.name")
    return function
