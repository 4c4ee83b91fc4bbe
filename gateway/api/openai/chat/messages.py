"""The messages of a chat request: roles, content parts, and checks of the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from gateway.api.openai.custom_tools import arguments_of
from gateway.api.openai.request_json import MOST_CALLS, MOST_MESSAGES
from gateway.api.openai.validation import BRANCH, FUNCTION_OR_CUSTOM, RequestPart, branch_by, text_or_list
from gateway.text.bad_request import BadRequestError
from gateway.text.prompt.conversation import OpenCalls

_PLAIN = frozenset(("role", "content"))  # the only fields that most messages have
_IMAGES = frozenset({"computer_screenshot", "image", "image_url", "input_image"})


class TextPart(RequestPart):
    """A content part of text."""

    type: Literal["text"]
    text: str


class RefusalPart(RequestPart):
    """The content part of a refusal."""

    type: Literal["refusal"]
    refusal: str


def unread_text(kind: str) -> str:
    """Make the sentence that replaces a content part of a type that is not text."""
    what = "An image" if kind in _IMAGES else f"A part of the type {kind[:64]}"
    return f"[{what} was left out: this model reads text only.]"


class UnreadPart(RequestPart):
    """A content part of a tool's result that is not text; the model reads a sentence in its place."""

    type: str

    @property
    def text(self) -> str:
        """The sentence that the model reads."""
        return unread_text(self.type)


def _part_of_result(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return BRANCH + ("text" if kind == "text" else "unread") if isinstance(kind, str) else None


_PART_DISCRIMINATOR = Discriminator(
    branch_by("type"),
    custom_error_type="content_part",
    custom_error_message="This type of content part is not supported",
)
_CONTENT_DISCRIMINATOR = Discriminator(
    text_or_list, custom_error_type="content", custom_error_message="must be a string or an array of content parts"
)
_Text = Annotated[TextPart, Tag(BRANCH + "text")]
_TextParts = Annotated[
    list[Annotated[_Text, _PART_DISCRIMINATOR]], Tag(BRANCH + "parts"), Field(min_length=1, fail_fast=True)
]
_AnyParts = Annotated[
    list[Annotated[_Text | Annotated[RefusalPart, Tag(BRANCH + "refusal")], _PART_DISCRIMINATOR]],
    Tag(BRANCH + "parts"),
    Field(fail_fast=True),
]
_String = Annotated[str, Tag(BRANCH + "text")]
_ResultParts = Annotated[
    list[
        Annotated[
            _Text | Annotated[UnreadPart, Tag(BRANCH + "unread")],
            Discriminator(
                _part_of_result,
                custom_error_type="content_part",
                custom_error_message="This type of content part is not supported",
            ),
        ]
    ],
    Tag(BRANCH + "parts"),
    Field(min_length=1, fail_fast=True),
]
TextContent = Annotated[_String | _TextParts, _CONTENT_DISCRIMINATOR]
ResultContent = Annotated[_String | _ResultParts, _CONTENT_DISCRIMINATOR]
AssistantContent = Annotated[_String | _AnyParts, _CONTENT_DISCRIMINATOR]


class _Message(RequestPart):
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
    """A message of the user."""

    role: Literal["user"]
    content: TextContent


class CalledFunction(RequestPart):
    """The function of an earlier tool call."""

    name: str
    arguments: str


class _Call(RequestPart):
    id: str


class FunctionCall(_Call):
    """A call of a function that the assistant made earlier in the conversation."""

    type: Literal["function"]
    function: CalledFunction


class CalledCustom(RequestPart):
    """The custom tool of an earlier tool call."""

    name: str
    input: str


class CustomCall(_Call):
    """A call of a custom tool that the assistant made earlier in the conversation."""

    type: Literal["custom"]
    custom: CalledCustom

    @property
    def function(self) -> CalledFunction:
        """The call as one of a function."""
        return CalledFunction(name=self.custom.name, arguments=arguments_of(self.custom.input))


ToolCall = Annotated[
    Annotated[FunctionCall, Tag(BRANCH + "function")] | Annotated[CustomCall, Tag(BRANCH + "custom")],
    FUNCTION_OR_CUSTOM,
]


class Prediction(RequestPart):
    """The expected start of the answer."""

    type: Literal["content"]
    content: TextContent

    @property
    def text(self) -> str:
        """The predicted text."""
        content = self.content
        return content if isinstance(content, str) else "".join(part.text for part in content)


class AssistantMessage(_Message):
    """A message of the assistant."""

    role: Literal["assistant"]
    content: AssistantContent | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MOST_CALLS, fail_fast=True)] | None = None
    function_call: CalledFunction | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ToolMessage(_Message):
    """The result of a tool call."""

    role: Literal["tool"]
    content: ResultContent
    tool_call_id: str

    @property
    def unread(self) -> list[int]:
        """The places of its parts that are not text."""
        parts = self.content if isinstance(self.content, list) else ()
        return [place for place, part in enumerate(parts) if isinstance(part, UnreadPart)]


class FunctionMessage(_Message):
    """The result of a function call, in the old form."""

    role: Literal["function"]
    name: str
    content: TextContent | None = None


