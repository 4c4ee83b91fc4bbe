"""A whole answer as one body."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from gateway.generation import TokenLogprob, Usage
from gateway.openai.chat.chunks import usage_object
from gateway.openai.chat.logprobs import logprobs_object


def completion_body(
    completion_id: str,
    created: int,
    model: str,
    *,
    text: str,
    logprobs: Sequence[TokenLogprob] | None,
    finish_reason: str,
    usage: Usage,
) -> bytes:
    """The ``chat.completion`` object.

    Args:
        completion_id: the answer's id.
        created: Unix time.
        model: the served model's name.
        text: the whole text.
        logprobs: entries of all its tokens; None when they were not asked for.
        finish_reason: why it ended.
        usage: its token counts.
    """
    return orjson.dumps(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "system_fingerprint": None,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None if logprobs is None else logprobs_object(logprobs),
                    "finish_reason": finish_reason,
                }
            ],
            "usage": usage_object(usage),
        }
    )
