"""The wire contract of Triton models: the tensors of each model that the gateway calls, as pure data.

The one source for the dialects, for rendered configurations and for the tests that compare it with ``triton_repo/``.
The tables are of TensorRT-LLM 1.2.1 (wire contract 1.1 to 1.6), that of the LLM API's model of 0.19 to 1.3 (8), that of
Triton's vLLM backend of 24.06 to 26.01 (10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Datatype = Literal["BOOL", "UINT8", "UINT32", "UINT64", "INT32", "INT64", "FP16", "FP32", "STRING", "LOGITS"]

_ON_THE_WIRE = {"STRING": "BYTES", "LOGITS": "FP32"}
ANY = -1
"""A dimension whose size varies."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model (wire contract 1.1 to 1.6).

    Attributes:
        name: as in ``config.pbtxt`` and on the wire.
        datatype: the configuration's type without ``TYPE_``. ``LOGITS`` stands for FP32 or FP16, the deployer's choice.
        dims: without the batch dimension, which every model has but that of the LLM API; ``ANY`` varies.
        optional: whether a request may leave it out. Outputs are always optional.
        older: the name before TensorRT-LLM 0.20, where it was renamed.
        extension: whether only this project's engines have it; never required.
    """

    name: str
    datatype: Datatype
    dims: tuple[int, ...] = (1,)
    optional: bool = True
    older: str | None = None
    extension: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the tensor, newest first."""
        return (self.name,) if self.older is None else (self.name, self.older)

    @property
    def wire_datatype(self) -> str:
        """The type's name on the wire, where STRING is BYTES and logits are FP32 unless configured otherwise."""
        return _ON_THE_WIRE.get(self.datatype, self.datatype)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The inputs and outputs of one model.

    Attributes:
        name: the stock name of the model.
        inputs: tensors that it may get.
        outputs: tensors that it may return.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


# Tensors that several models share under one name.
_SAMPLING = (
    TensorSpec("temperature", "FP32"),
    TensorSpec("repetition_penalty", "FP32"),
    TensorSpec("min_tokens", "INT32", older="min_length"),
    TensorSpec("presence_penalty", "FP32"),
    TensorSpec("frequency_penalty", "FP32"),
    TensorSpec("seed", "UINT64", older="random_seed"),
    TensorSpec("beam_width", "INT32"),
    TensorSpec("num_return_sequences", "INT32"),
)

_RETURNS = (
    TensorSpec("return_log_probs", "BOOL"),
    TensorSpec("return_context_logits", "BOOL"),
    TensorSpec("return_generation_logits", "BOOL"),
    TensorSpec("return_perf_metrics", "BOOL"),
    TensorSpec("return_num_input_tokens", "BOOL"),
    TensorSpec("return_num_output_tokens", "BOOL"),
    TensorSpec("exclude_input_in_output", "BOOL"),
)

_LORA = (
    TensorSpec("lora_task_id", "UINT64"),
    TensorSpec("lora_weights", "FP16", (ANY, ANY)),
    TensorSpec("lora_config", "INT32", (ANY, 3)),
)

_GUIDED_DECODING = (
    TensorSpec("guided_decoding_guide_type", "STRING"),
    TensorSpec("guided_decoding_guide", "STRING"),
)

_PROMPT_TABLE = (
    TensorSpec("prompt_embedding_table", "FP16", (ANY, ANY)),
    TensorSpec("prompt_vocab_size", "INT32"),
)

_COMMON_OUTPUTS = (
    TensorSpec("cum_log_probs", "FP32", (ANY,)),
    TensorSpec("output_log_probs", "FP32", (ANY, ANY)),
    TensorSpec("context_logits", "LOGITS", (ANY, ANY)),
    TensorSpec("generation_logits", "LOGITS", (ANY, ANY, ANY)),
    TensorSpec("batch_index", "INT32"),
    TensorSpec("sequence_index", "INT32"),
    TensorSpec("kv_cache_alloc_new_blocks", "INT32"),
    TensorSpec("kv_cache_reused_blocks", "INT32"),
    TensorSpec("kv_cache_alloc_total_blocks", "INT32"),
    TensorSpec("arrival_time_ns", "INT64"),
    TensorSpec("first_scheduled_time_ns", "INT64"),
    TensorSpec("first_token_time_ns", "INT64"),
    TensorSpec("last_token_time_ns", "INT64"),
    TensorSpec("acceptance_rate", "FP32"),
    TensorSpec("total_accepted_draft_tokens", "INT32"),
    TensorSpec("total_draft_tokens", "INT32"),
    TensorSpec("num_input_tokens", "INT32"),
    TensorSpec("num_output_tokens", "INT32"),
)

_TOKEN_OUTPUTS = (
    TensorSpec("output_ids", "INT32", (ANY, ANY)),
    TensorSpec("sequence_length", "INT32", (ANY,)),
)

