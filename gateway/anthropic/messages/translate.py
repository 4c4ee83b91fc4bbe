"""A Messages request as a chat request: blocks become messages, and each part of it remembers where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.anthropic.errors import NO_THREADS
from gateway.anthropic.messages.conversation import Conversation
from gateway.anthropic.messages.protocol import (
    CountTokensRequest,
    MessagesRequest,
    parse_count_request,
    parse_messages_request,
)
from gateway.anthropic.messages.tools import Toolbox
from gateway.bad_request import BadRequestError
from gateway.openai.chat.messages import in_groups
from gateway.openai.chat.protocol import chat_request
from gateway.openai.generation_fields import MOST_TOKENS
from gateway.openai.request_body import Body
from gateway.openai.translation import EXTENSIONS, TranslatedRequest, Translation
from gateway.openai.validation import without_nulls

_BILLING = "x-anthropic-billing-header:"  # differs with every request of some clients: it would spoil the KV cache
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TAKEN = EXTENSIONS - {"stop", "top_k"}
_MOST_USER = 512  # characters of the user's id that are logged
_FIELDS = {
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
    "response_format.json_schema.schema": "output_config.format.schema",
    "response_format": "output_config.format",
    "tool_choice.function.name": "tool_choice.name",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "continue_final_message": "messages",
}
_OLD_FORM = {"response_format": "output_format", "response_format.json_schema.schema": "output_format.schema"}


@dataclass(slots=True)
class Turn(TranslatedRequest):
    """A Messages request and the chat request that it is served as.

    Attributes:
        request: of the client; without what limits and shapes the answer where only its tokens are counted.
        tools: of the request.
    """

    request: CountTokensRequest
    tools: Toolbox


def parse_turn(body: Body, betas: Sequence[str]) -> Turn:
    """Parse and translate a request body.

    Args:
        body: of the request.
        betas: that it is served without.

    Raises:
        BadRequestError: naming the client's parameter at fault.
    """
    request = parse_messages_request(body)
    data, left_out = _answer_fields(request)
    return _turn(request, data, [*left_out, *betas])


def parse_counted(body: Body, betas: Sequence[str]) -> Turn:
    """Parse and translate a request body of which only the prompt matters; see ``parse_turn``."""
    return _turn(parse_count_request(body), {}, betas)


def _turn(request: CountTokensRequest, data: dict[str, Any], left_out: Sequence[str]) -> Turn:
    _check_whole(request)
    tools = Toolbox()
    tools.add(request.tools)
    data |= tools.choice(request.tool_choice)
    conversation = Conversation()
    _open(conversation, request)
    for index, message in enumerate(request.messages):
        conversation.add(message, f"messages[{index}]")
    data |= {"model": request.model, "messages": in_groups(conversation.close())}
    if request.messages[-1].role == "assistant":
        conversation.check_prefill(f"messages[{len(request.messages) - 1}]")
        data["continue_final_message"] = True
    given = request.output_config.format
    data |= _form(request.output_format if given is None else given)
    if request.output_config.effort in _EFFORTS:
        data["reasoning_effort"] = request.output_config.effort
    extra = request.model_extra or {}
    data |= {name: value for name, value in extra.items() if name in _TAKEN}
    thinking = request.thinking
    if thinking is not None and thinking.type == "enabled" and thinking.budget_tokens is not None:
        data["thinking_token_budget"] = min(thinking.budget_tokens, MOST_TOKENS)
    fields = _FIELDS if request.output_format is None or given is not None else _FIELDS | _OLD_FORM
    parts = {**tools.parts, **conversation.parts}
    translation = Translation(conversation.origins, tools.paths, fields, parts)
    with translation.renaming():
        chat = chat_request(without_nulls(data))
    named = [*_unread(request), *conversation.left_out, *tools.left_out, *left_out]
    return Turn(chat, translation, tuple(dict.fromkeys(named)), request, tools)


def _check_whole(request: CountTokensRequest) -> None:
    """Refuse a thread: whoever begins one sends only what is new from then on, of which no model makes sense."""
    if request.thread is not None:
        message = "'thread' is not supported: no conversation is kept. Send the whole conversation without it."
        raise BadRequestError(message, "thread", NO_THREADS)


def _answer_fields(request: MessagesRequest) -> tuple[dict[str, Any], list[str]]:
    """The fields of the chat request that limit and shape the answer, and the names of what is left out."""
    data: dict[str, Any] = {
        "max_completion_tokens": min(request.max_tokens, MOST_TOKENS),
        "stream": request.stream,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "stop": request.stop_sequences or None,
    }
    user = request.metadata.get("user_id")
    if isinstance(user, str):
        data["user"] = user[:_MOST_USER]
    return data, [f"metadata.{key}" for key in request.metadata if key != "user_id"]


def _open(conversation: Conversation, request: CountTokensRequest) -> None:
    """Begin with the instructions, but for a first block that counts for billing alone."""
    if isinstance(request.system, str):
        conversation.instruct([request.system], "system")
        return
    blocks = request.system
    if blocks and blocks[0].text.startswith(_BILLING):
        conversation.left_out.append("system.x-anthropic-billing-header")
        blocks = blocks[1:]
    for block in blocks:
        conversation.note(block)
    conversation.instruct([block.text for block in blocks], "system")


def _form(given: dict[str, Any] | None) -> dict[str, Any]:
    """The form of the answer; a schema is always held to, as with Anthropic."""
    if given is None:
        return {}
    if given.get("type") != "json_schema":
        return {"response_format": given}
    schema = {"name": "output", "schema": given.get("schema"), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _unread(request: CountTokensRequest) -> list[str]:
    """The names of fields that are not read, outside of messages and tools."""
    names = [name for name in request.model_extra or () if name not in _TAKEN]
    for key, part in (("thinking", request.thinking), ("output_config", request.output_config)):
        names += [f"{key}.{name}" for name in (part.model_extra or () if part is not None else ())]
    effort = request.output_config.effort
    return names + ["output_config.effort"] * (effort is not None and effort not in _EFFORTS)
