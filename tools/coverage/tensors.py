"""Inputs and outputs of ``ensemble``, ``tensorrt_llm_bls`` and ``tensorrt_llm``: how each one is served."""

from __future__ import annotations

from tools.coverage.row import Entry, Row, rejected, rendered, served

_CONTRACT = "engine/test_engine_contract.py::"
_REQUEST = "triton/test_request_tensors.py::"
_WIRE = "engine/test_engine_wire.py::"
_TEXT = "triton_models/test_text_to_tokens.py::"
_REJECTED = "engine/test_engine_refusals.py::test_what_is_listed_as_refused_is_refused"
_BLS_REJECTED = "integration/test_triton_repo_text.py::test_bls_refuses_by_name_what_it_cannot_do"
_TABLES = "gateway_ops/repository/test_rendering.py::test_the_tables_of_a_version_are_what_upstream_declares"
_BEAMS = "llmapi/test_llmapi_signatures.py::test_arguments_of_a_request_fit"
_LOG_PROBS = "engine/test_engine_log_probs.py::test_log_probs_are_a_log_softmax_of_the_engines_own_logits"
_DECAY = f"{_CONTRACT}test_a_nucleus_shrinks_by_its_decay_down_to_its_least_until_it_is_reset"
_PERF = "integration/test_kv_reuse.py::test_a_second_turn_reuses_the_first"

_ADDITIONS = "integration/test_additions.py::"
_DRAFTS = "integration/test_drafts.py::"
_LORA = f"{_ADDITIONS}test_adapters_by_model_name_survive_eviction"
_TABLE = f"{_ADDITIONS}test_a_table_of_a_text_acts_like_the_text"

