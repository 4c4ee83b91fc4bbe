"""Log-prob entries in OpenAI's shape."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.generation import TokenLogprob
from gateway.generation.token_logprobs import named_by_id

_MOST_NAMED = 16384  # tokens, of some 300 bytes each


def logprobs_object(entries: Sequence[TokenLogprob], *, names_as_ids: bool = False) -> dict[str, Any]:
    """The ``logprobs`` object of a choice; ``bytes`` is a list of integers, as OpenAI has it.

    Args:
        entries: of its tokens.
        names_as_ids: whether tokens are named by their ids.
    """
    if names_as_ids:
        entries = list(map(named_by_id, entries))
    return {"content": [_entry(entry) for entry in entries], "refusal": None}


def logprobs_json(entries: Sequence[TokenLogprob]) -> bytes:
    """The JSON of ``logprobs_object``, of which all but the numbers is known of tokens that came before."""
    return b'{"content":[' + b",".join(map(_entry_json, entries)) + b'],"refusal":null}'


def _entry_json(entry: TokenLogprob) -> bytes:
    before, after = _named(entry.token, entry.bytes)
    opened = before + orjson.dumps(entry.logprob) + after
    if not entry.top:
        return opened + b',"top_logprobs":[]}'
    top = b"},".join([_opened_json(*alternative) for alternative in entry.top])
    return opened + b',"top_logprobs":[' + top + b"}]}"


def _opened_json(token: str, data: bytes, logprob: float) -> bytes:
    before, after = _named(token, data)
    return before + orjson.dumps(logprob) + after


@functools.lru_cache(maxsize=_MOST_NAMED)
def _named(token: str, data: bytes) -> tuple[bytes, bytes]:
    """What an entry has before and behind its log-prob; its end is open."""
    return b'{"token":' + orjson.dumps(token) + b',"logprob":', b',"bytes":' + orjson.dumps(list(data))


def _entry(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.bytes),
        "top_logprobs": [
            {"token": token, "logprob": logprob, "bytes": list(data)} for token, data, logprob in entry.top
        ],
    }
