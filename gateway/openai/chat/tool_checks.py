"""Checks of tools, their choice, and the turns of a conversation; each mistake has its path in the request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gateway.bad_request import BadRequestError
from gateway.openai.chat.messages import (
    AssistantMessage,
    FunctionMessage,
    Message,
    ToolMessage,
    UserMessage,
    for_template,
)
from gateway.openai.chat.tools import AllowedChoice, NamedChoice, NamedFunction, Offered
from gateway.openai.schemas import check_schema
from gateway.openai.schemas.walk import types_of

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


def check_history(messages: Sequence[Message]) -> None:
    """Refuse empty turns, turns with two reasonings, calls whose arguments are no object, and results of no call."""
    calls: set[str] = set()
    functions: set[str] = set()
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if isinstance(message, AssistantMessage):
            if _says_nothing(message):
                text = "A message of the assistant needs 'content', unless it has 'tool_calls' or 'function_call'."
                raise BadRequestError(text, f"{path}.content", _INVALID)
            if message.reasoning and message.reasoning_content not in (None, "", message.reasoning):
                text = "'reasoning' and 'reasoning_content' mean the same text but differ; send one of them."
                raise BadRequestError(text, f"{path}.reasoning", _INVALID)
            for place, call in enumerate(message.tool_calls or ()):
                calls.add(call.id)
                _arguments(call.function.arguments, f"{path}.tool_calls[{place}].function.arguments")
            if message.function_call is not None:
                functions.add(message.function_call.name)
                _arguments(message.function_call.arguments, f"{path}.function_call.arguments")
        elif isinstance(message, ToolMessage) and message.tool_call_id not in calls:
            text = "'tool_call_id' must be the id of a tool call in an earlier assistant message."
            raise BadRequestError(text, f"{path}.tool_call_id", _INVALID)
        elif isinstance(message, FunctionMessage) and message.name not in functions:
            text = "A function message must answer a 'function_call' of that name in an earlier assistant message."
            raise BadRequestError(text, f"{path}.name", _INVALID)


def check_continuation(message: Message) -> None:
    """Refuse to continue a last message that cannot be continued.

    The prompt is cut behind the message's text: calls that follow it there, and messages that a template moves to the
    front, would take what comes after them along.
    """
    calls = isinstance(message, AssistantMessage) and (message.tool_calls or message.function_call)
    if calls or not isinstance(message, AssistantMessage | UserMessage):
        text = "'continue_final_message' needs a last message of the user or the assistant, without calls."
        raise BadRequestError(text, "continue_final_message", _INVALID)
    if not for_template(message)["content"]:
        raise BadRequestError("'continue_final_message' needs a last message with text.", "messages", _INVALID)


def _says_nothing(message: AssistantMessage) -> bool:
    said = message.refusal or message.reasoning_content or message.reasoning
    calls = message.tool_calls or message.function_call
    return message.content in (None, []) and not said and not calls


def _arguments(text: str, path: str) -> None:
    if not text.strip():
        return  # some models write nothing where there are no arguments
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadRequestError("The arguments of a call must be JSON.", path, _INVALID) from None
    if not isinstance(value, dict):
        raise BadRequestError("The arguments of a call must be a JSON object.", path, _INVALID)


def _no_constant(name: str) -> None:
    raise ValueError(name)
