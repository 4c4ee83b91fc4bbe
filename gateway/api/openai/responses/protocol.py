"""The request of ``POST /v1/responses``: its schema and its validation."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from pydantic import BeforeValidator, Discriminator, Field, Tag

from gateway.api.openai.generation_fields import MOST_TOKENS
from gateway.api.openai.parameters.table import SHARED
from gateway.api.openai.request_json import MOST_MESSAGES
from gateway.api.openai.responses.input_items import InputItem
from gateway.api.openai.validation import BRANCH, RequestPart, pruned, text_or_list, validated
from gateway.text.bad_request import BadRequestError
from gateway.text.client_json import write_client_json


class ReasoningOptions(RequestPart):
    """Options of reasoning: the chat template gets the effort; there are no summaries."""

    effort: str | None = None
    summary: str | None = None


class TextOptions(RequestPart):
    """The form of the answer's text: any text, a JSON object, or JSON that follows a schema."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ResponseStreamOptions(RequestPart):
    """Options of a stream."""

    include_obfuscation: bool = False


Input = Annotated[
    Annotated[str, Tag(BRANCH + "text")]
    | Annotated[list[InputItem], Field(max_length=MOST_MESSAGES, fail_fast=True), Tag(BRANCH + "parts")],
    Discriminator(
        text_or_list, custom_error_type="content", custom_error_message="must be a string or an array of items"
    ),
]
"""The input of a request."""


class ConversationName(RequestPart):
    """A conversation by its id."""

    id: str


def _named(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


_UNREAD = ("access_programs", "background_options", "context_management", "image")


class ResponsesRequest(RequestPart):
    """A request for a response. Null means absent; unknown fields are ignored by name.

    The extensions of chat completions that shape the answer, such as `seed`, `stop` and `top_k`, are taken too.
    """

    model: Annotated[str, Field(min_length=1)]
    input: Input = Field(description="A user message as text, or the conversation as items.")
    instructions: str | None = Field(default=None, description="A system message before all other messages.")
    max_output_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = Field(
        default=None, description="The most tokens of the answer; a value that exceeds the context is lowered."
    )
    temperature: float | None = Field(default=None, description="As in chat completions.")
    top_p: float | None = Field(default=None, description="As in chat completions.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        default=None, description="The number of alternatives of each token; above 0 log-probs are returned."
    )
    include: list[str] = Field(
        default_factory=list, description="`message.output_text.logprobs` is supported; other values have no effect."
    )
    tools: list[dict[str, Any]] = Field(
        default_factory=list,
        description="Functions, custom tools and namespaces; tools of other types are left out.",
    )
    tool_choice: str | dict[str, Any] | None = Field(
        default=None, description="Forbids, allows or requires tool calls."
    )
    parallel_tool_calls: bool = Field(default=True, description="Allows several tool calls in one response.")
    max_tool_calls: int | None = Field(
        default=None, description="Limits calls of built-in tools; this gateway runs no built-in tools."
    )
    text: TextOptions = Field(default_factory=TextOptions)
    reasoning: ReasoningOptions = Field(default_factory=ReasoningOptions)
    stream: bool = Field(default=False, description="Sends the response as Server-Sent Events.")
    stream_options: ResponseStreamOptions = Field(default_factory=ResponseStreamOptions)
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="Returned in the response and written to the access log."
    )
    truncation: str | None = Field(
        default=None, description="A conversation that is too long is rejected with 400, also with `auto`."
    )
    store: bool | None = Field(
        default=None, description="Stores the response; the default is true. The response says whether it is stored."
    )
    background: bool | None = Field(
        default=None, description="Returns immediately and generates in the background; retrieve the response later."
    )
    previous_response_id: str | None = Field(
        default=None, description="Continues a stored response: its items and all earlier items come before `input`."
    )
    conversation: (
        Annotated[ConversationName, BeforeValidator(_named, json_schema_input_type=str | ConversationName)] | None
    ) = Field(default=None, description="The conversation to continue, or its id: its items come before `input`.")
    prompt: Any = Field(default=None, description="Rejected: this gateway stores no prompts.")
    moderation: Any = Field(default=None, description="Rejected: this gateway has no moderation model.")
    service_tier: str | None = Field(default=None, description="The tier; the response says which tier was used.")
    user: str | None = Field(default=None, description="Written to the access log.")
    safety_identifier: str | None = Field(default=None, description="Written to the access log.")
    prompt_cache_key: str | None = Field(default=None, description="Written to the access log.")
    prompt_cache_retention: Any = Field(default=None, description="Accepted without effect: the engine decides.")
    prompt_cache_options: Any = Field(
        default=None, description="`prewarm: true` reads the prompt and returns no output; the engine decides the rest."
    )
    client_metadata: Any = Field(default=None, description="Accepted without effect.")
    access_programs: Any = Field(default=None, description="Accepted without effect, and named.")
    background_options: Any = Field(default=None, description="Accepted without effect, and named.")
    context_management: Any = Field(default=None, description="Accepted without effect, and named; see `compact`.")
    image: Any = Field(default=None, description="Accepted without effect, and named.")

    def unread(self) -> list[str]:
        """The names of unread fields."""
        known = [name for name in _UNREAD if getattr(self, name) is not None]
        return known + [name for name in self.model_extra or () if name not in SHARED]

    @property
    def prewarms(self) -> bool:
        """Whether the request only puts its prompt into the engine's KV cache."""
        return isinstance(self.prompt_cache_options, dict) and self.prompt_cache_options.get("prewarm") is True


def parse_responses_request(fields: dict[str, Any]) -> ResponsesRequest:
    """Parse and validate a request body.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    data = {key: value for key, value in fields.items() if value is not None}
    _check_state(data)
    for key in ("text", "reasoning", "stream_options"):
        data |= {key: pruned(data[key])} if key in data else {}
    return validated(ResponsesRequest, data)


_REJECTED = {
    "prompt": "This gateway stores no prompts; send the text in 'instructions' or 'input'.",
    "moderation": "This gateway has no moderation model.",
}


def _check_state(data: dict[str, Any]) -> None:
    """Reject parameters that need stored prompts or a moderation model."""
    for name, why in _REJECTED.items():
        if name in data:
            message = f"The parameter {name!r} is not supported: {why[0].lower()}{why[1:]}"
            raise BadRequestError(message, name, "unsupported_parameter")


def as_sent(request: ResponsesRequest) -> dict[str, orjson.Fragment]:
    """Write the fields that the response repeats from the request, as JSON.

    Large fields are written once, off the event loop.

    Args:
        request: of the client.
    """
    fields = {
        "instructions": request.instructions,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata,
        "text": {"format": request.text.format or {"type": "text"}},
        "tool_choice": "auto" if request.tool_choice is None else request.tool_choice,
        "tools": request.tools,
    }
    return {name: orjson.Fragment(write_client_json(value)) for name, value in fields.items()}
