"""Tensors that several models share under one name (wire contract 1.1 to 1.3)."""

from __future__ import annotations

from gateway.contract.tensors import ANY, TensorSpec

SAMPLING = (
    TensorSpec("temperature", "FP32"),
    TensorSpec("repetition_penalty", "FP32"),
    TensorSpec("min_tokens", "INT32", older="min_length"),
    TensorSpec("presence_penalty", "FP32"),
    TensorSpec("frequency_penalty", "FP32"),
    TensorSpec("seed", "UINT64", older="random_seed"),
    TensorSpec("beam_width", "INT32"),
    TensorSpec("num_return_sequences", "INT32"),
)

RETURNS = (
    TensorSpec("return_log_probs", "BOOL"),
    TensorSpec("return_context_logits", "BOOL"),
    TensorSpec("return_generation_logits", "BOOL"),
    TensorSpec("return_perf_metrics", "BOOL"),
    TensorSpec("return_num_input_tokens", "BOOL"),
    TensorSpec("return_num_output_tokens", "BOOL"),
    TensorSpec("exclude_input_in_output", "BOOL"),
)

LORA = (
    TensorSpec("lora_task_id", "UINT64"),
    TensorSpec("lora_weights", "FP16", (ANY, ANY)),
    TensorSpec("lora_config", "INT32", (ANY, 3)),
)

GUIDED_DECODING = (
    TensorSpec("guided_decoding_guide_type", "STRING"),
    TensorSpec("guided_decoding_guide", "STRING"),
)

PROMPT_TABLE = (
    TensorSpec("prompt_embedding_table", "FP16", (ANY, ANY)),
    TensorSpec("prompt_vocab_size", "INT32"),
)

OUTPUTS = (
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

TOKEN_OUTPUTS = (
    TensorSpec("output_ids", "INT32", (ANY, ANY)),
    TensorSpec("sequence_length", "INT32", (ANY,)),
)

EXTENSION_INPUTS = (
    TensorSpec("return_finish_reason", "BOOL", extension=True),
    TensorSpec("num_top_log_probs", "INT32", extension=True),
    TensorSpec("num_prompt_log_probs", "INT32", extension=True),
    TensorSpec("min_p", "FP32", extension=True),
    TensorSpec("cache_salt", "STRING", extension=True),
)
EXTENSION_OUTPUTS = (
    TensorSpec("finish_reason", "STRING", extension=True),
    TensorSpec("top_log_probs_ids", "INT32", (ANY, ANY), extension=True),
    TensorSpec("top_log_probs", "FP32", (ANY, ANY), extension=True),
    TensorSpec("prompt_log_probs", "FP32", (ANY,), extension=True),
    TensorSpec("prompt_log_probs_ranks", "INT32", (ANY,), extension=True),
    TensorSpec("prompt_top_log_probs_ids", "INT32", (ANY, ANY), extension=True),
    TensorSpec("prompt_top_log_probs", "FP32", (ANY, ANY), extension=True),
    TensorSpec("num_cached_tokens", "INT32", extension=True),
)
