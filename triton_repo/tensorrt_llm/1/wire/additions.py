"""Inputs that only some engines take (wire contract 1.3 and 2.8).

An adapter, rows of embeddings, a draft; a nucleus that shrinks, beams, and how long the KV cache keeps blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wire.request import Beams, Draft, LoraTask, PromptTable, RejectedError, RetainedRange, Retention
from wire.tensor_reader import TensorReader

LORA, PROMPT_TABLE, DRAFT = "lora", "prompt_table", "draft"
TOP_P_DECAY, BEAMS, RETENTION = "top_p_decay", "beams", "retention"
_PER_RANGE = ("starts", "ends", "priorities", "durations_ms")

# By what an engine must have to be sent them; the others reject them in these words. Beams are rejected by their width.
REFUSALS: dict[str, tuple[tuple[str, ...], str]] = {
    LORA: (("lora_task_id", "lora_weights", "lora_config"), "lora: the engine was not built with the LoRA plugin"),
    PROMPT_TABLE: (
        ("prompt_embedding_table", "prompt_vocab_size", "prompt_table_extra_ids"),
        "prompt_embedding_table: the engine was not built with a prompt table",
    ),
    DRAFT: (
        ("draft_input_ids", "draft_logits", "draft_acceptance_threshold"),
        "draft_input_ids: the engine does not accept draft tokens",
    ),
    TOP_P_DECAY: (
        ("runtime_top_p_min", "runtime_top_p_decay", "runtime_top_p_reset_ids"),
        "{name} is not supported by the engine",
    ),
    RETENTION: (
        (
            *(f"retention_token_range_{part}" for part in _PER_RANGE),
            "retention_decode_priority",
            "retention_decode_duration_ms",
        ),
        "{name} is not supported by the engine",
    ),
}


def refusals(takes: frozenset[str]) -> dict[str, str]:
    """Inputs that an engine rejects, with the words of the error.

    Args:
        takes: the additions that it has.
    """
    rejected = [REFUSALS[kind] for kind in REFUSALS.keys() - takes]
    return {name: words.format(name=name) for names, words in rejected for name in names}


def parse_lora(read: TensorReader) -> LoraTask | None:
    """The adapter of a request.

    Its tensors are ``lora_task_id`` UINT64 [1, 1], ``lora_weights`` FP16 [1, rows, width] and ``lora_config`` INT32
    [1, rows, 3].

    Raises:
        RejectedError: weights without a task id, or one of the two without the other, in TensorRT-LLM's words.
    """
    task, weights, rows = read.scalar("lora_task_id"), read.row("lora_weights"), read.row("lora_config")
    if task is None and weights is None and rows is None:
        return None
    if task is None:
        raise RejectedError("lora_task_id must be set for LoRA inference")
    if (weights is None) != (rows is None):
        raise RejectedError("Request for LoRA inference must have both lora_weights and lora_keys")
    return LoraTask(int(task), _copy(weights), _copy(rows))


def parse_prompt_table(read: TensorReader) -> PromptTable | None:
    """The prompt table of a request.

    Its tensors are ``prompt_embedding_table`` FP16 [1, rows, hidden], ``prompt_vocab_size`` INT32 [1, 1] and
    ``prompt_table_extra_ids`` UINT64 [1, prompt].

    Raises:
        RejectedError: a part without the others, or a size that the table does not have.
    """
    table, size, extra = (
        read.row("prompt_embedding_table"),
        read.scalar("prompt_vocab_size"),
        read.row("prompt_table_extra_ids"),
    )
    if table is None and size is None and extra is None:
        return None
    if table is None or size is None:
        raise RejectedError("prompt_embedding_table and prompt_vocab_size must be given together")
    if size != len(table):
        raise RejectedError(f"prompt_vocab_size is {size}, but prompt_embedding_table has {len(table)} rows")
    if not np.isfinite(table).all():
        raise RejectedError("prompt_embedding_table must be finite")
    extra_ids = () if extra is None else tuple(int(value) for value in extra.reshape(-1))
    return PromptTable(table.astype(np.float32), extra_ids)


def parse_draft(read: TensorReader) -> Draft:
    """The draft.

    Its tensors are ``draft_input_ids`` INT32 [1, tokens], ``draft_logits`` FP32 [1, tokens, vocabulary] and
    ``draft_acceptance_threshold`` FP32 [1, 1].

    Raises:
        RejectedError: a part without those that it belongs to, or a value that no draft can have.
    """
    ids, logits, threshold = (
        read.row("draft_input_ids"),
        read.row("draft_logits"),
        read.scalar("draft_acceptance_threshold"),
    )
    if logits is not None and ids is None:
        raise RejectedError("draft_logits must be given together with draft_input_ids")
    if threshold is not None and logits is None:
        raise RejectedError("draft_acceptance_threshold must be given together with draft_logits")
    if threshold is not None and not 0 < threshold <= 1:
        raise RejectedError("draft_acceptance_threshold must be above 0, to 1")
    if logits is not None and np.isnan(logits).any():
        raise RejectedError("draft_logits must not hold NaN")
    return Draft(() if ids is None else tuple(ids.reshape(-1).tolist()), _copy(logits), threshold)


class Decay(NamedTuple):
    """The decay of top-p; see `Sampling`."""

    factor: float = 1.0
    least: float = 0.0
    reset_id: int = -1


def parse_top_p_decay(read: TensorReader) -> Decay:
    """The decay of a request's top-p.

    Its tensors are ``runtime_top_p_decay``, ``runtime_top_p_min`` FP32 and ``runtime_top_p_reset_ids`` INT32, [1, 1].

    Raises:
        RejectedError: a value that TensorRT-LLM does not take; or no top-p sampling, where engines differ: some would
            drop the decay silently.
    """
    names = ("runtime_top_p_decay", "runtime_top_p_min", "runtime_top_p_reset_ids")
    if all(read.scalar(name) is None for name in names):
        return Decay()
    if read.scalar("runtime_top_p_decay") is None:
        raise RejectedError("runtime_top_p_min and runtime_top_p_reset_ids have no effect without runtime_top_p_decay")
    if read.scalar("runtime_top_k") or not (read.scalar("runtime_top_p") or 0) > 0:
        raise RejectedError("runtime_top_p_decay goes with runtime_top_p, and without runtime_top_k")
    factor, least = read.number("runtime_top_p_decay", 1.0), read.scalar("runtime_top_p_min")
    if not 0 < factor <= 1:
        raise RejectedError("runtime_top_p_decay must be above 0, to 1")
    if least is not None and not 0 < least <= 1:
        raise RejectedError("runtime_top_p_min must be above 0, to 1")
    reset = read.scalar("runtime_top_p_reset_ids")
    return Decay(factor, least or 0.0, -1 if reset is None else int(reset))


def parse_beams(read: TensorReader) -> Beams:
    """The beam search of a request.

    Its tensors are ``beam_width`` INT32, ``len_penalty`` and ``beam_search_diversity_rate`` FP32, ``early_stopping``
    BOOL, all [1, 1]; the last three mean nothing without beams, as in TensorRT-LLM.

    Raises:
        RejectedError: a width below 1.
    """
    width = read.scalar("beam_width")
    if width is None or width == 1:
        return Beams()
    if width < 1:
        raise RejectedError(f"beam_width must be at least 1, not {width}")
    penalty, rate, early = (
        read.scalar(name) for name in ("len_penalty", "beam_search_diversity_rate", "early_stopping")
    )
    return Beams(int(width), penalty, rate, None if early is None else int(early))


def parse_retention(read: TensorReader) -> Retention | None:
    """The time for which the KV cache is to keep the blocks of a request.

    Its tensors are ``retention_token_range_starts``, ``_ends`` (-1 is open), ``_priorities`` and ``_durations_ms`` (-1
    is for ever), INT32 [1, ranges], and ``retention_decode_priority`` and ``_duration_ms``, INT32 [1, 1].

    Raises:
        RejectedError: tensors of other lengths, or a value that none can have.
    """
    rows = [read.row(f"retention_token_range_{part}") for part in _PER_RANGE]
    priority, duration = read.scalar("retention_decode_priority"), read.scalar("retention_decode_duration_ms")
    if all(row is None for row in rows) and priority is None and duration is None:
        return None
    starts, ends, priorities, durations = ([] if row is None else row.reshape(-1).tolist() for row in rows)
    durations = durations or [-1] * len(starts)
    if not len(starts) == len(ends) == len(priorities) == len(durations):
        raise RejectedError("retention_token_range_starts, _ends, _priorities and _durations_ms must be as many")
    ranges = tuple(
        RetainedRange(start, None if end == -1 else end, least, None if ms == -1 else ms)
        for start, end, least, ms in zip(starts, ends, priorities, durations, strict=True)
    )
    for one in ranges:
        if one.start < 0 or (one.end is not None and one.end <= one.start):
            raise RejectedError(f"retention_token_range_starts, _ends: there is no range from {one.start} to {one.end}")
    given = [one.priority for one in ranges] + ([] if priority is None else [priority])
    if not all(0 <= value <= 100 for value in given):
        raise RejectedError("retention_token_range_priorities and retention_decode_priority must be from 0 to 100")
    decode_ms = None if duration in (None, -1) else int(duration)
    if any(ms is not None and ms < 0 for ms in (decode_ms, *(one.duration_ms for one in ranges))):
        raise RejectedError("retention_token_range_durations_ms and retention_decode_duration_ms must not be negative")
    return Retention(ranges, priority, decode_ms)


def _copy(array: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if array is None else array.copy()  # Triton's memory is only lent
