"""The engine model ``tensorrt_llm`` of TensorRT-LLM 1.2.1 (wire contract 1.3)."""

from __future__ import annotations

from gateway.contract import common
from gateway.contract.tensors import ANY, ModelSpec, TensorSpec

_RETENTION = (
    TensorSpec("retention_token_range_starts", "INT32", (ANY,)),
    TensorSpec("retention_token_range_ends", "INT32", (ANY,)),
    TensorSpec("retention_token_range_priorities", "INT32", (ANY,)),
    TensorSpec("retention_token_range_durations_ms", "INT32", (ANY,)),
    TensorSpec("retention_decode_priority", "INT32"),
    TensorSpec("retention_decode_duration_ms", "INT32"),
)

_INPUTS = (
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
    inputs=_INPUTS
    + common.SAMPLING
    + common.RETURNS
    + common.PROMPT_TABLE
    + common.LORA
    + common.GUIDED_DECODING
    + _RETENTION
    + common.EXTENSION_INPUTS,
    outputs=(
        *common.TOKEN_OUTPUTS,
        *common.OUTPUTS,
        TensorSpec("context_phase_params", "UINT8", (ANY,)),
        *common.EXTENSION_OUTPUTS,
    ),
)
"""Token ids in, token ids out."""
