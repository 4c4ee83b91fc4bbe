"""The request of ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``: schema, content blocks, and betas.

Blocks of types that are not read are taken as they come.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import Discriminator, Field, Tag
from starlette.types import Scope

from gateway.api.openai.request_json import MOST_MESSAGES
from gateway.api.openai.validation import BRANCH, RequestPart, pruned, text_or_list, validated

_KINDS = frozenset({"text", "tool_use", "tool_result", "thinking"})
"""Types of blocks that are read, and their branches; another type is of the branch ``other``."""

SERVED_BETAS: Final = frozenset(
    {
        "effort-2025-11-24",
        "interleaved-thinking-2025-05-14",
        "messages-2023-12-15",
        "search-results-2025-06-09",
        "structured-outputs-2025-11-13",
        "token-counting-2024-11-01",
        "tools-2024-04-04",
        "tools-2024-05-16",
    }
)
"""Betas whose fields are read, and named by themselves where a model cannot serve them."""


class Block(RequestPart):
    """A content block."""

    branch: ClassVar[str]

    type: str
    cache_control: Any = None


class TextBlock(Block):
    """Text."""

    branch = "text"

    type: Literal["text"]
    text: str


class ToolUseBlock(Block):
    """A call that the model made earlier."""

    branch = "tool_use"

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str
    input: dict[str, Any] | None = None


class ThinkingBlock(Block):
    """Reasoning of an earlier turn; its signature is not verified."""

    branch = "thinking"

    type: Literal["thinking"]
    thinking: str | None = None
    signature: Any = None


class OtherBlock(Block):
    """A block of a type that is not read, or is text only in part."""

    branch = "other"


def _branch(value: Any) -> str | None:
    if isinstance(value, Block):
        return BRANCH + value.branch
    kind = value.get("type") if isinstance(value, dict) else None
    return BRANCH + (kind if kind in _KINDS else "other") if isinstance(kind, str) else None


_blocks = Discriminator(
    _branch, custom_error_type="block", custom_error_message="must be a content block, an object with a type"
)
_strings = Discriminator(
    text_or_list, custom_error_type="content", custom_error_message="must be a string or an array of content blocks"
)
_String = Annotated[str, Tag(BRANCH + "text")]
_Text = Annotated[TextBlock, Tag(BRANCH + "text")]
_Other = Annotated[OtherBlock, Tag(BRANCH + "other")]
_ResultParts = Annotated[list[Annotated[_Text | _Other, _blocks]], Tag(BRANCH + "parts"), Field(fail_fast=True)]


class ToolResultBlock(Block):
    """The result of a tool call."""

    branch = "tool_result"

    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Annotated[_String | _ResultParts, _strings] | None = None
    is_error: bool | None = None


AnyBlock = Annotated[
    _Text
    | Annotated[ToolUseBlock, Tag(BRANCH + "tool_use")]
    | Annotated[ToolResultBlock, Tag(BRANCH + "tool_result")]
    | Annotated[ThinkingBlock, Tag(BRANCH + "thinking")]
    | _Other,
    _blocks,
]
_Blocks = Annotated[list[AnyBlock], Tag(BRANCH + "parts"), Field(fail_fast=True)]
Content = Annotated[_String | _Blocks, _strings]


class InputMessage(RequestPart):
    """A turn of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content

    @property
    def blocks(self) -> list[Block]:
        """The content as blocks."""
        return _as_blocks(self.content)


def _as_blocks(content: Any) -> list[Block]:
    return [TextBlock(type="text", text=content)] if isinstance(content, str) else content


class ThinkingOptions(RequestPart):
    """Whether the model reasons, where its chat template has a switch, and the most tokens for it."""

    type: str
    budget_tokens: Annotated[int | None, Field(ge=0)] = None
    display: str | None = None


class OutputOptions(RequestPart):
    """The effort, for the chat template, and the format of the answer's text."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(RequestPart):
    """A conversation whose tokens are counted. Null means absent; unknown fields are ignored by name."""

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[list[InputMessage], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)] = Field(
        description="The conversation: roles user, assistant and system; content as a string or blocks."
    )
    system: Annotated[
        Annotated[str, Tag(BRANCH + "text")] | Annotated[list[TextBlock], Tag(BRANCH + "parts")],
        Discriminator(
            text_or_list,
            custom_error_type="content",
            custom_error_message="must be a string or an array of text blocks",
        ),
    ] = Field(default="", description="Instructions before all messages.")
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="Tools with an `input_schema`; those of Anthropic's servers are left out."
    )
    tool_choice: dict[str, Any] | None = Field(default=None, description="Forbids, allows or requires tool calls.")
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions = Field(default_factory=OutputOptions)
    thread: dict[str, Any] | None = Field(default=None, description="Rejected: this gateway stores no conversations.")
    output_format: dict[str, Any] | None = Field(default=None, description="The older name of `output_config.format`.")


class MessagesRequest(CountTokensRequest):
    """A request to continue a conversation. Null means absent; unknown fields are ignored by name.

    The extensions of chat completions that shape the answer, such as `seed` and `min_p`, are taken too.
    """

    max_tokens: Annotated[int, Field(ge=1)] = Field(
        description="The most tokens of the answer; a value that exceeds the context is lowered."
    )
    stop_sequences: list[str] = Field(default_factory=list, description="Texts before which the answer ends.")
    stream: bool = Field(default=False, description="Sends the response as Server-Sent Events.")
    temperature: float | None = Field(default=None, description="As in chat completions.")
    top_p: float | None = Field(default=None, description="As in chat completions.")
    top_k: int | None = Field(default=None, description="As in chat completions.")
    speed: str | None = Field(
        default=None, description="`fast`: the request goes before the caller's other queued requests."
    )
    service_tier: str | None = Field(default=None, description="Accepted without effect: there is one tier.")
    user_profile_id: str | None = Field(default=None, description="Written to the access log.")
    workspace_id: str | None = Field(default=None, description="Written to the access log.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="`user_id` is written to the access log.")


_Request = TypeVar("_Request", bound=CountTokensRequest)


def parse_messages_request(fields: dict[str, Any]) -> MessagesRequest:
    """Parse and validate a body of ``/v1/messages``.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    return _validated(MessagesRequest, fields)


def parse_count_request(fields: dict[str, Any]) -> CountTokensRequest:
    """Parse and validate a body of ``/v1/messages/count_tokens``; what limits or shapes an answer is not looked at.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    return _validated(CountTokensRequest, fields)


def _validated(kind: type[_Request], fields: dict[str, Any]) -> _Request:
    data = pruned(fields)
    for key in ("thinking", "output_config", "metadata"):
        data |= {key: pruned(data[key])} if key in data else {}
    return validated(kind, data)


def unserved_betas(scope: Scope) -> list[str]:
    """List the unserved betas of a request, under the names that are reported to the client.

    Betas are not rejected: agents end their turn at one 400.

    Args:
        scope: of the request.
    """
    given = [value.decode("latin-1").split(",") for name, value in scope["headers"] if name == b"anthropic-beta"]
    names = dict.fromkeys(name.strip() for names in given for name in names)
    return [f"anthropic-beta.{name}" for name in names if name and name not in SERVED_BETAS]
