"""Translates tools of a Messages request to functions of a chat request, and calls to the client's form.

Names of functions and ids of calls can be mapped back: model and client each see names and ids that they can take.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, ValidationError

from gateway.api.openai.translation import function_name, no_such_tool, not_run, placed
from gateway.api.openai.validation import RequestPart, error_of, pruned
from gateway.text.bad_request import BadRequestError

_ID_PREFIX = "toolu_"
_ENCODED_ID = "toolu_b64-"
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")
_SHORT_ID = re.compile(r"toolu_([A-Za-z0-9]{9})")
_NEW_ID = "call_"  # how ids begin that the gateway gives


class ClientTool(RequestPart):
    """A tool that the client runs."""

    type: Literal["custom"] = "custom"
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool = False


class ToolChoice(RequestPart):
    """Whether calls are forbidden, possible or demanded."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


@dataclass(slots=True)
class MessagesTools:
    """The tools of one Messages request, as functions of a chat request.

    Attributes:
        functions: the tools of the chat request.
        paths: the path of each tool in the client's request.
        parts: paths within a tool of the chat request, with the client's path where it differs.
        left_out: types of tools that no client runs, and fields that are not read.
    """

    functions: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    _hosted: dict[str, str] = field(default_factory=dict)  # type by name
    _names: dict[str, str] = field(default_factory=dict)  # the client's name by that of the function

    def add(self, tools: Sequence[dict[str, Any]]) -> None:
        """Add the tools of the request.

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

    def choice(self, fields: dict[str, Any] | None) -> dict[str, Any]:
        """Make the fields of the chat request that say which tools may or must be called.

        Args:
            fields: ``tool_choice`` of the client's request.

        Raises:
            BadRequestError: when the choice demands a tool that is not there, or cannot be called here.
        """
        choice = ToolChoice(type="auto") if fields is None else _validated(ToolChoice, pruned(fields), "tool_choice")
        self.left_out += [f"tool_choice.{key}" for key in choice.model_extra or ()]
        if choice.type == "tool":
            chosen: Any = {"type": "function", "function": {"name": self._named(choice.name)}}
        elif choice.type == "any" and not self.functions:
            if self._hosted:
                raise not_run(next(iter(self._hosted.values())))
            message = "'tool_choice' requires a tool call, but the request has no tools."
            raise BadRequestError(message, "tool_choice", "invalid_value")
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
            raise not_run(self._hosted[name])
        raise no_such_tool(name, "tool_choice.name")


def _validated(kind: type[Any], fields: dict[str, Any], path: str) -> Any:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise placed(error_of(error), path) from None


def client_call_id(call_id: str) -> str:
    """Make a call's id in the client's form: letters, digits, ``_`` and ``-``."""
    if _PLAIN_ID.fullmatch(call_id):
        return _ID_PREFIX + call_id.removeprefix(_NEW_ID)
    return _ENCODED_ID + base64.urlsafe_b64encode(call_id.encode()).decode().rstrip("=")


def own_call_id(tool_use_id: str) -> str:
    """Return the model's own id of a call from its id in the client's form, and any other id unchanged."""
    if short := _SHORT_ID.fullmatch(tool_use_id):
        return short[1]
    if not tool_use_id.startswith(_ENCODED_ID):
        return tool_use_id
    text = tool_use_id.removeprefix(_ENCODED_ID)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode() or tool_use_id
    except (binascii.Error, ValueError):
        return tool_use_id
