"""What tests of messages share: Anthropic's types, strictly, and the order of a stream's events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import anthropic.types
import httpx
from anthropic.types.shared import ErrorResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

from tests.app.harness import Gateway
from tests.app.scripted import MODEL
from tests.published_types import published

VERSION = {"anthropic-version": "2023-06-01"}
USER = [{"role": "user", "content": "Hi"}]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Text(_Strict):
    type: Literal["text"]
    text: str


class Thinking(_Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUse(_Strict):
    type: Literal["tool_use"]
    id: Annotated[str, StringConstraints(pattern=r"^toolu_[A-Za-z0-9_-]{1,58}$")]
    name: str
    input: dict[str, Any]


Block = Annotated[Text | Thinking | ToolUse, Field(discriminator="type")]


class OutputDetails(_Strict):
    thinking_tokens: int = Field(ge=0)


class Usage(_Strict):
    input_tokens: int = Field(ge=0)
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputDetails | None = None
    estimated: Literal[True] | None = None


class Message(_Strict):
    """An answer, as Anthropic's ``Message`` is."""

    id: Annotated[str, StringConstraints(pattern=r"^msg_[A-Za-z0-9_-]{1,60}$")]
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Block]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | None
    stop_sequence: str | None
    stop_reason_estimated: Literal[True] | None = None
    usage: Usage

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def thinking(self) -> str:
        return "".join(block.thinking for block in self.content if isinstance(block, Thinking))

    @property
    def calls(self) -> list[ToolUse]:
        return [block for block in self.content if isinstance(block, ToolUse)]


class _Error(_Strict):
    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large",
        "rate_limit_error", "api_error", "timeout_error", "overloaded_error",
    ]  # fmt: skip
    message: str = Field(min_length=1)
    details: dict[str, str] | None = None


class Error(_Strict):
    type: Literal["error"]
    error: _Error
    request_id: str = Field(min_length=1)


class _Stop(_Strict):
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    stop_reason_estimated: Literal[True] | None = None


class MessageStart(_Strict):
    type: Literal["message_start"]
    message: Message


class Ping(_Strict):
    type: Literal["ping"]


class BlockStart(_Strict):
    type: Literal["content_block_start"]
    index: int
    content_block: Block


class TextDelta(_Strict):
    type: Literal["text_delta"]
    text: str


class ThinkingDelta(_Strict):
    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(_Strict):
    type: Literal["signature_delta"]
    signature: str = Field(min_length=1)


class InputDelta(_Strict):
    type: Literal["input_json_delta"]
    partial_json: str


class BlockDelta(_Strict):
    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[TextDelta | ThinkingDelta | SignatureDelta | InputDelta, Field(discriminator="type")]


class BlockStop(_Strict):
    type: Literal["content_block_stop"]
    index: int


class MessageDelta(_Strict):
    type: Literal["message_delta"]
    delta: _Stop
    usage: Usage


class MessageStop(_Strict):
    type: Literal["message_stop"]


Event = Annotated[
    MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Error,
    Field(discriminator="type"),
]
_event: TypeAdapter[Any] = TypeAdapter(Event)
_PUBLISHED: dict[str, type[BaseModel]] = {
    get_args(event.model_fields["type"].annotation)[0]: event
    for event in get_args(get_args(anthropic.types.RawMessageStreamEvent)[0])
}
_OURS = tuple(
    f"{part}{name}" for part in ("", "message.", "delta.") for name in ("usage.estimated", "stop_reason_estimated")
)


async def post(running: Gateway, path: str = "/v1/messages", **body: Any) -> httpx.Response:
    """An answer, whatever the status; a model, a limit and a question are filled in."""
    limit = {} if path.endswith("count_tokens") else {"max_tokens": 500}
    return await running.client.post(path, json={"model": MODEL, "messages": USER, **limit, **body})


async def whole(running: Gateway, **body: Any) -> Message:
    """A whole message, strictly of Anthropic's type."""
    answer = await post(running, **body)
    assert answer.status_code == 200, answer.text
    published(anthropic.types.Message, answer.json(), _OURS)
    message = Message.model_validate(answer.json())
    assert message.stop_reason is not None
    assert message.content
    return message


async def streamed(running: Gateway, **body: Any) -> Message:
    """The message that a stream tells, whose events must come in Anthropic's order, strictly of its types."""
    answer = await post(running, stream=True, **body)
    assert answer.status_code == 200, answer.text
    return message_of(answer.text)


async def prompt_of(running: Gateway, **body: Any) -> str:
    """The prompt that a request becomes."""
    await whole(running, **body)
    return running.engine.requests[-1].prompt.text


def events_of(text: str) -> list[Any]:
    """The events of a stream, each with a line that names it; comments are passed over."""
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            if event["type"] in _PUBLISHED:  # of pings and errors there are no types
                published(_PUBLISHED[event["type"]], event, _OURS)
            events.append(_event.validate_python(event))
    return events


def message_of(text: str) -> Message:
    """The message of a whole stream, put together as Anthropic's clients do."""
    start, ping, *events, delta, stop = events_of(text)
    assert isinstance(start, MessageStart)
    assert isinstance(ping, Ping)
    assert isinstance(delta, MessageDelta)
    assert isinstance(stop, MessageStop)
    begun = start.message
    assert (begun.content, begun.stop_reason, begun.stop_sequence) == ([], None, None)
    assert begun.usage.output_tokens == 0
    sums = [usage.input_tokens + usage.cache_read_input_tokens for usage in (begun.usage, delta.usage)]
    assert sums[0] == sums[1] > 0
    ended = delta.delta.model_dump() | {"usage": delta.usage, "content": _blocks(events)}
    return begun.model_copy(update=ended)


def _blocks(events: Sequence[Any]) -> list[Any]:
    """The blocks, of which one is open at a time."""
    blocks: list[Any] = []
    inside: list[Any] | None = None
    for event in events:
        if isinstance(event, BlockStart):
            assert inside is None
            assert event.index == len(blocks)
            inside = [event.content_block]
        else:
            assert inside is not None
            assert event.index == len(blocks)
            if isinstance(event, BlockDelta):
                inside.append(event.delta)
            else:
                assert isinstance(event, BlockStop)
                blocks.append(_block(*inside))
                inside = None
    assert inside is None
    return blocks


def _block(begun: Any, *deltas: Any) -> Any:
    """A block, of which the deltas are all that it has."""
    if isinstance(begun, Text):
        assert begun.text == ""
        return Text(type="text", text="".join(delta.text for delta in deltas))
    if isinstance(begun, ToolUse):
        assert begun.input == {}
        return begun.model_copy(update={"input": json.loads("".join(delta.partial_json for delta in deltas))})
    *thoughts, signature = deltas
    assert (begun.thinking, begun.signature) == ("", "")
    return Thinking(
        type="thinking", thinking="".join(delta.thinking for delta in thoughts), signature=signature.signature
    )


def error_of(answer: httpx.Response, status: int, kind: str) -> str:
    """The message of an error in Anthropic's shape."""
    assert answer.status_code == status, answer.text
    if status != 413:  # whose type is in Anthropic's documentation alone
        published(ErrorResponse, answer.json(), ("error.details",))
    error = Error.model_validate(answer.json())
    assert error.error.type == kind
    assert error.request_id == answer.headers["request-id"] == answer.headers["x-request-id"]
    return error.error.message
