"""The request as its response repeats it: what was asked for as it came, and what was served where that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from gateway.config.model_settings import SamplingDefaults
from gateway.openai.repeated import repeated
from gateway.openai.responses.protocol import ResponsesRequest

if TYPE_CHECKING:
    from gateway.openai.responses.translate import Turn


def as_sent(request: ResponsesRequest) -> dict[str, orjson.Fragment]:
    """The fields that are repeated as they came and may be large, as JSON: they are written once, off the event loop.

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
    return {name: orjson.Fragment(repeated(value)) for name, value in fields.items()}


def echoed(turn: Turn, defaults: SamplingDefaults) -> dict[str, Any]:
    """The fields of a response that are known before its answer is.

    Args:
        turn: as the policies of the model let it pass.
        defaults: of the model, for fields that the request leaves out.
    """
    request, chat, sent = turn.request, turn.chat, turn.sent
    drawn = {
        name: getattr(chat, name) if name in chat.model_fields_set else defaults.given.get(name, getattr(chat, name))
        for name in ("temperature", "top_p")
    }
    return {
        "model": chat.model,
        "instructions": sent["instructions"],
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": sent["max_tool_calls"],
        "metadata": sent["metadata"],
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": chat.reasoning_effort, "summary": None},
        "safety_identifier": request.safety_identifier,
        "service_tier": chat.tier or "default",
        "store": turn.shelf is not None,
        **drawn,
        "text": sent["text"],
        "tool_choice": sent["tool_choice"],
        "tools": sent["tools"],
        "top_logprobs": request.top_logprobs or 0,
        "truncation": "disabled",
        "user": request.user,
        **({"conversation": {"id": request.conversation.id}} if request.conversation else {}),
    }
