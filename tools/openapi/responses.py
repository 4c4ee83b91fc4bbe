"""Types of the responses of ``POST /v1/responses``."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from gateway.api.usage import ResponseUsage
from tools.openapi.chat import ChatTokenLogprob

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ResponseOutputText(TypedDict):
    """A text of the model."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[ChatTokenLogprob]


class ResponseReasoningText(TypedDict):
    """A text of the model's reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ResponseMessage(TypedDict):
    """A message of the model."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[ResponseOutputText]


class ResponseReasoning(TypedDict):
    """The model's reasoning; there are no summaries of it.

    ``encrypted_content`` is the same encrypted, where it is asked for and the operator has given keys.
    """

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[Any]
    content: list[ResponseReasoningText]
    encrypted_content: NotRequired[str]


class ResponseFunctionCall(TypedDict):
    """A call of a function; its arguments are JSON text."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: NotRequired[str]
    arguments: str


class ResponseCustomToolCall(TypedDict):
    """A call of a custom tool; its input is text."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    namespace: NotRequired[str]
    input: str


ResponseItem = ResponseMessage | ResponseReasoning | ResponseFunctionCall | ResponseCustomToolCall


class ResponseError(TypedDict):
    """The reason why a response failed."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str


class ResponseIncompleteDetails(TypedDict):
    """The reason why a response is incomplete: its limit of tokens, or the context's."""

    reason: Literal["max_output_tokens"]


class ResponseReasoningConfig(TypedDict):
    """The reasoning options of the request."""

    effort: str | None
    summary: None


class ResponseTextConfig(TypedDict):
    """The form of the answer's text."""

    format: dict[str, Any]


class ResponseConversation(TypedDict):
    """The conversation of a response."""

    id: str


class ResponseObject(TypedDict):
    """A response.

    ``conversation`` is absent where it belongs to none. ``status_estimated`` is true where nothing tells for certain
    that it ended by itself, else absent.
    """

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    status_estimated: NotRequired[bool]
    background: bool
    completed_at: int | None
    error: ResponseError | None
    incomplete_details: ResponseIncompleteDetails | None
    output: list[ResponseItem]
    usage: ResponseUsage | None
    model: str
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ResponseReasoningConfig
    safety_identifier: str | None
    service_tier: Literal["default", "flex", "priority"]
    store: bool
    temperature: float
    text: ResponseTextConfig
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"]
    user: str | None
    conversation: NotRequired[ResponseConversation]


class ResponseDeleted(TypedDict):
    """A deleted response."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ResponseEvent(TypedDict):
    """The start, the progress or the end of a response, with its output so far."""

    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: ResponseObject
    sequence_number: int


class ResponseItemEvent(TypedDict):
    """The start or the end of an item."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: ResponseItem
    sequence_number: int


class ResponsePartEvent(TypedDict):
    """The start or the end of a part of an item's content."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: int
    part: ResponseOutputText | ResponseReasoningText
    sequence_number: int


class ResponseTextDelta(TypedDict):
    """A part of a text."""

    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[ChatTokenLogprob]
    sequence_number: int
    obfuscation: NotRequired[str]


class ResponseTextDone(TypedDict):
    """The whole text."""

    type: Literal["response.output_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[ChatTokenLogprob]
    sequence_number: int


class ResponseReasoningDelta(TypedDict):
    """A part of the reasoning."""

    type: Literal["response.reasoning_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str
    sequence_number: int
    obfuscation: NotRequired[str]


class ResponseReasoningDone(TypedDict):
    """The whole reasoning."""

    type: Literal["response.reasoning_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str
    sequence_number: int


class ResponseCallDelta(TypedDict):
    """A part of a call's arguments, or of a custom tool's input."""

    type: Literal["response.function_call_arguments.delta", "response.custom_tool_call_input.delta"]
    item_id: str
    output_index: int
    delta: str
    sequence_number: int
    obfuscation: NotRequired[str]


class ResponseArgumentsDone(TypedDict):
    """The whole arguments of a call."""

    type: Literal["response.function_call_arguments.done"]
    item_id: str
    output_index: int
    name: str
    arguments: str
    sequence_number: int


class ResponseInputDone(TypedDict):
    """The whole input of a custom tool."""

    type: Literal["response.custom_tool_call_input.done"]
    item_id: str
    output_index: int
    input: str
    sequence_number: int


EVENTS: tuple[type, ...] = (
    ResponseEvent,
    ResponseItemEvent,
    ResponsePartEvent,
    ResponseTextDelta,
    ResponseTextDone,
    ResponseReasoningDelta,
    ResponseReasoningDone,
    ResponseCallDelta,
    ResponseArgumentsDone,
    ResponseInputDone,
)
"""The data of one event of a stream is of one of these types."""


class ResponseCompaction(TypedDict):
    """A shortened conversation: the messages that stay, then an encrypted item of the type ``compaction``."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[dict[str, Any]]
    usage: ResponseUsage


class ResponseInputTokens(TypedDict):
    """The number of tokens that a request's prompt has."""

    object: Literal["response.input_tokens"]
    input_tokens: int