_EXTENSION_INPUTS = (
    TensorSpec("return_finish_reason", "BOOL", extension=True),
    TensorSpec("num_top_log_probs", "INT32", extension=True),
    TensorSpec("num_prompt_log_probs", "INT32", extension=True),
    TensorSpec("min_p", "FP32", extension=True),
    TensorSpec("cache_salt", "STRING", extension=True),
)
_EXTENSION_OUTPUTS = (
    TensorSpec("finish_reason", "STRING", extension=True),
    TensorSpec("top_log_probs_ids", "INT32", (ANY, ANY), extension=True),
    TensorSpec("top_log_probs", "FP32", (ANY, ANY), extension=True),
    TensorSpec("prompt_log_probs", "FP32", (ANY,), extension=True),
    TensorSpec("prompt_log_probs_ranks", "INT32", (ANY,), extension=True),
    TensorSpec("prompt_top_log_probs_ids", "INT32", (ANY, ANY), extension=True),
    TensorSpec("prompt_top_log_probs", "FP32", (ANY, ANY), extension=True),
    TensorSpec("num_cached_tokens", "INT32", extension=True),
)


_RETENTION = (
    TensorSpec("retention_token_range_starts", "INT32", (ANY,)),
    TensorSpec("retention_token_range_ends", "INT32", (ANY,)),
    TensorSpec("retention_token_range_priorities", "INT32", (ANY,)),
    TensorSpec("retention_token_range_durations_ms", "INT32", (ANY,)),
    TensorSpec("retention_decode_priority", "INT32"),
    TensorSpec("retention_decode_duration_ms", "INT32"),
)

_ENGINE_INPUTS = (
    TensorSpec("input_ids", "INT32", (ANY,)),
    TensorSpec("input_lengths", "INT32", optional=False),
    TensorSpec("request_output_len", "INT32", optional=False),
    TensorSpec("end_id", "INT32"),
    TensorSpec("pad_id", "INT32"),
    TensorSpec("stop_words_list", "INT32", (2, ANY)),
    TensorSpec("bad_words_list", "INT32", (2, ANY)),
    TensorSpec("embedding_bias", "FP32", (ANY,)),
    TensorSpec("runtime_top_k", "INT32"),
    TensorSpec("runtime_top_p", "FP32"),
    TensorSpec("runtime_top_p_min", "FP32"),
    TensorSpec("runtime_top_p_decay", "FP32"),
    TensorSpec("runtime_top_p_reset_ids", "INT32"),
    TensorSpec("len_penalty", "FP32"),
    TensorSpec("early_stopping", "BOOL"),
    TensorSpec("beam_search_diversity_rate", "FP32"),
    TensorSpec("stop", "BOOL"),
    TensorSpec("streaming", "BOOL"),
    TensorSpec("draft_input_ids", "INT32", (ANY,)),
    TensorSpec("draft_logits", "LOGITS", (ANY, ANY)),
    TensorSpec("draft_acceptance_threshold", "FP32"),
    TensorSpec("prompt_table_extra_ids", "UINT64", (ANY,)),
    TensorSpec("decoder_input_ids", "INT32", (ANY,)),
    TensorSpec("decoder_input_lengths", "INT32"),
    TensorSpec("encoder_input_features", "FP16", (ANY, ANY)),
    TensorSpec("encoder_output_lengths", "INT32"),
    TensorSpec("cross_attention_mask", "BOOL", (ANY, ANY)),
    TensorSpec("skip_cross_attn_blocks", "BOOL"),
    TensorSpec("mrope_rotary_cos_sin", "FP32", (ANY,)),
    TensorSpec("mrope_position_deltas", "INT64"),
    TensorSpec("context_phase_params", "UINT8", (ANY,)),
    TensorSpec("lookahead_window_size", "INT32"),
    TensorSpec("lookahead_ngram_size", "INT32"),
    TensorSpec("lookahead_verification_set_size", "INT32"),
)

TENSORRT_LLM = ModelSpec(
    name="tensorrt_llm",
    inputs=_ENGINE_INPUTS
    + _SAMPLING
    + _RETURNS
    + _PROMPT_TABLE
    + _LORA
    + _GUIDED_DECODING
    + _RETENTION
    + _EXTENSION_INPUTS,
    outputs=(
        *_TOKEN_OUTPUTS,
        *_COMMON_OUTPUTS,
        TensorSpec("context_phase_params", "UINT8", (ANY,)),
        *_EXTENSION_OUTPUTS,
    ),
)
"""Token ids in, token ids out."""


_TEXT_INPUTS = (
    TensorSpec("text_input", "STRING", optional=False),
    TensorSpec("max_tokens", "INT32", optional=False),
    TensorSpec("decoder_text_input", "STRING"),
    TensorSpec("bad_words", "STRING", (ANY,)),
    TensorSpec("stop_words", "STRING", (ANY,)),
    TensorSpec("end_id", "INT32"),
    TensorSpec("pad_id", "INT32"),
    TensorSpec("top_k", "INT32"),
    TensorSpec("top_p", "FP32"),
    TensorSpec("length_penalty", "FP32"),
    TensorSpec("stream", "BOOL"),
    TensorSpec("prompt_table_extra_id", "UINT64"),
    TensorSpec("embedding_bias_words", "STRING", (ANY,)),
    TensorSpec("embedding_bias_weights", "FP32", (ANY,)),
)

