"""Tensors of the model ``tensorrt_llm`` (wire contract 1.3) to engine requests, and engine responses to tensors.

Pure: arrays in, arrays out, whatever carries them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from kept_arrays import count, one_id
from numpy.typing import NDArray
from reference.request import (
    GUIDE_KINDS,
    NO_DRAFT,
    NO_GUIDED_DECODER,
    Guide,
    Perf,
    PromptScores,
    RefusedError,
    Request,
    Response,
    Sampling,
)
from reference.words import Words, unpack_words
from wire_additions import (
    BEAMS,
    DRAFT,
    LORA,
    PROMPT_TABLE,
    beam_tensors,
    parse_beams,
    parse_draft,
    parse_lora,
    parse_prompt_table,
    parse_retention,
    parse_top_p_decay,
    refusals,
)

Tensors = dict[str, NDArray[Any]]

ABSENT: NDArray[Any] = np.zeros(0, np.bool_)
MAX_TOP_K = 1024
MAX_TOP_LOG_PROBS = 20

# Absent, empty, zero or false they mean nothing; anything else this engine cannot do, and says so.
_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
_REFUSED = dict.fromkeys(_LOOKAHEAD, "lookahead decoding is not supported by the engine")
_UNSUPPORTED = (
    "no_repeat_ngram_size",
    "medusa_choices",
    "eagle_choices",
    "decoder_input_ids",
    "encoder_input_features",
    "encoder_output_lengths",
    "cross_attention_mask",
    "skip_cross_attn_blocks",
    "mrope_rotary_cos_sin",
    "mrope_position_deltas",
    "context_phase_params",
)
_REFUSED.update({name: f"{name} is not supported by the engine" for name in _UNSUPPORTED})

# What ``always_emit`` sends for an output that a request did not ask for.
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


@dataclass(frozen=True)
class Wanted:
    """Which optional outputs a request asked for, beside what its `Request` says."""

    num_input_tokens: bool = False
    num_output_tokens: bool = False
    finish_reason: bool = False


class _Reader:
    """Typed access to the inputs of one request; an empty tensor counts as absent."""

    def __init__(self, inputs: Mapping[str, NDArray[Any]]) -> None:
        self._inputs = {name: array for name, array in inputs.items() if array.size}

    def scalar(self, name: str) -> Any:
        """First value of a tensor as a Python value, None when absent."""
        return self._inputs[name].reshape(-1)[0].item() if name in self._inputs else None

    def text(self, name: str) -> str | None:
        """First string of a tensor, None when absent."""
        if name not in self._inputs:
            return None
        value = self._inputs[name].reshape(-1)[0]
        try:
            return value.decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            raise RefusedError(f"{name} must be UTF-8") from None

    def required(self, name: str) -> int:
        value = self.scalar(name)
        if value is None:
            raise RefusedError(f"A value is required for {name}")
        return int(value)

    def flag(self, name: str) -> bool:
        return bool(self.scalar(name))

    def number(self, name: str, default: float) -> float:
        value = self.scalar(name)
        if value is None:
            return default
        if not math.isfinite(value):
            raise RefusedError(f"{name} must be finite")
        return float(value)

    def row(self, name: str) -> NDArray[Any] | None:
        """A tensor without its batch dimension, None when absent."""
        if name not in self._inputs:
            return None
        array = self._inputs[name]
        if array.shape[0] != 1:
            raise RefusedError(f"{name} has batch size {array.shape[0]}; send one sequence per request")
        row: NDArray[Any] = array[0]
        return row

    def words(self, name: str) -> Words:
        packed = self.row(name)
        return () if packed is None else unpack_words(name, packed)

    def logits_flag(self, name: str, *, gathered: bool) -> bool:
        wanted = self.flag(name)
        if wanted and not gathered:
            kind = name.removeprefix("return_").replace("_", " ")
            raise RefusedError(f"{name}: the engine does not gather {kind}")
        return wanted

    def refuse_unsupported(self, takes: frozenset[str]) -> None:
        for name, message in {**_REFUSED, **refusals(takes)}.items():
            if name not in self._inputs:
                continue
            array = self._inputs[name]
            asked = array.any() if array.dtype == np.bool_ else True
            if asked:
                raise RefusedError(message)
        if BEAMS not in takes and (beams := self.scalar("beam_width") or 1) > 1:
            raise RefusedError(f"Requested beam width {beams} is larger than the maximum beam width 1")
        if (sequences := self.scalar("num_return_sequences") or 1) > 1:
            raise RefusedError(f"num_return_sequences {sequences} is not supported by the engine")


def parse(
    inputs: Mapping[str, NDArray[Any]],
    *,
    request_id: str,
    exclude_input: bool,
    gathers_logits: bool = False,
    guided: bool = False,
    takes: frozenset[str] = frozenset(),
    is_cancelled: Callable[[], bool] = bool,
) -> tuple[Request, Wanted]:
    """Read the tensors of one request.

    Args:
        inputs: tensors by name, with their batch dimension of 1.
        request_id: Triton's request id.
        exclude_input: the model parameter ``exclude_input_in_output``, for requests that do not say.
        gathers_logits: whether the engine answers with logits.
        guided: whether the engine has a guided decoder.
        takes: which of the additions of `wire_additions` the engine takes.
        is_cancelled: whether the client is gone.

    Raises:
        RefusedError: something missing, invalid or not supported, by name.
    """
    read = _Reader(inputs)
    read.refuse_unsupported(takes)
    prompt = _parse_prompt(read)
    excluded = read.scalar("exclude_input_in_output")
    end_id = read.scalar("end_id")
    prompt_top = read.scalar("num_prompt_log_probs")
    request = Request(
        id=request_id,
        prompt=prompt,
        max_tokens=read.required("request_output_len"),
        end_id=-1 if end_id is None else end_id,
        stop_words=read.words("stop_words_list"),
        sampling=_parse_sampling(read),
        streaming=read.flag("streaming"),
        echo=not (exclude_input if excluded is None else excluded),
        log_probs=read.flag("return_log_probs"),
        top_log_probs=_within("num_top_log_probs", read.scalar("num_top_log_probs") or 0, 0, MAX_TOP_LOG_PROBS),
        prompt_log_probs=None
        if prompt_top is None
        else _within("num_prompt_log_probs", prompt_top, 0, MAX_TOP_LOG_PROBS),
        context_logits=read.logits_flag("return_context_logits", gathered=gathers_logits),
        generation_logits=read.logits_flag("return_generation_logits", gathered=gathers_logits),
        perf_metrics=read.flag("return_perf_metrics"),
        guide=_parse_guide(read, guided=guided),
        lora=parse_lora(read) if LORA in takes else None,
        prompt_table=parse_prompt_table(read) if PROMPT_TABLE in takes else None,
        draft=parse_draft(read) if DRAFT in takes else NO_DRAFT,
        beams=parse_beams(read),
        retention=parse_retention(read),
        cache_salt=read.text("cache_salt") or "",
        is_cancelled=is_cancelled,
    )
    wanted = Wanted(
        num_input_tokens=read.flag("return_num_input_tokens"),
        num_output_tokens=read.flag("return_num_output_tokens"),
        finish_reason=read.flag("return_finish_reason"),
    )
    return request, wanted


def _parse_prompt(read: _Reader) -> list[int]:
    row = read.row("input_ids")
    if row is None:
        raise RefusedError("A value is required for input_ids")
    length = read.required("input_lengths")
    if not 0 < length <= row.size:
        raise RefusedError(f"input_lengths is {length}, but input_ids holds {row.size} tokens")
    ids: list[int] = row.reshape(-1)[:length].tolist()
    return ids


def _parse_guide(read: _Reader, *, guided: bool) -> Guide | None:
    kind, text = read.text("guided_decoding_guide_type"), read.text("guided_decoding_guide")
    if not kind and not text:
        return None
    if not guided:
        raise RefusedError(NO_GUIDED_DECODER)
    if kind not in GUIDE_KINDS:
        raise RefusedError(f"guided_decoding_guide_type must be one of {', '.join(GUIDE_KINDS)}")
    if not text and kind != "json":
        raise RefusedError("The guide string must be provided unless using GuideType::kJSON.")
    return Guide(kind, text or "")


def _parse_sampling(read: _Reader) -> Sampling:
    top_k, top_p = read.scalar("runtime_top_k"), read.scalar("runtime_top_p")
    temperature = read.scalar("temperature")
    if temperature is not None and read.number("temperature", 1.0) < 0:
        raise RefusedError("temperature must not be negative")
    if top_p is not None and read.number("runtime_top_p", 0.0) > 1:
        raise RefusedError("runtime_top_p must be at most 1")
    repetition_penalty = read.number("repetition_penalty", 1.0)
    if repetition_penalty <= 0:
        raise RefusedError("repetition_penalty must be above 0")
    min_p = read.number("min_p", 0.0)
    if not 0 <= min_p <= 1:
        raise RefusedError("min_p must be from 0 to 1")
    decay = parse_top_p_decay(read)
    bias = read.row("embedding_bias")
    if bias is not None and np.isnan(bias).any():
        raise RefusedError("embedding_bias must not hold NaN")
    return Sampling(
        temperature=temperature,
        top_k=None if top_k is None else _within("runtime_top_k", top_k, 0, MAX_TOP_K),
        top_p=top_p,
        min_p=min_p,
        top_p_decay=decay.factor,
        top_p_min=decay.least,
        top_p_reset_id=decay.reset_id,
        repetition_penalty=repetition_penalty,
        presence_penalty=read.number("presence_penalty", 0.0),
        frequency_penalty=read.number("frequency_penalty", 0.0),
        min_tokens=max(read.scalar("min_tokens") or 0, 0),
        seed=int(read.scalar("seed") or 0),
        bias=None if bias is None else bias.reshape(-1),
        bad_words=read.words("bad_words_list"),
    )


def _within(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise RefusedError(f"{name} must be from {low} to {high}, not {value}")
    return value


def to_tensors(response: Response, wanted: Wanted) -> Tensors:
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
    if wanted.num_input_tokens:
        tensors["num_input_tokens"] = count(len(request.prompt))
    if wanted.num_output_tokens:
        tensors["num_output_tokens"] = count(len(ids) + sum(len(beam.ids) for beam in response.beams))
    if wanted.finish_reason and response.finish:
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


def default_output(name: str) -> NDArray[Any]:
    """What stands for an output that was not asked for: zeros, or nothing, or an empty string.

    Raises:
        KeyError: not an output of this model.
    """
    dtype, shape = DEFAULT_OUTPUTS[name]
    return np.full(shape, b"" if dtype is np.object_ else 0, dtype)