Message = Annotated[
    Annotated[SystemMessage, Tag(BRANCH + "system")]
    | Annotated[DeveloperMessage, Tag(BRANCH + "developer")]
    | Annotated[UserMessage, Tag(BRANCH + "user")]
    | Annotated[AssistantMessage, Tag(BRANCH + "assistant")]
    | Annotated[ToolMessage, Tag(BRANCH + "tool")]
    | Annotated[FunctionMessage, Tag(BRANCH + "function")],
    Discriminator(
        branch_by("role"),
        custom_error_type="role",
        custom_error_message="Supported values are: 'system', 'developer', 'user', 'assistant', 'tool', 'function'",
    ),
]

# However short they are: each one is checked, rendered and tokenized before anybody can tell that they do not fit.
Messages = Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)]


def conversation(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Convert messages to the neutral form of ``serving``, and the old form of calls and results to the new one.

    Content becomes one string with a line for each part; arguments of calls stay as the model wrote them.
    """
    result = []
    functions: OpenCalls[str] = OpenCalls()  # calls in the old form, which have no ids of their own
    for index, message in enumerate(messages):
        if type(message.content) is str and message.__pydantic_fields_set__ == _PLAIN:  # `for_template`, inlined
            result.append({"role": message.role, "content": message.content})
            continue
        if isinstance(message, AssistantMessage) and message.function_call is not None:
            function = message.function_call
            functions.add([(function.name, f"call_{index}")])
            call = FunctionCall(id=f"call_{index}", type="function", function=function)
            message = message.model_copy(update={"tool_calls": [*(message.tool_calls or []), call]})  # noqa: PLW2901
        found = for_template(message)
        if isinstance(message, FunctionMessage):
            found |= {"role": "tool", "tool_call_id": functions.bind(message.name) or ""}
        result.append(found)
    return result


def for_template(message: Message) -> dict[str, Any]:
    """Convert one message: content to one string, with its parts where there are several; arguments to JSON text."""
    text = message.content
    if isinstance(text, list):
        parts = [part.refusal if isinstance(part, RefusalPart) else part.text for part in text]
    else:
        parts = [text] if text else []
    if isinstance(message, AssistantMessage) and message.refusal:
        parts.append(message.refusal)
    result: dict[str, Any] = {"role": message.role, "content": "\n".join(parts)}
    if len(parts) > 1:
        result["parts"] = parts
    if message.name:
        result["name"] = message.name
    if isinstance(message, ToolMessage):
        result["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        if message.tool_calls:
            called = ((call.id, call.function) for call in message.tool_calls)
            result["tool_calls"] = [
                {"id": index, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
                for index, each in called
            ]
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            result["reasoning"] = reasoning
    return result


def check_history(messages: Sequence[Message]) -> None:
    """Reject empty turns, turns with two fields of reasoning, and results without an open call."""
    calls: OpenCalls[int] = OpenCalls()
    functions: OpenCalls[int] = OpenCalls()
    for index, message in enumerate(messages):
        if message.content and message.__pydantic_fields_set__ == _PLAIN:  # most messages
            continue
        path = f"messages[{index}]"
        if isinstance(message, AssistantMessage):
            _check_assistant(message, path)
            calls.add([(call.id, index) for call in message.tool_calls or ()])
            if message.function_call is not None:
                functions.add([(message.function_call.name, index)])
        elif isinstance(message, ToolMessage) and calls.bind(message.tool_call_id) is None:
            text = "'tool_call_id' must be the id of a tool call in an earlier assistant message."
            if message.tool_call_id in calls:
                text = "The tool call with this 'tool_call_id' already has a result."
            raise BadRequestError(text, f"{path}.tool_call_id", "invalid_value")
        elif isinstance(message, FunctionMessage) and functions.bind(message.name) is None:
            text = "A function message must follow an assistant message with a 'function_call' of the same name."
            raise BadRequestError(text, f"{path}.name", "invalid_value")


def check_continuation(message: Message) -> None:
    """Reject a last message that cannot be continued.

    The prompt is cut after the message's text. The cut would also remove calls that follow this text, or all that comes
    after a message that a template moves to the front.
    """
    calls = isinstance(message, AssistantMessage) and (message.tool_calls or message.function_call)
    if calls or not isinstance(message, AssistantMessage | UserMessage):
        text = (
            "'continue_final_message' requires that the last message has the role 'user' or 'assistant' and no "
            "tool calls."
        )
        raise BadRequestError(text, "continue_final_message", "invalid_value")
    if not for_template(message)["content"]:
        raise BadRequestError(
            "'continue_final_message' requires that the last message contains text.", "messages", "invalid_value"
        )


def _check_assistant(message: AssistantMessage, path: str) -> None:
    if _says_nothing(message):
        text = "An assistant message must have 'content' unless it has 'tool_calls' or 'function_call'."
        raise BadRequestError(text, f"{path}.content", "invalid_value")
    if message.reasoning and message.reasoning_content not in (None, "", message.reasoning):
        text = "'reasoning' and 'reasoning_content' have the same meaning but different values; send only one of them."
        raise BadRequestError(text, f"{path}.reasoning", "invalid_value")


def _says_nothing(message: AssistantMessage) -> bool:
    said = message.refusal or message.reasoning_content or message.reasoning
    calls = message.tool_calls or message.function_call
    return message.content in (None, []) and not said and not calls
