"""The request of ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``: their schema."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from gateway.anthropic.messages.blocks import MESSAGES, InputMessage, TextBlock
from gateway.openai.chat.messages import in_groups
from gateway.openai.json_text import MOST_MESSAGES
from gateway.openai.request_body import Body, parse_object
from gateway.openai.validation import BRANCH, error_of, pruned, text_or_list


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class ThinkingOptions(_Part):
    """Whether the model reasons, where its chat template has a switch, and how many tokens that may take."""

    type: str
    budget_tokens: Annotated[int | None, Field(ge=0)] = None
    display: str | None = None


class OutputOptions(_Part):
    """The effort, which the chat template is told, and the form of the answer's text."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(_Part):
    """A conversation whose tokens are counted. Null means absent; unknown fields are served without, and named."""

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)] = Field(
        description="The conversation: roles user, assistant and system; content as a string or blocks."
    )
    system: Annotated[
        Annotated[str, Tag(BRANCH + "text")] | Annotated[list[TextBlock], Tag(BRANCH + "parts")],
        Discriminator(
            text_or_list,
            custom_error_type="content",
            custom_error_message="A string or an array of text blocks is expected",
        ),
    ] = Field(default="", description="Instructions before all messages.")
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="Tools with an `input_schema`; those of Anthropic's servers are left out."
    )
    tool_choice: dict[str, Any] | None = Field(default=None, description="Forbids, allows or demands calls.")
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions = Field(default_factory=OutputOptions)
    thread: dict[str, Any] | None = Field(default=None, description="Refused: no conversation is kept.")
    output_format: dict[str, Any] | None = Field(default=None, description="The older name of `output_config.format`.")


class MessagesRequest(CountTokensRequest):
    """A request to continue a conversation. Null means absent; unknown fields are served without, and named.

    The extensions of chat completions that shape the answer, such as `seed` and `min_p`, are taken too.
    """

    max_tokens: Annotated[int, Field(ge=1)] = Field(
        description="Limits the answer; more than the context leaves is clamped."
    )
    stop_sequences: list[str] = Field(default_factory=list, description="End the answer before these texts.")
    stream: bool = Field(default=False, description="Sends the answer as Server-Sent Events.")
    temperature: float | None = Field(default=None, description="As in chat completions.")
    top_p: float | None = Field(default=None, description="As in chat completions.")
    top_k: int | None = Field(default=None, description="As in chat completions.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="`user_id` is in the access log.")


_Request = TypeVar("_Request", bound=CountTokensRequest)


def parse_messages_request(body: Body) -> MessagesRequest:
    """Parse and validate a body of ``/v1/messages``.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    return _validated(MessagesRequest, body)


def parse_count_request(body: Body) -> CountTokensRequest:
    """Parse and validate a body of ``/v1/messages/count_tokens``; what limits or shapes an answer is not looked at.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    return _validated(CountTokensRequest, body)


def _validated(kind: type[_Request], body: Body) -> _Request:
    data = pruned(parse_object(body))
    for key in ("thinking", "output_config", "metadata"):
        data |= {key: pruned(data[key])} if key in data else {}
    if "messages" in data:
        data["messages"] = in_groups(data["messages"], MESSAGES)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise error_of(error) from None
