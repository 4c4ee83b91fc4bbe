"""What one request asks of the engine, by the rules of TensorRT-LLM's executor (wire contract 1.3, 2.1 and 2.3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

_LONGEST_SHOWN = 4096
_GUIDES = ("json", "json_schema", "regex", "ebnf_grammar")


class RejectedError(ValueError):
    """A request that the engine does not take."""


@dataclass(frozen=True)
class Limits:
    """What the engine was built and set up for.

    Attributes:
        max_seq_len: tokens of prompt and answer together.
        vocab_size: width of the logits.
        guided: whether there is a guided decoder.
        echo: whether a whole answer begins with the prompt where the request does not say.
    """

    max_seq_len: int
    vocab_size: int
    guided: bool
    echo: bool


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        id: of the request; empty where the caller gave none.
        prompt: its token ids.
        max_tokens: as the engine clamps it.
        end_id: ends the answer and is no part of it; None where there is none.
        stop_words: token sequences that end the answer and stay in it.
        streaming: a response for each step.
        echo: the whole answer begins with the prompt.
        shown: names of the outputs that were asked for beyond the ids.
        effective: the parameters as the engine follows them.
        tensors: all that arrived.
    """

    id: str
    prompt: list[int]
    max_tokens: int
    end_id: int | None
    stop_words: list[list[int]]
    streaming: bool
    echo: bool
    shown: frozenset[str]
    effective: dict[str, Any]
    tensors: Tensors = field(repr=False)


def parse(request_id: str, tensors: Tensors, limits: Limits) -> Asked:
    """Read a request.

    Raises:
        RejectedError: in the engine's words (wire contract 2.10).
    """
    for name in ("input_ids", "request_output_len"):
        if name not in tensors:
            raise RejectedError(f"A value is required for {name}")
    prompt = [int(token) for token in tensors["input_ids"].reshape(-1)]
    if len(prompt) >= limits.max_seq_len:
        raise RejectedError(f"Prompt length ({len(prompt)}) exceeds maximum input length ({limits.max_seq_len - 1}).")
    max_tokens = min(int(_scalar(tensors, "request_output_len")), limits.max_seq_len - len(prompt))
    if max_tokens < 1:
        raise RejectedError("request_output_len must be at least 1")
    if (_scalar(tensors, "beam_width") or 1) > 1:
        raise RejectedError("Requested beam width 2 is larger than the max beam width 1")
    end_id = _scalar(tensors, "end_id")
    streaming = bool(_scalar(tensors, "streaming"))
    exclude = _scalar(tensors, "exclude_input_in_output")
    effective = _sampling(tensors) | {
        "max_tokens": max_tokens,
        "end_id": end_id,
        "stop_words": words(tensors, "stop_words_list"),
        "bad_words": words(tensors, "bad_words_list"),
        "logit_bias": _bias(tensors, limits.vocab_size),
        "guide": _guide(tensors, limits),
        "lora_task_id": _scalar(tensors, "lora_task_id"),
        "streaming": streaming,
    }
    return Asked(
        id=request_id,
        prompt=prompt,
        max_tokens=max_tokens,
        end_id=None if end_id is None or end_id < 0 else int(end_id),
        stop_words=effective["stop_words"],
        streaming=streaming,
        echo=not streaming and (limits.echo if exclude is None else not exclude),
        shown=frozenset(name for name in tensors if name.startswith("return_") and tensors[name].any()),
        effective=effective,
        tensors=tensors,
    )


def shown(tensors: Tensors) -> dict[str, Any]:
    """Tensors as JSON: their values, or the shape of large ones."""
    return {
        name: list(array.shape) if array.size > _LONGEST_SHOWN else _plain(array) for name, array in tensors.items()
    }


def words(tensors: Tensors, name: str) -> list[list[int]]:
    """A packed list of token sequences: ids in the first row, ends of words in the second (wire contract 1.4)."""
    if name not in tensors or not tensors[name].size:
        return []
    ids, ends = (row.tolist() for row in tensors[name].reshape(2, -1))
    starts = [0, *ends]
    return [ids[start:end] for start, end in zip(starts, ends, strict=False) if end > start]


def _sampling(tensors: Tensors) -> dict[str, Any]:
    """Sampling as the executor reads it: temperature 0 turns into 1 and makes greedy only what was given with it."""
    temperature, top_k, top_p = (_scalar(tensors, name) for name in ("temperature", "runtime_top_k", "runtime_top_p"))
    if temperature == 0:
        temperature = 1.0
        top_k = top_k if top_k is None else 1
        top_p = top_p if top_p is None else 1.0
    top_k, top_p = top_k or 0, max(top_p or 0.0, 0.0)
    greedy = top_k == 1 or (top_k == 0 and top_p == 0)
    return {
        "greedy": greedy,
        "temperature": _default(temperature, 1.0),
        "top_k": top_k,
        "top_p": top_p,
        "seed": _renamed(tensors, "seed", "random_seed", 0),
        "min_tokens": _renamed(tensors, "min_tokens", "min_length", 1),
        "repetition_penalty": _default(_scalar(tensors, "repetition_penalty"), 1.0),
        "presence_penalty": _default(_scalar(tensors, "presence_penalty"), 0.0),
        "frequency_penalty": _default(_scalar(tensors, "frequency_penalty"), 0.0),
    }


def _guide(tensors: Tensors, limits: Limits) -> dict[str, str] | None:
    kind = _scalar(tensors, "guided_decoding_guide_type")
    if kind is None:
        return None
    if not limits.guided:
        raise RejectedError("Request has a guide for guided decoding, but GuidedDecoder is not set up")
    if kind not in _GUIDES:  # in silence, as the C++ backend does it
        return None
    return {"kind": kind, "text": _scalar(tensors, "guided_decoding_guide") or ""}


def _bias(tensors: Tensors, vocab_size: int) -> dict[str, float]:
    """Biased ids; an array of zeros is none."""
    if "embedding_bias" not in tensors:
        return {}
    dense = tensors["embedding_bias"].reshape(-1)
    if dense.size not in (0, vocab_size):
        raise RejectedError(f"embedding_bias must have {vocab_size} values, not {dense.size}")
    return {str(token): float(dense[token]) for token in np.flatnonzero(dense)}


def _renamed(tensors: Tensors, name: str, older: str, default: int) -> int:
    value = _scalar(tensors, name)
    value = _scalar(tensors, older) if value is None else value
    return default if value is None else int(value)


def _default(value: Any, default: float) -> float:
    return default if value is None else float(value)


def _scalar(tensors: Tensors, name: str) -> Any:
    if name not in tensors or not tensors[name].size:
        return None
    value = tensors[name].reshape(-1)[0]
    return value.decode() if isinstance(value, bytes) else value.item() if isinstance(value, np.generic) else value


def _plain(array: NDArray[Any]) -> list[Any]:
    values = array.reshape(-1).tolist()
    return [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
