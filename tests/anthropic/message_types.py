"""Anthropic's types of messages, with what the gateway adds and always says. See `tests.lazy_module`."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import anthropic.types
from anthropic.types import ModelInfo
from anthropic.types.shared import ErrorResponse
from pydantic import BaseModel, StringConstraints

__all__ = ["EVENTS", "ErrorResponse", "Message", "ModelInfo"]


class Usage(anthropic.types.Usage):
    cache_read_input_tokens: int
    estimated: Literal[True] | None = None


class Message(anthropic.types.Message):
    """An answer, and what its blocks say together."""

    id: Annotated[str, StringConstraints(pattern=r"^msg_[A-Za-z0-9_-]{1,60}$")]
    usage: Usage
    stop_reason_estimated: Literal[True] | None = None

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.content if block.type == "text")

    @property
    def thinking(self) -> str:
        return "".join(block.thinking for block in self.content if block.type == "thinking")

    @property
    def calls(self) -> list[anthropic.types.ToolUseBlock]:
        return [block for block in self.content if block.type == "tool_use"]


EVENTS: dict[str, type[BaseModel]] = {
    get_args(event.model_fields["type"].annotation)[0]: event
    for event in get_args(get_args(anthropic.types.RawMessageStreamEvent)[0])
}
