"""Inputs of ``tensorrt_llm`` on the LLM API engine: which of TensorRT-LLM's own parameters each one becomes."""

from __future__ import annotations

from tools.coverage.row import Entry, missing, served

_SERVER = "llmapi/test_llmapi_server.py::"
_WIDE = "llmapi/test_llmapi_wide.py::"
_MORE = "llmapi/test_llmapi_extensions.py::"
_SAME = f"{_SERVER}test_tokens_are_those_of_the_reference_engine"
_STREAM = f"{_SERVER}test_streams_one_token_per_response"
_ENDS = f"{_SERVER}test_end_id_ends_and_is_not_in_the_output"
_BEAMS = f"{_WIDE}test_all_beams_come_at_the_end"
_DECAY = f"{_WIDE}test_a_nucleus_may_shrink_and_be_reset"
_KEPT = f"{_WIDE}test_how_long_blocks_are_kept_is_passed_on"
_LOGITS = f"{_WIDE}test_logits_are_those_of_the_model"
_ADAPTER = f"{_MORE}test_adapters_are_asked_for_by_their_folder"
_GUIDE = f"{_MORE}test_answers_keep_to_guides"
_FITS = "llmapi/test_llmapi_signatures.py::test_arguments_of_a_request_fit"
_LOOKAHEAD = "the PyTorch backend has none: it drops `lookahead_config`"
_TABLE = "requests of the LLM API have no place for a prompt table"
_DRAFT = "requests of the LLM API have no place for a draft"
_ENCODER = "encoder-decoder models"
_IMAGES = "images"

LLMAPI: dict[str, Entry] = {
    "input_ids": served(_SAME, "`inputs`"),
    "input_lengths": served(_SAME, "its length"),
    "request_output_len": served(f"{_SERVER}test_output_length_is_clamped_in_silence", "`max_tokens`"),
    "num_return_sequences": missing("`n` and `best_of` without beams; the gateway sends a request for each"),
    "end_id": served(_ENDS, "`end_id`"),
    "pad_id": served(_ENDS, "`pad_id`: one sequence in a request needs none"),
    "stop_words_list": served(f"{_SERVER}test_stop_words_end_and_stay", "`stop_token_ids`; words of several tokens are found by the engine here"),
    "bad_words_list": served(f"{_WIDE}test_bad_words_of_several_tokens_are_not_completed", "`bad_token_ids`, and where the LLM API keeps its own words"),
    "embedding_bias": served(_SAME, "`embedding_bias`"),
    "beam_width": served(_BEAMS, "`use_beam_search`, `best_of`, `n`; the width is the engine's `max_beam_width`"),
    "temperature": served(_SAME, "`temperature`"),
    "runtime_top_k": served(_SAME, "`top_k`"),
    "runtime_top_p": served(_SAME, "`top_p`"),
    "runtime_top_p_min": served(_DECAY, "`top_p_min`"),
    "runtime_top_p_decay": served(_DECAY, "`top_p_decay`"),
    "runtime_top_p_reset_ids": served(_DECAY, "`top_p_reset_ids`"),
    "len_penalty": served(_BEAMS, "`length_penalty`, with beams"),
    "early_stopping": served(_FITS, "`early_stopping`, with beams"),
    "beam_search_diversity_rate": served(_FITS, "`beam_search_diversity_rate`, with beams"),
    "repetition_penalty": served(_SAME, "`repetition_penalty`"),
    "presence_penalty": served(_SAME, "`presence_penalty`"),
    "frequency_penalty": served(_SAME, "`frequency_penalty`"),
    "min_tokens": served(_ENDS, "`min_tokens`"),
    "seed": served(_SAME, "`seed`"),
    "return_log_probs": served(f"{_SERVER}test_log_probs_are_the_growing_list", "`logprobs`; of beams only since 1.3.0rc26"),
    "return_context_logits": served(_LOGITS, "`return_context_logits`"),
    "return_generation_logits": served(_LOGITS, "`return_generation_logits`"),
    "return_perf_metrics": served(f"{_MORE}test_what_a_request_cost_is_the_engine_s_own_word", "`return_perf_metrics`"),
    "return_num_input_tokens": served(_STREAM, "counted here"),
    "return_num_output_tokens": served(_STREAM, "counted here"),
    "exclude_input_in_output": served(_SAME, "done here"),
    "stop": served(f"{_SERVER}test_stop_by_id_aborts_the_request", "`abort`"),
    "streaming": served(_STREAM, "`streaming`"),
    "draft_input_ids": missing(_DRAFT),
    "draft_logits": missing(_DRAFT),
    "draft_acceptance_threshold": missing(_DRAFT),
    "decoder_input_ids": missing(_ENCODER),
    "decoder_input_lengths": missing("encoder-decoder models; without `decoder_input_ids` it means nothing, and is not looked at"),
    "encoder_input_features": missing(_ENCODER),
    "encoder_output_lengths": missing(_ENCODER),
    "cross_attention_mask": missing(_IMAGES),
    "skip_cross_attn_blocks": missing(_IMAGES),
    "mrope_rotary_cos_sin": missing(_IMAGES),
    "mrope_position_deltas": missing(_IMAGES),
    "prompt_embedding_table": missing(_TABLE),
    "prompt_table_extra_ids": missing(_TABLE),
    "prompt_vocab_size": missing(_TABLE),
    "lora_task_id": served(_ADAPTER, "`lora_request`, of an adapter in the engine's own folder"),
    "lora_weights": missing("adapters are those of the engine's own folder: rejected where it lacks the task, else not looked at"),
    "lora_config": missing("as above"),
    "context_phase_params": missing("disaggregated serving"),
    "retention_token_range_starts": served(_KEPT, "`kv_cache_retention_config`"),
    "retention_token_range_ends": served(_KEPT, "`kv_cache_retention_config`"),
    "retention_token_range_priorities": served(_KEPT, "`kv_cache_retention_config`"),
    "retention_token_range_durations_ms": served(_KEPT, "`kv_cache_retention_config`"),
    "retention_decode_priority": served(_KEPT, "`kv_cache_retention_config`"),
    "retention_decode_duration_ms": served(_KEPT, "`kv_cache_retention_config`"),
    "guided_decoding_guide_type": served(_GUIDE, "`guided_decoding`"),
    "guided_decoding_guide": served(_GUIDE, "`guided_decoding`"),
    "lookahead_window_size": missing(_LOOKAHEAD),
    "lookahead_ngram_size": missing(_LOOKAHEAD),
    "lookahead_verification_set_size": missing(_LOOKAHEAD),
}  # fmt: skip
"""The entries by name; a missing parameter is rejected by its name."""
