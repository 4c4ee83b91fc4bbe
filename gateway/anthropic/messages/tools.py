"""Tools of a Messages request as functions of a chat request, and the way back from a called function's name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.bad_request import BadRequestError
from gateway.openai.validation import error_of, pruned

_LONGEST = 64
_INVALID = "invalid_value"


class ClientTool(BaseModel):
    """A tool that the client runs."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["custom"] = "custom"
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool = False


class ToolChoice(BaseModel):
    """Whether calls are forbidden, possible or demanded."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


@dataclass(slots=True)
class Toolbox:
    """The tools of one request.

    Attributes:
        functions: the tools of the chat request.
        paths: where each of them stands in the client's request.
        parts: paths within the chat request's tools that differ in the client's.
        left_out: types of tools that no client runs, and fields that are not read.
    """

    functions: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    _hosted: dict[str, str] = field(default_factory=dict)  # type by name
    _names: dict[str, str] = field(default_factory=dict)  # the client's name by that of the function

    def add(self, tools: Sequence[dict[str, Any]]) -> None:
        """Take the tools of the request.

        Raises:
            BadRequestError: with the path of the fault.
        """
        for index, given in enumerate(tools):
            kind = given.get("type")
            if kind in (None, "custom"):
                self._add(_validated(ClientTool, pruned(given), f"tools[{index}]"), f"tools[{index}]")
            else:
                shown = str(kind)[:64]
                self._hosted[str(given.get("name", shown))] = shown
                self.left_out.append(f"tools.{shown}")

    def choice(self, given: dict[str, Any] | None) -> dict[str, Any]:
        """The fields of the chat request that say which tools may or must be called.

        Args:
            given: ``tool_choice`` of the client's request.

        Raises:
            BadRequestError: when the choice demands a tool that is not there, or cannot be called here.
        """
        choice = ToolChoice(type="auto") if given is None else _validated(ToolChoice, pruned(given), "tool_choice")
        self.left_out += [f"tool_choice.{key}" for key in choice.model_extra or ()]
        if choice.type == "tool":
            chosen: Any = {"type": "function", "function": {"name": self._named(choice.name)}}
        elif choice.type == "any" and not self.functions:
            raise self._not_run(next(iter(self._hosted.values()), None))
        else:
            chosen = {"any": "required"}.get(choice.type, choice.type)
        if not self.functions:
            return {}
        return {
            "tools": self.functions,
            "tool_choice": chosen,
            "parallel_tool_calls": not choice.disable_parallel_tool_use,
        }

    def own_name(self, function: str) -> str:
        """The client's name of a called function."""
        return self._names.get(function, function)

    def _add(self, tool: ClientTool, path: str) -> None:
        here = f"tools[{len(self.functions)}].function"
        self.parts |= {here: path, f"{here}.parameters": f"{path}.input_schema"}
        name = function_name(tool.name)
        function: dict[str, Any] = {"name": name, "parameters": tool.input_schema, "strict": tool.strict}
        if tool.description is not None:
            function["description"] = tool.description
        self.functions.append({"type": "function", "function": function})
        self.paths.append(path)
        self._names.setdefault(name, tool.name)
        extra = tool.model_extra or {}
        self.left_out += [key if key == "cache_control" else f"tools.{key}" for key in extra]

    def _named(self, name: str | None) -> str:
        if name is None:
            message = "Missing required parameter: 'tool_choice.name'."
            raise BadRequestError(message, "tool_choice.name", "missing_required_parameter")
        function = function_name(name)
        if function in self._names:
            return function
        if name in self._hosted:
            raise self._not_run(self._hosted[name])
        shown = name[:64].encode("ascii", "backslashreplace").decode()
        raise BadRequestError(f"There is no tool {shown!r} among those given.", "tool_choice.name", _INVALID)

    def _not_run(self, kind: str | None) -> BadRequestError:
        if kind is None:
            return BadRequestError("'tool_choice' demands a call, but there are no tools.", "tool_choice", _INVALID)
        shown = kind.encode("ascii", "backslashreplace").decode()
        message = f"'tool_choice' demands a tool of the type {shown!r}, which this gateway does not run."
        return BadRequestError(message, "tool_choice", "unsupported_parameter")


def function_name(name: str) -> str:
    """The name of a function under which the model sees a tool, the same in every turn.

    A name that no function can have, because it is too long or has other characters, is cut and told from others by a
    digest.
    """
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if plain == name and len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST - len(digest) - 1]}_{digest}"


def _validated(kind: type[Any], given: dict[str, Any], path: str) -> Any:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        fault = error_of(error)
        inside = f".{fault.param}" if fault.param else ""
        fault.message = fault.message.replace(f"'{fault.param}'", f"'{path}{inside}'")
        fault.param = path + inside
        raise fault from None
