"""Outputs of ``ensemble``, ``tensorrt_llm_bls`` and ``tensorrt_llm``: what becomes of each one."""

from __future__ import annotations

from tools.coverage.row import Entry, rendered, served

_ANSWERS = "triton/test_answers.py::"
_REUSE = "engine/test_engine_kv_reuse.py::"
_DRAFTS = "engine/test_engine_drafts.py::test_acceptance_is_told"
_TIMES = f"{_REUSE}test_the_times_are_in_order"
_BLOCKS = f"{_REUSE}test_whole_blocks_of_a_known_prefix_are_reused"
_TABLES = "gateway_ops/repository/test_rendering.py::test_the_tables_of_a_version_are_what_upstream_declares"
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
    "batch_index": served(_ROWS, "keeps rows apart in `postprocessing`; this project's engines, which take one row, never send it"),
    "sequence_index": served(_ROWS, "keeps sequences apart in `postprocessing`; this project's engines, which make one, never send it"),
    "kv_cache_alloc_new_blocks": served(_BLOCKS, "with `return_perf_metrics`"),
    "kv_cache_reused_blocks": served(f"{_ANSWERS}test_cached_tokens_are_exact_or_whole_blocks_and_never_more_than_the_prompt", "`cached_tokens` of `usage`"),
    "kv_cache_alloc_total_blocks": served(_BLOCKS, "with `return_perf_metrics`"),
    "arrival_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "first_scheduled_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "first_token_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "last_token_time_ns": served(_TIMES, "with `return_perf_metrics`"),
    "acceptance_rate": served(_DRAFTS, "with `return_perf_metrics`, of requests with drafts"),
    "total_accepted_draft_tokens": served(_DRAFTS, "with `return_perf_metrics`, of requests with drafts"),
    "total_draft_tokens": served(_DRAFTS, "with `return_perf_metrics`, of requests with drafts"),
    "num_input_tokens": served(f"{_ANSWERS}test_counts_of_the_server", "`usage`, where answers travel as text"),
    "num_output_tokens": served(f"{_ANSWERS}test_counts_of_the_server", "`usage`, where answers travel as text"),
    "context_phase_params": rendered(_TABLES, "declared; disaggregated serving"),
}  # fmt: skip
"""By name."""
