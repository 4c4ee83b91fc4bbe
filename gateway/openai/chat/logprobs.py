"""Log-prob entries in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.generation import TokenLogprob
from gateway.generation.token_logprobs import named_by_id


def logprobs_object(entries: Sequence[TokenLogprob], *, names_as_ids: bool = False) -> dict[str, Any]:
    """The ``logprobs`` object of a choice; ``bytes`` is a list of integers, as OpenAI has it.

    Args:
        entries: of its tokens.
        names_as_ids: whether tokens are named by their ids.
    """
    if names_as_ids:
        entries = list(map(named_by_id, entries))
    return {"content": [_entry(entry) for entry in entries], "refusal": None}


def _entry(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.bytes),
        "top_logprobs": [
            {"token": token, "logprob": logprob, "bytes": list(data)} for token, data, logprob in entry.top
        ],
    }