_ENSEMBLE_INPUTS = _TEXT_INPUTS + _SAMPLING + _RETURNS + _PROMPT_TABLE + _LORA + _GUIDED_DECODING
_ENSEMBLE_OUTPUTS = (TensorSpec("text_output", "STRING", (ANY,)), *_COMMON_OUTPUTS)

# Stock ensembles lack these; this project's ensemble exposes its inner tensors, by configuration only.
_INNER = tuple(TensorSpec(spec.name, spec.datatype, spec.dims, extension=True) for spec in _TOKEN_OUTPUTS)
_ENSEMBLE_EXTENSION_OUTPUTS = _INNER + _EXTENSION_OUTPUTS

ENSEMBLE = ModelSpec(
    name="ensemble",
    inputs=_ENSEMBLE_INPUTS + _EXTENSION_INPUTS,
    outputs=_ENSEMBLE_OUTPUTS + _ENSEMBLE_EXTENSION_OUTPUTS,
)
"""Text in, text out, over preprocessing, tensorrt_llm and postprocessing."""


_PIXELS = (ANY, ANY, ANY, ANY)

BLS = ModelSpec(
    name="tensorrt_llm_bls",
    inputs=(
        *_ENSEMBLE_INPUTS,
        TensorSpec("image_input", "FP16", (ANY, 3, ANY, ANY)),
        TensorSpec("image_bytes_input", "UINT8", _PIXELS),
        TensorSpec("image_url_input", "STRING"),
        TensorSpec("video_bytes_input", "UINT8", _PIXELS),
        TensorSpec("num_draft_tokens", "INT32"),
        TensorSpec("use_draft_logits", "BOOL"),
        *_EXTENSION_INPUTS,
    ),
    outputs=_ENSEMBLE_OUTPUTS + _ENSEMBLE_EXTENSION_OUTPUTS,
)
"""The ensemble's tensors by business logic scripting."""


LLMAPI = ModelSpec(
    name="tensorrt_llm",
    inputs=(
        TensorSpec("text_input", "STRING", optional=False),
        TensorSpec("streaming", "BOOL"),
        TensorSpec("sampling_param_best_of", "INT32", older="sampling_param_beam_width"),
        TensorSpec("sampling_param_temperature", "FP32"),
        TensorSpec("sampling_param_top_k", "INT32"),
        TensorSpec("sampling_param_top_p", "FP32"),
        TensorSpec("sampling_param_frequency_penalty", "FP32"),
        TensorSpec("sampling_param_presence_penalty", "FP32"),
        TensorSpec("sampling_param_max_tokens", "INT32"),
        TensorSpec("sampling_param_stop", "STRING", (ANY,)),
        TensorSpec("sampling_param_seed", "UINT64"),
        TensorSpec("sampling_param_exclude_input_from_output", "BOOL"),
        TensorSpec("sampling_param_return_perf_metrics", "BOOL"),
        TensorSpec("return_finish_reason", "BOOL"),
        TensorSpec("return_stop_reason", "BOOL"),
        TensorSpec("return_cumulative_logprob", "BOOL"),
        TensorSpec("stop", "BOOL"),
        TensorSpec("lora_id", "UINT64"),
        TensorSpec("lora_name", "STRING"),
        TensorSpec("lora_path", "STRING"),
        TensorSpec("lora_ckpt_source", "STRING"),
        TensorSpec("image_url", "STRING", (ANY,)),
    ),
    outputs=(
        TensorSpec("text_output", "STRING", (ANY,)),
        TensorSpec("finish_reason", "STRING", (ANY,)),
        TensorSpec("stop_reason", "STRING", (ANY,)),
        TensorSpec("cumulative_logprob", "FP32", (ANY,)),
    ),
)
"""The LLM API's own model: text in, text out, and no batch dimension. What it says of performance is not read."""

VLLM = ModelSpec(
    name="vllm_model",
    inputs=(
        TensorSpec("text_input", "STRING", optional=False),
        TensorSpec("image", "STRING", (ANY,)),
        TensorSpec("stream", "BOOL"),
        TensorSpec("sampling_parameters", "STRING"),
        TensorSpec("exclude_input_in_output", "BOOL"),
        TensorSpec("return_finish_reason", "BOOL"),
        TensorSpec("return_cumulative_logprob", "BOOL"),
        TensorSpec("return_logprobs", "BOOL"),
        TensorSpec("return_num_input_tokens", "BOOL"),
        TensorSpec("return_num_output_tokens", "BOOL"),
        TensorSpec("embedding_request", "STRING"),
    ),
    outputs=(
        TensorSpec("text_output", "STRING", (ANY,)),
        TensorSpec("finish_reason", "STRING", (ANY,)),
        TensorSpec("cumulative_logprob", "FP32", (ANY,)),
        TensorSpec("logprobs", "STRING", (ANY,)),
        TensorSpec("num_input_tokens", "UINT32"),
        TensorSpec("num_output_tokens", "UINT32", (ANY,)),
    ),
)
"""The model of Triton's vLLM backend, without a batch dimension. Parameters of sampling are JSON in one input."""
