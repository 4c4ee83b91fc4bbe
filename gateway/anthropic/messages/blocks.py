"""Messages of a request and the content blocks that are read; blocks of other types are taken as they come."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from gateway.openai.validation import BRANCH, text_or_list

_KINDS = frozenset({"text", "tool_use", "tool_result", "thinking"})
"""Types of blocks that are read, and their branches; another type is of the branch ``other``."""


class Block(BaseModel):
    """A content block."""

    model_config = ConfigDict(extra="allow", strict=True)

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
    """Reasoning of an earlier turn, whoever wrote it: its signature is not verified."""

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
    _branch, custom_error_type="block", custom_error_message="A content block is expected: an object with a type"
)
_strings = Discriminator(
    text_or_list, custom_error_type="content", custom_error_message="A string or an array of content blocks is expected"
)
_String = Annotated[str, Tag(BRANCH + "text")]
_Text = Annotated[TextBlock, Tag(BRANCH + "text")]
_Other = Annotated[OtherBlock, Tag(BRANCH + "other")]
_ResultParts = Annotated[list[Annotated[_Text | _Other, _blocks]], Tag(BRANCH + "parts"), Field(fail_fast=True)]


class ToolResultBlock(Block):
    """What a called tool answered."""

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


class InputMessage(BaseModel):
    """A turn of the conversation."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["user", "assistant", "system"]
    content: Content

    @property
    def blocks(self) -> list[Block]:
        """Its content as blocks."""
        return _as_blocks(self.content)


def _as_blocks(content: Any) -> list[Block]:
    return [TextBlock(type="text", text=content)] if isinstance(content, str) else content


MESSAGES: TypeAdapter[list[InputMessage]] = TypeAdapter(list[InputMessage])
