"""Input tensors of the model ``tensorrt_llm`` (wire contract 1.3) to engine requests. Pure: arrays in, values out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wire.additions import (
    BEAMS,
    DRAFT,
    LORA,
    PROMPT_TABLE,
    parse_beams,
    parse_draft,
    parse_lora,
    parse_prompt_table,
    parse_retention,
    parse_top_p_decay,
    refusals,
)
from wire.request import GUIDE_KINDS, NO_DRAFT, NO_GUIDED_DECODER, Guide, RejectedError, Request, Sampling
from wire.tensor_reader import TensorReader

MAX_TOP_K = 1024
MAX_TOP_LOG_PROBS = 20

# Absent, empty or false they mean nothing; anything else no engine here can do.
_LOOKAHEAD = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
_REJECTED = dict.fromkeys(_LOOKAHEAD, "lookahead decoding is not supported by the engine")
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
_REJECTED.update({name: f"{name} is not supported by the engine" for name in _UNSUPPORTED})


def parse(
    inputs: Mapping[str, NDArray[Any]],
    *,
    request_id: str,
    exclude_input: bool,
    gathers_logits: bool = False,
    guided: bool = False,
    takes: frozenset[str] = frozenset(),
    is_cancelled: Callable[[], bool] = bool,
) -> Request:
    """Read the tensors of one request.

    Args:
        inputs: tensors by name, with their batch dimension of 1.
        request_id: Triton's request id.
        exclude_input: the model parameter ``exclude_input_in_output``, for requests that do not say.
        gathers_logits: whether the engine answers with logits.
        guided: whether the engine has a guided decoder.
        takes: the additions of `wire.additions` that the engine takes.
        is_cancelled: whether the client is gone.

    Raises:
        RejectedError: something missing, invalid or not supported, by name.
    """
    read = TensorReader(inputs)
    _reject_unsupported(read, takes)
    excluded, end_id = read.scalar("exclude_input_in_output"), read.scalar("end_id")
    return Request(
        id=request_id,
        prompt=_parse_prompt(read),
        max_tokens=read.required("request_output_len"),
        end_id=-1 if end_id is None else end_id,
        stop_words=read.words("stop_words_list"),
        sampling=_parse_sampling(read),
        streaming=read.flag("streaming"),
        echo=not (exclude_input if excluded is None else excluded),
        log_probs=read.flag("return_log_probs"),
        top_log_probs=read.count("num_top_log_probs", MAX_TOP_LOG_PROBS) or 0,
        prompt_log_probs=read.count("num_prompt_log_probs", MAX_TOP_LOG_PROBS),
        context_logits=_parse_logits(read, "context", gathered=gathers_logits),
        generation_logits=_parse_logits(read, "generation", gathered=gathers_logits),
        perf_metrics=read.flag("return_perf_metrics"),
        num_input_tokens=read.flag("return_num_input_tokens"),
        num_output_tokens=read.flag("return_num_output_tokens"),
        finish_reason=read.flag("return_finish_reason"),
        guide=_parse_guide(read, guided=guided),
        lora=parse_lora(read) if LORA in takes else None,
        prompt_table=parse_prompt_table(read) if PROMPT_TABLE in takes else None,
        draft=parse_draft(read) if DRAFT in takes else NO_DRAFT,
        beams=parse_beams(read),
        retention=parse_retention(read),
        cache_salt=read.text("cache_salt") or "",
        is_cancelled=is_cancelled,
    )


def _reject_unsupported(read: TensorReader, takes: frozenset[str]) -> None:
    for name, message in {**_REJECTED, **refusals(takes)}.items():
        if read.asks_for(name):
            raise RejectedError(message)
    if BEAMS not in takes and (beams := read.scalar("beam_width") or 1) > 1:
        raise RejectedError(f"Requested beam width {beams} is larger than the maximum beam width 1")
    if (sequences := read.scalar("num_return_sequences") or 1) > 1:
        raise RejectedError(f"num_return_sequences {sequences} is not supported by the engine")


def _parse_prompt(read: TensorReader) -> list[int]:
    row = read.row("input_ids")
    if row is None:
        raise RejectedError("A value is required for input_ids")
    length = read.required("input_lengths")
    if not 0 < length <= row.size:
        raise RejectedError(f"input_lengths is {length}, but input_ids holds {row.size} tokens")
    ids: list[int] = row.reshape(-1)[:length].tolist()
    return ids


def _parse_logits(read: TensorReader, kind: str, *, gathered: bool) -> bool:
    name = f"return_{kind}_logits"
    wanted = read.flag(name)
    if wanted and not gathered:
        raise RejectedError(f"{name}: the engine does not gather {kind} logits")
    return wanted


def _parse_guide(read: TensorReader, *, guided: bool) -> Guide | None:
    kind, text = read.text("guided_decoding_guide_type"), read.text("guided_decoding_guide")
    if not kind and not text:
        return None
    if not guided:
        raise RejectedError(NO_GUIDED_DECODER)
    if kind not in GUIDE_KINDS:
        raise RejectedError(f"guided_decoding_guide_type must be one of {', '.join(GUIDE_KINDS)}")
    if not text and kind != "json":
        raise RejectedError("The guide string must be provided unless using GuideType::kJSON.")
    return Guide(kind, text or "")


def _parse_sampling(read: TensorReader) -> Sampling:
    temperature, top_p = read.scalar("temperature"), read.scalar("runtime_top_p")
    if temperature is not None and read.number("temperature", 1.0) < 0:
        raise RejectedError("temperature must not be negative")
    if top_p is not None and read.number("runtime_top_p", 0.0) > 1:
        raise RejectedError("runtime_top_p must be at most 1")
    repetition_penalty = read.number("repetition_penalty", 1.0)
    if repetition_penalty <= 0:
        raise RejectedError("repetition_penalty must be above 0")
    min_p = read.number("min_p", 0.0)
    if not 0 <= min_p <= 1:
        raise RejectedError("min_p must be from 0 to 1")
    decay = parse_top_p_decay(read)
    bias = read.row("embedding_bias")
    if bias is not None and np.isnan(bias).any():
        raise RejectedError("embedding_bias must not hold NaN")
    return Sampling(
        temperature=temperature,
        top_k=read.count("runtime_top_k", MAX_TOP_K),
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
