"""A whole answer as one body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.generation import PromptLogprob, TokenLogprob, Usage
from gateway.openai.chat.logprobs import logprobs_object
from gateway.openai.usage import usage_object


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice of an answer.

    Attributes:
        text: the whole text; None when there are calls in its place.
        finish_reason: why it ended.
        stop_reason: the stop string or id that ended it; None where something else did.
        logprobs: entries of all its tokens; None when they were not asked for.
        names_as_ids: whether the entries name tokens by their ids.
        token_ids: its ids; None when they were not asked for.
        message: fields of its message besides role, content and refusal.
    """

    text: str | None
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: Sequence[TokenLogprob] | None = None
    names_as_ids: bool = False
    token_ids: Sequence[int] | None = None
    message: Mapping[str, Any] = field(default_factory=dict)


def completion_body(
    completion_id: str,
    created: int,
    model: str,
    *,
    choices: Sequence[Choice],
    usage: Usage,
    extras: Mapping[str, Any] | None = None,
) -> bytes:
    """The ``chat.completion`` object.

    Args:
        completion_id: the answer's id.
        created: Unix time.
        model: the served model's name.
        choices: in order.
        usage: token counts over all of them.
        extras: further fields of the object.
    """
    return orjson.dumps(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [_choice(index, choice) for index, choice in enumerate(choices)],
            "usage": usage_object(usage),
            **(extras or {}),
        }
    )


def _choice(index: int, choice: Choice) -> dict[str, Any]:
    entries = choice.logprobs
    body = {
        "index": index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None, **choice.message},
        "logprobs": None if entries is None else logprobs_object(entries, names_as_ids=choice.names_as_ids),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    return body if choice.token_ids is None else {**body, "token_ids": choice.token_ids}


def prompt_logprobs_list(entries: Sequence[PromptLogprob]) -> list[dict[str, Any] | None]:
    """``prompt_logprobs`` as vLLM writes it: for each token an object by token id, null for the first.

    ``rank`` is null where the engine does not say it and the token is not among the alternatives.
    """
    rows: list[dict[str, Any] | None] = []
    for entry in entries:
        if entry.logprob is None:
            rows.append(None)
            continue
        row = {str(entry.index): {"logprob": entry.logprob, "rank": entry.rank, "decoded_token": entry.token}}
        for rank, (index, token, _, logprob) in enumerate(entry.top, start=1):
            row[str(index)] = {"logprob": logprob, "rank": rank, "decoded_token": token}
        rows.append(row)
    return rows