INPUTS: dict[str, Entry] = {
    # text
    "text_input": served(f"{_REQUEST}test_an_ensemble_request", "`messages` through the chat template; `prompt`"),
    "decoder_text_input": rejected("integration/test_triton_repo_text.py::test_wrong_input_is_an_error_that_names_it", "by this project's engines; `preprocessing` tokenizes it for those of TensorRT-LLM. The gateway never sends it"),
    "image_input": rejected(_BLS_REJECTED, "text only, as the three below"),
    "image_bytes_input": rejected(_BLS_REJECTED, "text only"),
    "image_url_input": rejected(_BLS_REJECTED, "text only"),
    "video_bytes_input": rejected(_BLS_REJECTED, "text only"),
    "max_tokens": served("dialects/test_each_parameter.py::test_each_parameter_has_its_effect_or_is_refused_by_name", "`max_completion_tokens`"),
    "bad_words": served("clients/test_parameters.py::test_bad_words_are_not_written", "`bad_words`"),
    "stop_words": served("integration/test_triton_repo_text.py::test_stop_and_bad_words_reach_the_engine", "`stop`, matched on text by the gateway; end tokens beyond the first"),
    "embedding_bias_words": served(f"{_TEXT}test_bias_falls_on_every_token_of_a_word", "in Triton; the gateway sends the dense bias"),
    "embedding_bias_weights": served(f"{_TEXT}test_bias_falls_on_every_token_of_a_word", "goes with the words"),
    "top_k": served(f"{_CONTRACT}test_draws_follow_the_distribution_and_are_among_its_best", "`top_k`"),
    "top_p": served(f"{_CONTRACT}test_draws_follow_the_distribution_and_are_among_its_best", "`top_p`"),
    "length_penalty": served(f"{_REQUEST}test_beams_where_the_engine_has_them_do_not_stream", "`length_penalty`, with beams"),
    "stream": served("integration/test_triton_repo_text.py::test_streamed_text_is_the_whole_text", "`stream`"),
    "prompt_table_extra_id": rendered(_TABLES, "passed on to the engine as `prompt_table_extra_ids`"),
    "num_draft_tokens": served(f"{_DRAFTS}test_a_chat_is_drafted_for_and_stays_the_targets_own", "`num_draft_tokens` of a request, `speculative.num_draft_tokens` of a served model; needs a draft model"),
    "use_draft_logits": served(f"{_DRAFTS}test_a_chat_is_drafted_for_and_stays_the_targets_own", "`speculative.use_draft_logits` of a served model; the draft model gathers its logits"),
    # token ids
    "input_ids": served(f"{_REQUEST}test_a_direct_request_holds_what_the_engine_needs_and_nothing_else", "the prompt, tokenized once"),
    "input_lengths": served(f"{_REQUEST}test_a_direct_request_holds_what_the_engine_needs_and_nothing_else", "its length"),
    "request_output_len": served(f"{_CONTRACT}test_the_output_length_is_clamped_in_silence", "`max_completion_tokens`"),
    "end_id": served(f"{_CONTRACT}test_ends", "the model's first end token"),
    "pad_id": served(f"{_TEXT}test_end_and_pad_ids_come_from_the_model_folder", "the model's own"),
    "stop_words_list": served(f"{_REQUEST}test_a_parameter_travels_only_when_it_does_something", "the model's further end tokens, `stop_token_ids`"),
    "bad_words_list": served(f"{_CONTRACT}test_bad_words_are_never_completed", "`bad_words`"),
    "embedding_bias": served(f"{_REQUEST}test_a_logit_bias_is_dense_and_as_wide_as_the_engine_says", "`logit_bias`"),
    "runtime_top_k": served(f"{_CONTRACT}test_draws_follow_the_distribution_and_are_among_its_best", "`top_k`"),
    "runtime_top_p": served(f"{_CONTRACT}test_draws_follow_the_distribution_and_are_among_its_best", "`top_p`"),
    "runtime_top_p_min": served(_DECAY, "by this project's engines; top-p decay has no API parameter, so the gateway never sends it"),
    "runtime_top_p_decay": served(_DECAY, "by this project's engines; top-p decay has no API parameter, so the gateway never sends it"),
    "runtime_top_p_reset_ids": served(_DECAY, "by this project's engines; top-p decay has no API parameter, so the gateway never sends it"),
    "len_penalty": served(f"{_REQUEST}test_beams_where_the_engine_has_them_do_not_stream", "`length_penalty`, with beams"),
    "early_stopping": served(_BEAMS, "with beams on the LLM API; the C++ backend reads it wrongly, so the gateway never sends it"),
    "beam_search_diversity_rate": served(_BEAMS, "with beams on the LLM API; no API parameter, so the gateway never sends it"),
    "stop": served("integration/test_triton_repo_control.py::test_stop_by_request_id_ends_the_answer", "a client that leaves, a stop string"),
    "streaming": served(f"{_CONTRACT}test_log_probs_are_cumulative_when_streaming", "always, but for beams"),
    "draft_input_ids": served(f"{_DRAFTS}test_a_prediction_saves_steps_and_changes_nothing", "`prediction`; sent by `tensorrt_llm_bls` too; this project's reference engine takes it"),
    "draft_logits": served("engine/test_engine_drafts.py::test_sampled_answers_by_logits_have_the_target_s_distribution", "sent by `tensorrt_llm_bls`; this project's reference engine takes them"),
    "draft_acceptance_threshold": served("engine/test_engine_drafts.py::test_a_threshold_decides_alone", "this project's reference engine takes it; no API parameter"),
    "decoder_input_ids": rejected(_REJECTED, "encoder-decoder models"),
    "decoder_input_lengths": rendered(_TABLES, "declared; encoder-decoder models"),
    "encoder_input_features": rejected(_REJECTED, "encoder-decoder models"),
    "encoder_output_lengths": rejected(_REJECTED, "encoder-decoder models"),
    "cross_attention_mask": rejected(_REJECTED, "images"),
    "skip_cross_attn_blocks": rejected(_REJECTED, "images"),
    "mrope_rotary_cos_sin": rejected(_REJECTED, "images"),
    "mrope_position_deltas": rejected(_REJECTED, "images"),
    "prompt_table_extra_ids": served("engine/test_engine_prompt_table.py::test_cached_blocks_are_not_shared_between_tables", "the gateway sends a number made of the table for each virtual token, 0 for the others"),
    "context_phase_params": rejected(_REJECTED, "disaggregated serving"),
    "retention_token_range_starts": rejected(_REJECTED, "by the reference engine; the LLM API takes it, the gateway never sends it"),
    "retention_token_range_ends": rejected(_REJECTED, "by the reference engine; the LLM API takes it, the gateway never sends it"),
    "retention_token_range_priorities": rejected(_REJECTED, "by the reference engine; the LLM API takes it, the gateway never sends it"),
    "retention_token_range_durations_ms": rejected(_REJECTED, "by the reference engine; the LLM API takes it, the gateway never sends it"),
    "retention_decode_priority": rejected(_REJECTED, "by the reference engine; the LLM API takes it, the gateway never sends it"),
    "retention_decode_duration_ms": rejected(_REJECTED, "by the reference engine; the LLM API takes it, the gateway never sends it"),
    "lookahead_window_size": rejected(_REJECTED, "per request; for all requests: `speculative` of a deployment"),
    "lookahead_ngram_size": rejected(_REJECTED, "per request; for all requests: `speculative` of a deployment"),
    "lookahead_verification_set_size": rejected(_REJECTED, "per request; for all requests: `speculative` of a deployment"),
    # sampling
    "temperature": served(f"{_CONTRACT}test_draws_follow_the_distribution_and_are_among_its_best", "`temperature`"),
    "repetition_penalty": served(_LOG_PROBS, "`repetition_penalty`"),
    "min_tokens": served(f"{_CONTRACT}test_ends", "`min_tokens`; `min_length` before 0.20"),
    "presence_penalty": served(_LOG_PROBS, "`presence_penalty`"),
    "frequency_penalty": served(_LOG_PROBS, "`frequency_penalty`"),
    "seed": served(f"{_CONTRACT}test_top_p_one_samples_as_its_seed_says", "`seed`; `random_seed` before 0.20"),
    "beam_width": served(f"{_REQUEST}test_beams_where_the_engine_has_them_do_not_stream", "`best_of` with `use_beam_search`"),
    "num_return_sequences": served("clients/test_parameters.py::test_n_choices_equal_requests_with_seeds_in_a_row", "`n`, as requests with seeds in a row"),
    # what to return
    "return_log_probs": served(f"{_REQUEST}test_log_probs_are_asked_for_by_their_outputs", "`logprobs`"),
    "return_context_logits": served(f"{_REQUEST}test_logits_are_asked_for_only_where_they_are_allowed", "`prompt_logprobs`, where the operator allows logits"),
    "return_generation_logits": served("integration/test_dialects_parameters.py::test_log_probs_from_logits_where_the_engine_has_no_others", "`top_logprobs`, where the operator allows logits"),
    "return_perf_metrics": served(_PERF, "`usage.prompt_tokens_details.cached_tokens`"),
    "return_num_input_tokens": served(f"{_REQUEST}test_a_text_only_ensemble_is_asked_for_text_and_counts", "`usage`, where answers travel as text"),
    "return_num_output_tokens": served(f"{_REQUEST}test_a_text_only_ensemble_is_asked_for_text_and_counts", "`usage`, where answers travel as text"),
    "exclude_input_in_output": served(f"{_WIRE}test_the_request_decides_about_the_prompt_and_else_the_model", "always sent true"),
    # LoRA, guided decoding, prompt tables
    "lora_task_id": served(_LORA, "`model`: a served model with `lora`"),
    "lora_weights": served(_LORA, "sent with the first request, and again when the engine has dropped them"),
    "lora_config": served(_LORA, "goes with the weights"),
    "guided_decoding_guide_type": served("integration/test_guided.py::test_answers_keep_to_their_guides", "`response_format`, tools"),
    "guided_decoding_guide": served("integration/test_guided.py::test_answers_keep_to_their_guides", "`response_format`, tools"),
    "prompt_embedding_table": served(_TABLE, "`prompt_table`, by the name of a configured table"),
    "prompt_vocab_size": served(_TABLE, "its rows"),
}  # fmt: skip
"""By name of the newest version."""


