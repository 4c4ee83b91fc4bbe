"""Types of the responses of ``POST /v1/chat/completions``, and examples of requests."""

from __future__ import annotations

from typing import Any, Final, Literal

from typing_extensions import NotRequired, TypedDict

from gateway.api.usage import CompletionUsage
from tools.openapi.objects import PromptLogprobs

CITY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}},
    "required": ["city"],
    "additionalProperties": False,
}
"""A small schema, of a function's arguments or of an answer."""

_ASKED: Final[dict[str, Any]] = {
    "model": "MODEL",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 64,
}
_WEATHER: Final = {"name": "get_weather", "description": "Gets the weather of a city.", "parameters": CITY}
EXAMPLES: Final[dict[str, dict[str, Any]]] = {
    "One answer": _ASKED,
    "A stream with usage": {**_ASKED, "stream": True, "stream_options": {"include_usage": True}},
    "Log probabilities of tokens": {**_ASKED, "logprobs": True, "top_logprobs": 3},
    "A required tool call": {
        **_ASKED,
        "tools": [{"type": "function", "function": _WEATHER}],
        "tool_choice": "required",
    },
    "An answer that matches a JSON schema": {
        **_ASKED,
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": CITY}},
    },
}


FinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class ChatTopLogprob(TypedDict):
    """An alternative to a token."""

    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(TypedDict):
    """A token of the answer."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(TypedDict):
    """Log-probs of a choice."""

    content: list[ChatTokenLogprob]
    refusal: None


class ChatFunctionCall(TypedDict):
    """A called function; its arguments are JSON text."""

    name: str
    arguments: str


class ChatCustomCall(TypedDict):
    """A called custom tool; its input is text."""

    name: str
    input: str


class ChatCustomToolCall(TypedDict):
    """A call of a custom tool."""

    id: str
    type: Literal["custom"]
    custom: ChatCustomCall


class ChatToolCall(TypedDict):
    """A call of a function."""

    id: str
    type: Literal["function"]
    function: ChatFunctionCall


class ChatCompletionMessage(TypedDict):
    """A message of the assistant; content is null where it only has calls."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str | None]
    reasoning: NotRequired[str | None]
    tool_calls: NotRequired[list[ChatToolCall | ChatCustomToolCall]]
    function_call: NotRequired[ChatFunctionCall]


class ChatCompletionChoice(TypedDict):
    """One choice; ``finish_reason_estimated`` is true where its finish reason is not certain, else absent."""

    index: int
    message: ChatCompletionMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    finish_reason_estimated: NotRequired[bool]
    token_ids: NotRequired[list[int]]


class ChatCompletion(TypedDict):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatCompletionChoice]
    usage: CompletionUsage
    service_tier: NotRequired[str]
    prompt_token_ids: NotRequired[list[int]]
    prompt_logprobs: NotRequired[PromptLogprobs]


class ChatFunctionDelta(TypedDict):
    """A part of a called function: first its name, then pieces of its arguments."""

    name: NotRequired[str]
    arguments: str


class ChatToolCallDelta(TypedDict):
    """A part of a call of a function; only the first has id and type."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: ChatFunctionDelta


class ChatCustomDelta(TypedDict):
    """A part of a called custom tool: first its name, then pieces of its input."""

    name: NotRequired[str]
    input: str


class ChatCustomToolCallDelta(TypedDict):
    """A part of a call of a custom tool; only the first has id and type."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["custom"]]
    custom: ChatCustomDelta


class ChatCompletionDelta(TypedDict):
    """A part of a message."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str | None]
    reasoning_content: NotRequired[str]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[ChatToolCallDelta | ChatCustomToolCallDelta]]
    function_call: NotRequired[ChatFunctionDelta]


class ChatCompletionChunkChoice(TypedDict):
    """A part of a choice; the last one has the finish reason and the stop reason, if any."""

    index: int
    delta: ChatCompletionDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: NotRequired[str | int | None]
    finish_reason_estimated: NotRequired[bool]
    token_ids: NotRequired[list[int]]


class ChatCompletionChunk(TypedDict):
    """The data of one event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    service_tier: NotRequired[str]
    choices: list[ChatCompletionChunkChoice]
    usage: NotRequired[CompletionUsage | None]
    prompt_token_ids: NotRequired[list[int]]
    obfuscation: NotRequired[str]
