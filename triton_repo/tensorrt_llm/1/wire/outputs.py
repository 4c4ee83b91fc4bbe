"""Engine responses to the output tensors of the model ``tensorrt_llm`` (wire contract 1.3 and 3.3).

Pure: values in, arrays out. Arrays of one number, which come again and again, are made once for each value; they are
read-only, and their tensors are kept too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wire.request import Request
from wire.response import Perf, PromptScores, Response

Tensors = dict[str, NDArray[Any]]

# Types and shapes of the stand-ins that ``always_emit`` sends for outputs that a request did not ask for.
DEFAULT_OUTPUTS: dict[str, tuple[type[Any], tuple[int, ...]]] = {
    "cum_log_probs": (np.float32, (1, 1)),
    "output_log_probs": (np.float32, (1, 1, 0)),
    "context_logits": (np.float32, (1, 0, 0)),
    "generation_logits": (np.float32, (1, 0, 0, 0)),
    "batch_index": (np.int32, (1, 1)),
    "sequence_index": (np.int32, (1, 1)),
    "kv_cache_alloc_new_blocks": (np.int32, (1, 1)),
    "kv_cache_reused_blocks": (np.int32, (1, 1)),
    "kv_cache_alloc_total_blocks": (np.int32, (1, 1)),
    "arrival_time_ns": (np.int64, (1, 1)),
    "first_scheduled_time_ns": (np.int64, (1, 1)),
    "first_token_time_ns": (np.int64, (1, 1)),
    "last_token_time_ns": (np.int64, (1, 1)),
    "acceptance_rate": (np.float32, (1, 1)),
    "total_accepted_draft_tokens": (np.int32, (1, 1)),
    "total_draft_tokens": (np.int32, (1, 1)),
    "num_input_tokens": (np.int32, (1, 1)),
    "num_output_tokens": (np.int32, (1, 1)),
    "finish_reason": (np.object_, (1, 1)),
    "top_log_probs_ids": (np.int32, (1, 0, 0)),
    "top_log_probs": (np.float32, (1, 0, 0)),
    "prompt_log_probs": (np.float32, (1, 0)),
    "prompt_log_probs_ranks": (np.int32, (1, 0)),
    "prompt_top_log_probs_ids": (np.int32, (1, 0, 0)),
    "prompt_top_log_probs": (np.float32, (1, 0, 0)),
    "num_cached_tokens": (np.int32, (1, 1)),
}


def to_tensors(response: Response) -> Tensors:
    """Outputs of one response by name, with their wire shapes (wire contract 1.3 and 3.3).

    Returns:
        ``output_ids`` INT32 [1, 1, L] and ``sequence_length`` INT32 [1, 1] always; ``output_log_probs`` FP32 [1, 1, T]
        and ``cum_log_probs`` FP32 [1, 1] over all T generated tokens; ``top_log_probs_ids`` INT32 and ``top_log_probs``
        FP32 [1, new, k]; ``num_input_tokens``, ``num_output_tokens`` INT32 [1, 1]; ``finish_reason`` STRING [1, 1] on
        the last response. On the first response ``prompt_log_probs`` FP32 and ``prompt_log_probs_ranks`` INT32
        [1, P - 1], ``prompt_top_log_probs_ids`` and ``prompt_top_log_probs`` [1, P - 1, k], ``context_logits`` FP32
        [1, P, vocab]. ``generation_logits`` FP32 [1, 1, limit, vocab], streaming [1, new, 1, vocab]. On the last one
        ``kv_cache_*``, ``num_cached_tokens`` and ``total_*draft_tokens`` INT32, ``acceptance_rate`` FP32 and the times
        INT64 [1, 1]. Beams: see `beam_tensors`.
    """
    request, ids = response.request, response.ids
    tensors: Tensors = {
        "output_ids": one_id(ids[0]) if len(ids) == 1 else np.asarray(ids, np.int32).reshape(1, 1, -1),
        "sequence_length": count(len(ids)),
    }
    if response.beams:
        tensors = beam_tensors(response)
    elif request.log_probs:
        tensors["output_log_probs"] = np.asarray(response.log_probs, np.float32).reshape(1, 1, -1)
        tensors["cum_log_probs"] = np.array([[response.cum_log_prob]], np.float32)
    if request.top_log_probs:
        tensors |= _alternatives("top_log_probs", response.top_log_probs, request.top_log_probs)
    if response.logits is not None:
        rows = response.logits[:, None] if request.streaming else response.logits[None]
        tensors["generation_logits"] = rows[None]
    if request.num_input_tokens:
        tensors["num_input_tokens"] = count(len(request.prompt))
    if request.num_output_tokens:
        tensors["num_output_tokens"] = count(len(ids) + sum(len(beam.ids) for beam in response.beams))
    if request.finish_reason and response.finish:
        tensors["finish_reason"] = np.array([[response.finish.encode()]], np.object_)
    if response.prompt is not None:
        tensors |= _prompt_tensors(request, response.prompt)
    if response.perf is not None:
        tensors |= _perf_tensors(response.perf)
    return tensors


def _alternatives(name: str, tokens: Sequence[Sequence[tuple[int, float]]], k: int) -> Tensors:
    """Ids and log-probs, [1, tokens, k] each."""
    flat = [pair for token in tokens for pair in token]
    return {
        f"{name}_ids": np.array([token for token, _ in flat], np.int32).reshape(1, len(tokens), k),
        name: np.array([value for _, value in flat], np.float32).reshape(1, len(tokens), k),
    }


def _prompt_tensors(request: Request, scores: PromptScores) -> Tensors:
    tensors: Tensors = {}
    if request.prompt_log_probs is not None:
        tensors["prompt_log_probs"] = np.array([scores.log_probs], np.float32)
        tensors["prompt_log_probs_ranks"] = np.array([scores.ranks], np.int32)
    if k := request.prompt_log_probs:
        tensors |= _alternatives("prompt_top_log_probs", scores.top_log_probs, k)
    if scores.logits is not None:
        tensors["context_logits"] = scores.logits[None]
    return tensors


def _perf_tensors(perf: Perf) -> Tensors:
    counts: dict[str, int] = {}
    if perf.blocks is not None:
        total, reused = perf.blocks
        counts["kv_cache_alloc_total_blocks"] = total
        counts["kv_cache_alloc_new_blocks"] = total - reused
        counts["kv_cache_reused_blocks"] = reused
    if perf.cached_tokens is not None:
        counts["num_cached_tokens"] = perf.cached_tokens
    if perf.drafts is not None:
        counts["total_draft_tokens"], counts["total_accepted_draft_tokens"] = perf.drafts
    times = {
        "arrival_time_ns": perf.arrival_ns,
        "first_scheduled_time_ns": perf.first_scheduled_ns,
        "first_token_time_ns": perf.first_token_ns,
        "last_token_time_ns": perf.last_token_ns,
    }
    tensors: Tensors = {name: np.array([[value]], np.int32) for name, value in counts.items()}
    if perf.drafts is not None:
        total, accepted = perf.drafts
        tensors["acceptance_rate"] = np.array([[accepted / total]], np.float32)
    return tensors | {name: np.array([[value]], np.int64) for name, value in times.items() if value}


def beam_tensors(response: Response) -> dict[str, NDArray[Any]]:
    """All beams of an answer, the best one first (wire contract 1.3).

    Returns:
        ``output_ids`` INT32 [1, beams, L], those of shorter ones ended by -1; ``sequence_length`` INT32 [1, beams];
        where asked for, ``output_log_probs`` FP32 [1, beams, T], ended by 0, and ``cum_log_probs`` FP32 [1, beams].
    """
    beams = response.beams
    longest = max(len(beam.ids) for beam in beams)
    tensors: dict[str, NDArray[Any]] = {
        "output_ids": np.array([[beam.ids + [-1] * (longest - len(beam.ids)) for beam in beams]], np.int32),
        "sequence_length": np.array([[len(beam.ids) for beam in beams]], np.int32),
    }
    if response.request.log_probs:
        most = max(len(beam.log_probs) for beam in beams)
        rows = [beam.log_probs + [0.0] * (most - len(beam.log_probs)) for beam in beams]
        tensors["output_log_probs"] = np.array([rows], np.float32)
        tensors["cum_log_probs"] = np.array([[sum(beam.log_probs) for beam in beams]], np.float32)
    return tensors


def default_output(name: str) -> NDArray[Any]:
    """A stand-in for an output that was not asked for: zeros, nothing, or an empty string.

    Raises:
        KeyError: not an output of this model.
    """
    dtype, shape = DEFAULT_OUTPUTS[name]
    return np.full(shape, b"" if dtype is np.object_ else 0, dtype)


@lru_cache(1024)
def one_id(token: int) -> NDArray[np.int32]:
    """``output_ids`` of one token: INT32 [1, 1, 1]."""
    return _number(token, (1, 1, 1))


@lru_cache(1024)
def count(value: int) -> NDArray[np.int32]:
    """A number as INT32 [1, 1]."""
    return _number(value, (1, 1))


def _number(value: int, shape: tuple[int, ...]) -> NDArray[np.int32]:
    array = np.full(shape, value, np.int32)
    array.setflags(write=False)
    return array
