"""Messages of a conversation: the roles and content parts that are served."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gateway.openai.branches import BRANCH, text_or_list

# Escapes that may stand for a NUL or a lone surrogate, which must not come out of the text again.
_UNTEXT = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class TextPart(_Part):
    """A content part of text."""

    type: Literal["text"]
    text: str


class RefusalPart(_Part):
    """A content part with which an assistant refused."""

    type: Literal["refusal"]
    refusal: str


def _field(name: str) -> Any:
    """A discriminator that reads one key and marks its value as a branch."""

    def read(value: Any) -> str | None:
        found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return BRANCH + found if isinstance(found, str) else None

    return read


_PART_DISCRIMINATOR = Discriminator(
    _field("type"), custom_error_type="content_part", custom_error_message="This type of content part is not supported"
)
_CONTENT_DISCRIMINATOR = Discriminator(
    text_or_list, custom_error_type="content", custom_error_message="A string or an array of content parts is expected"
)
_Text = Annotated[TextPart, Tag(BRANCH + "text")]
_TextParts = Annotated[list[Annotated[_Text, _PART_DISCRIMINATOR]], Tag(BRANCH + "parts"), Field(min_length=1)]
_AnyParts = Annotated[
    list[Annotated[_Text | Annotated[RefusalPart, Tag(BRANCH + "refusal")], _PART_DISCRIMINATOR]],
    Tag(BRANCH + "parts"),
]
_String = Annotated[str, Tag(BRANCH + "text")]
TextContent = Annotated[_String | _TextParts, _CONTENT_DISCRIMINATOR]
AssistantContent = Annotated[_String | _AnyParts, _CONTENT_DISCRIMINATOR]


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    name: str | None = None


class SystemMessage(_Message):
    """Instructions that stand above the user's."""

    role: Literal["system"]
    content: TextContent


class DeveloperMessage(_Message):
    """The newer name of a system message; templates without such a role get a system message."""

    role: Literal["developer"]
    content: TextContent


class UserMessage(_Message):
    """What the user said."""

    role: Literal["user"]
    content: TextContent


class CalledFunction(BaseModel):
    """The function of an earlier tool call."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    arguments: str


class ToolCall(BaseModel):
    """A tool call that the assistant made earlier in the conversation."""

    model_config = ConfigDict(extra="allow", strict=True)

    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(_Message):
    """What the assistant said."""

    role: Literal["assistant"]
    content: AssistantContent | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None


class ToolMessage(_Message):
    """What a tool answered."""

    role: Literal["tool"]
    content: TextContent
    tool_call_id: str


Message = Annotated[
    Annotated[SystemMessage, Tag(BRANCH + "system")]
    | Annotated[DeveloperMessage, Tag(BRANCH + "developer")]
    | Annotated[UserMessage, Tag(BRANCH + "user")]
    | Annotated[AssistantMessage, Tag(BRANCH + "assistant")]
    | Annotated[ToolMessage, Tag(BRANCH + "tool")],
    Discriminator(
        _field("role"),
        custom_error_type="role",
        custom_error_message="The role must be one of 'system', 'developer', 'user', 'assistant' and 'tool'",
    ),
]


def for_template(message: Message) -> dict[str, Any]:
    """The message as chat templates read it: content as one string, arguments of tool calls as objects."""
    text = message.content
    if isinstance(text, list):
        text = "".join(part.text if isinstance(part, TextPart) else part.refusal for part in text)
    if text is None and isinstance(message, AssistantMessage):
        text = message.refusal
    result: dict[str, Any] = {"role": message.role, "content": text or ""}
    if message.name is not None:
        result["name"] = message.name
    if isinstance(message, ToolMessage):
        result["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage) and message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return result


def _arguments(text: str) -> Any:
    """Arguments as the object that they are; as text when they are none, since a model wrote them."""
    if _UNTEXT.search(text):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
