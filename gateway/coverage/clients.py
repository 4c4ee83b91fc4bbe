"""Arguments of upstream's client scripts: the request of the API that does the same."""

from __future__ import annotations

from gateway.coverage.row import Row

_PARAMETERS = "clients/test_parameters.py::"
_SDK = "clients/test_openai_sdk.py::"
_ADDITIONS = "integration/test_additions.py::"

CLIENTS = (
    Row("--url, --ssl, certificates", "the gateway's URL; TLS ends in front of it", "clients/test_curl.py::test_a_whole_answer_has_openai_fields_and_no_others"),
    Row("--text, -p", "`messages`, `prompt`", f"{_SDK}test_roles_and_text_parts"),
    Row("--input-tokens-csv", "`prompt` as token ids", "clients/test_completions.py::test_every_form_of_a_prompt_gives_the_same_answers"),
    Row("--request-output-len, -o", "`max_completion_tokens`", f"{_SDK}test_max_tokens_cuts_with_length"),
    Row("--streaming", "`stream`", f"{_SDK}test_stream_gives_one_event_a_token_and_the_same_text_and_usage"),
    Row("--temperature", "`temperature`", f"{_PARAMETERS}test_temperature_and_seed"),
    Row("--top-k, --top-p", "`top_k`, `top_p`", f"{_PARAMETERS}test_what_leaves_one_candidate_is_greedy"),
    Row("--repetition-penalty", "`repetition_penalty`", f"{_PARAMETERS}test_repetition_penalty_takes_the_other_of_two"),
    Row("--presence-penalty, --frequency-penalty", "the same names", f"{_PARAMETERS}test_penalties_lower_log_probs_of_what_the_prompt_has"),
    Row("--stop-words", "`stop`", f"{_SDK}test_stop_strings_match_text_whatever_the_tokens"),
    Row("--bad-words", "`bad_words`", f"{_PARAMETERS}test_bad_words_are_not_written"),
    Row("--embedding-bias-words, -weights", "`logit_bias`, by token", f"{_PARAMETERS}test_logit_bias_is_never_and_always"),
    Row(
        "--beam-width",
        "`use_beam_search` with `best_of`, where the engine allows beams",
        "triton/test_request_tensors.py::test_beams_where_the_engine_has_them_do_not_stream",
    ),
    Row("--num-return-sequences", "`n`", f"{_PARAMETERS}test_n_choices_equal_requests_with_seeds_in_a_row"),
    Row("--end-id, --pad-id", "the model's own; `stop_token_ids`", f"{_PARAMETERS}test_stop_token_ids"),
    Row("--return-log-probs", "`logprobs`", f"{_PARAMETERS}test_log_probs"),
    Row("--return-context-logits", "`prompt_logprobs`; the logits themselves by Triton", f"{_PARAMETERS}test_log_probs_of_the_prompt"),
    Row("--return-generation-logits", "`top_logprobs`; the logits themselves by Triton", "integration/test_triton_repo_parameters.py::test_gathered_logits_are_those_behind_the_log_probs"),
    Row("--return-perf-metrics", "`usage.prompt_tokens_details`", f"{_PARAMETERS}test_usage_tells_what_the_cache_had"),
    Row("--exclude-input-in-output", "always; `echo` brings the prompt back", f"{_PARAMETERS}test_the_last_message_is_continued"),
    Row("--stop-after-ms", "close the connection", "clients/test_faults.py::test_a_hundred_clients_that_leave_early_leave_nothing_behind"),
    Row("--stop-via-request-cancel", "close the connection", "integration/test_triton_repo_control.py::test_a_cancelled_call_frees_the_engine"),
    Row("--request-id", "Triton's ids are fresh; a client's own is `x-request-id`", "clients/test_keys.py::test_the_access_log_is_json_without_prompt_text_and_with_the_request_id"),
    Row("--lora-path, --lora-task-id", "`model`: a served model with `lora`", f"{_ADDITIONS}test_adapters_by_model_name_survive_eviction"),
    Row("--prompt-embedding-table, --prompt_table_extra_id", "`prompt_table`, by the name of a configured table", f"{_ADDITIONS}test_a_table_of_a_text_acts_like_the_text"),
    Row("--draft-input-ids, --return-draft-model-draft-logits", "`prediction`; the logits between the models of `tensorrt_llm_bls`", "integration/test_drafts.py::test_a_prediction_saves_steps_and_changes_nothing"),
    Row("--guided-decoding-guide-type, --guided-decoding-guide", "`response_format`, tools", "integration/test_guided.py::test_answers_keep_to_their_guides"),
    Row("--check-output, --correctness-threshold", "a test that the script makes of itself: run it against the model `tensorrt_llm`, not through the gateway", status="documented"),
)  # fmt: skip