_ANSWERS = "triton/test_answers.py::"
_REUSE = "engine/test_engine_kv_reuse.py::"
_ACCEPTANCE = "engine/test_engine_drafts.py::test_acceptance_is_told"
_TIMES = f"{_REUSE}test_the_times_are_in_order_and_what_never_happened_has_none"
_BLOCKS = f"{_REUSE}test_whole_blocks_of_a_known_prefix_are_reused"
_ROWS = (
    "integration/test_triton_repo_postprocessing.py::test_rows_and_sequences_of_one_request_have_states_of_their_own"
)
_LOGITS = "integration/test_triton_repo_parameters.py::test_gathered_logits_are_those_behind_the_log_probs"

OUTPUTS: dict[str, Entry] = {
    "text_output": served("integration/test_triton_repo_text.py::test_streamed_text_is_the_whole_text", "the text, whole characters only"),
    "output_ids": served(f"{_ANSWERS}test_one_token_several_and_none", "the answer's tokens"),
    "sequence_length": served(f"{_ANSWERS}test_padding_beyond_the_sequence_length_is_not_tokens", "how many of them count"),
    "cum_log_probs": served("integration/test_triton_repo_text.py::test_optional_outputs_come_only_when_asked_for", "`best_of` takes the likeliest by its tokens' log-probs"),
    "output_log_probs": served(f"{_ANSWERS}test_cumulative_log_probs_are_sliced_to_the_new_tokens", "`logprobs`"),
    "context_logits": served(_LOGITS, "`prompt_logprobs`, where the operator allows logits"),
    "generation_logits": served(_LOGITS, "`top_logprobs`, where the operator allows logits"),
    "batch_index": served(_ROWS, "distinguishes rows in `postprocessing`; this project's engines, which take one row, never send it"),
    "sequence_index": served(_ROWS, "distinguishes sequences in `postprocessing`; this project's engines, which make one, never send it"),
    "kv_cache_alloc_new_blocks": served(_BLOCKS, "with `return_perf_metrics`"),
    "kv_cache_reused_blocks": served(f"{_ANSWERS}test_cached_tokens_are_exact_or_whole_blocks_and_never_more_than_the_prompt", "`cached_tokens` of `usage`"),
    "kv_cache_alloc_total_blocks": served(_BLOCKS, "with `return_perf_metrics`"),
    "arrival_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "first_scheduled_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "first_token_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "last_token_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "acceptance_rate": served(_ACCEPTANCE, "with `return_perf_metrics`, of requests with drafts"),
    "total_accepted_draft_tokens": served(_ACCEPTANCE, "with `return_perf_metrics`, of requests with drafts"),
    "total_draft_tokens": served(_ACCEPTANCE, "with `return_perf_metrics`, of requests with drafts"),
    "num_input_tokens": served(f"{_ANSWERS}test_counts_of_the_server", "`usage`, where answers travel as text"),
    "num_output_tokens": served(f"{_ANSWERS}test_counts_of_the_server", "`usage`, where answers travel as text"),
    "context_phase_params": rendered(_TABLES, "declared; disaggregated serving"),
}  # fmt: skip
"""By name."""


_TENSORS = "triton/test_request_tensors.py::test_older_names_are_sent_where_they_are_declared_and_nothing_that_is_not"
_OPTION = "gateway_ops/repository/test_overrides.py::test_the_names_of_the_readmes_tables_are_understood"

OLDER_OPTIONS = (
    Row("gpt_model_type", "`scheduler.batching`: `--set` takes this name too, beside the variable `batching_strategy`", _OPTION, "rendered"),
    Row("gpt_model_path", "`engine_dir`: `--set` takes this name too, beside the variable `engine_dir`", _OPTION, "rendered"),
    Row("decoupled", "`triton.decoupled`: `--set` takes this name too, beside the variable `decoupled_mode`", _OPTION, "rendered"),
)  # fmt: skip
OLDER_INPUTS = (
    Row("min_length", "`min_tokens`, where the model has it by this name", _TENSORS),
    Row("random_seed", "`seed`, as above", _TENSORS),
)
OLDER_OUTPUTS = (
    Row("generation_logtis", "a slip of the READMEs for `generation_logits`", "integration/test_triton_repo_parameters.py::test_gathered_logits_are_those_behind_the_log_probs"),
)  # fmt: skip
