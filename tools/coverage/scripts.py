"""Upstream's scripts, argument by argument: its clients, its launcher, and the tools that make engines."""

from __future__ import annotations

from tools.coverage.row import Row

_PARAMETERS = "clients/test_parameters.py::"
_EACH = "dialects/test_each_parameter.py::test_each_parameter_has_its_effect_or_is_refused_by_name"
_SDK = "clients/test_openai_sdk.py::"
_PENALTIES = f"{_PARAMETERS}test_penalties_lower_log_probs_of_what_the_prompt_has"
_ADAPTER = "integration/test_additions.py::test_adapters_by_model_name_survive_eviction"
_TABLE = "integration/test_additions.py::test_a_table_of_a_text_acts_like_the_text"
_DRAFTS = "integration/test_drafts.py::"
_DRAFTED = f"{_DRAFTS}test_a_chat_is_drafted_for_and_stays_the_targets_own"
_PREDICTED = f"{_DRAFTS}test_a_prediction_saves_steps_and_changes_nothing"
_GUIDES = "integration/test_guided.py::test_answers_keep_to_their_guides"
_TLS = "clients/test_tls.py::test_certificates_of_both_sides_are_exchanged_under_a_hundred_streams"
_NAMES = "integration/test_rendered_repository.py::test_every_way_gives_the_same_text"
_BIAS = f"{_PARAMETERS}test_logit_bias_is_never_and_always"
_SELF_TEST = "the script's test of itself: run it against Triton's model, not through the gateway"

CLIENTS = (
    # where to
    Row("--url", "the gateway's URL", "clients/test_readme.py::test_curl"),
    Row("--url-target", "one Triton has both models: `triton.url`, with `triton.model: tensorrt_llm_bls`", _DRAFTED),
    Row("--url-draft", "as above", _DRAFTED),
    Row("--ssl", "`triton.tls`", _TLS),
    Row("--root-certificates", "`triton.tls.ca`", _TLS),
    Row("--private-key", "`triton.tls.key`", _TLS),
    Row("--certificate-chain", "`triton.tls.certificate`", _TLS),
    Row("--grpc-compression-algorithm", "calls to Triton are not compressed; what a Triton compresses is read", status="missing"),
    Row("--stream-timeout", "`timeouts.first_token_s`, `timeouts.total_s`", "openai/test_chat_completion.py::test_deadlines"),
    Row("--verbose", "`server.log_level: debug`, the access log", "app/test_application.py::test_the_access_log"),
    Row("--request-id", "Triton's ids are fresh; a client's own is `x-request-id`", "app/test_application.py::test_request_ids"),
    Row("--model-name", "`model`, by the served model's `triton.model`", "triton/test_discovery.py::test_a_stock_ensemble_gives_its_engine_step"),
    Row("--preprocessor-model-name", "the gateway tokenizes; ensemble and BLS know the steps of their own deployment by `prefix`", _NAMES),
    Row("--postprocessor-model-name", "as above", _NAMES),
    Row("--target-tensorrt-llm-model-name", "`engine_model` of the target, which `tensorrt_llm_bls` calls", _DRAFTED),
    Row("--draft-tensorrt-llm-model-name", "`speculative.draft` of its deployment", _DRAFTED),
    # the prompt
    Row("--prompt", "`messages`, `prompt`", f"{_SDK}test_names_paris_and_ends_by_itself"),
    Row("--text", "as above", f"{_SDK}test_names_paris_and_ends_by_itself"),
    Row("--input-tokens-csv", "`prompt` as token ids", "openai/test_completions_endpoint.py::test_every_form_of_a_prompt"),
    Row("--batch-inputs", "several prompts: a request for each", "clients/test_completions.py::test_log_likelihoods_as_evaluation_harnesses_take_them"),
    Row("--tokenizer-dir", "`models[].tokenizer`, or what Triton's own configuration names", "app/test_application.py::test_tokenizer_and_context_from_what_is_discovered"),
    Row("--tokenizer-type", "removed in 0.9: tokenizer.json describes the tokenizer", "gateway_ops/repository/test_overrides.py::test_what_cannot_be_set_says_why", "rejected"),
    # length and ends
    Row("--output-len", "`max_completion_tokens`", _EACH),
    Row("--request-output-len", "`max_completion_tokens`", _EACH),
    Row("--end-id", "the model's own; `stop_token_ids`", _EACH),
    Row("--pad-id", "the model's own: one prompt in a request needs none", "triton_models/test_text_to_tokens.py::test_end_and_pad_ids_come_from_the_model_folder"),
    Row("--stop-words", "`stop`", _EACH),
    Row("--bad-words", "`bad_words`", f"{_PARAMETERS}test_bad_words_are_not_written"),
    Row("--stop-after-ms", "close the connection", "clients/test_faults.py::test_a_hundred_clients_that_leave_early_leave_nothing_behind"),
    Row("--stop-via-request-cancel", "close the connection", "integration/test_triton_repo_control.py::test_a_cancelled_call_frees_the_engine"),
    # sampling
    Row("--streaming", "`stream`", f"{_SDK}test_stream_gives_one_event_a_token_and_the_same_text_and_usage"),
    Row("--temperature", "`temperature`", f"{_PARAMETERS}test_temperature_and_seed"),
    Row("--top-k", "`top_k`", f"{_PARAMETERS}test_what_leaves_one_candidate_is_greedy"),
    Row("--top-p", "`top_p`", f"{_PARAMETERS}test_what_leaves_one_candidate_is_greedy"),
    Row("--repetition-penalty", "`repetition_penalty`", f"{_PARAMETERS}test_repetition_penalty_takes_the_other_of_two"),
    Row("--presence-penalty", "`presence_penalty`", _PENALTIES),
    Row("--frequency-penalty", "`frequency_penalty`", _PENALTIES),
    Row("--embedding-bias-words", "`logit_bias`, by token", _BIAS),
    Row("--embedding-bias-weights", "`logit_bias`, by token", _BIAS),
    Row("--beam-width", "`use_beam_search` with `best_of`, where the engine allows beams", "triton/test_request_tensors.py::test_beams_where_the_engine_has_them_do_not_stream"),
    Row("--num-return-sequences", "`n`", f"{_PARAMETERS}test_n_choices_equal_requests_with_seeds_in_a_row"),
    # what comes back
    Row("--return-log-probs", "`logprobs`", _EACH),
    Row("--return-context-logits", "`prompt_logprobs`; the logits themselves by Triton", _EACH),
    Row("--return-generation-logits", "`top_logprobs`; the logits themselves by Triton", "integration/test_triton_repo_parameters.py::test_gathered_logits_are_those_behind_the_log_probs"),
    Row("--return-perf-metrics", "`usage.prompt_tokens_details`", "integration/test_kv_reuse.py::test_a_second_turn_reuses_the_first"),
    Row("--requested-outputs", "what a request asks for decides which outputs the gateway names", "triton/test_request_tensors.py::test_log_probs_are_asked_for_by_their_outputs"),
    Row("--exclude-input-in-output", "always; `echo` brings the prompt back", _EACH),
    Row("--overwrite-output-text", "`stream` gives each part once", f"{_SDK}test_stream_gives_one_event_a_token_and_the_same_text_and_usage"),
    # adapters, tables, drafts, guides
    Row("--lora-path", "`models[].lora`", _ADAPTER),
    Row("--lora-task-id", "`model`: a served model with `lora`", _ADAPTER),
    Row("--dtype", "of the files of adapters and tables: float32, float16 and bfloat16 are read", "serving/test_adapter_files.py::test_bfloat16_is_read"),
    Row("--prompt-embedding-table-path", "`models[].prompt_tables`", _TABLE),
    Row("--prompt-task-id", "`prompt_table`, by the name of a configured table", _TABLE),
    Row("--prompt_table_extra_id", "made of the table by the gateway", "engine/test_engine_prompt_table.py::test_cached_blocks_are_not_shared_between_tables"),
    Row("--draft-tokens-csv", "`prediction`, as text", _PREDICTED),
    Row("--num-draft-tokens", "`num_draft_tokens`, `speculative.num_draft_tokens` of a served model", _DRAFTED),
    Row("--return-draft-model-draft-logits", "between the models of `tensorrt_llm_bls`: `speculative.use_draft_logits`", _DRAFTED),
    Row("--return-target-model-accepted-token-logits", "`tensorrt_llm_bls` keeps the logits between its rounds; none come out", "triton_models/test_speculation.py::test_what_drafts_do_not_go_with_is_named", "rejected"),
    Row("--lookahead_config", "not for one request; for all: `speculative.method: lookahead`", "engine/test_engine_refusals.py::test_what_is_listed_as_refused_is_refused", "rejected"),
    Row("--vocab_size", "read from the model's folder", "triton/test_request_tensors.py::test_a_logit_bias_is_dense_and_as_wide_as_the_engine_says"),
    Row("--guided-decoding-guide-type", "`response_format`, tools", _GUIDES),
    Row("--guided-decoding-guide", "`response_format`, tools", _GUIDES),
    # the scripts' tests of themselves
    Row("--check-output", _SELF_TEST, status="documented"),
    Row("--check-outputs", _SELF_TEST, status="documented"),
    Row("--expected-outputs", _SELF_TEST, status="documented"),
    Row("--output-tokens-csv", _SELF_TEST, status="documented"),
    Row("--correctness-threshold", _SELF_TEST, status="documented"),
)  # fmt: skip


_LAUNCH = "gateway_ops/launch/test_launch_refusals.py::"
_OPTIONS = f"{_LAUNCH}test_options_reach_the_command"
_RANKS = f"{_LAUNCH}test_four_gpus_have_a_rank_each"
_SLURM = "gateway_ops/repository/test_rendering.py::test_slurm_starts_a_server_for_each_rank"
_WORKERS = "gateway_ops/repository/test_build_commands.py::test_workers_with_ranks_start_with_the_orchestrator"
_PORT = f"{_LAUNCH}test_a_port_that_is_taken"
_LOGGED = "gateway_ops/launch/test_running.py::test_without_a_policy_what_is_hurt_ends_it"

LAUNCHER = (
    Row("--world_size", "`parallelism.tp` times `parallelism.pp`; 1 with an orchestrator", _RANKS, "rendered"),
    Row("--model_repo", "`gateway launch --repository`; the folder of `launch.sh` itself", _RANKS, "rendered"),
    Row("--tensorrt_llm_model_name", "the engines of the deployments, by their names", _RANKS, "rendered"),
    Row("--multi-model", "`triton.executor: orchestrator`", f"{_LAUNCH}test_an_orchestrator_is_alone_and_leaves_memory_to_its_workers", "rendered"),
    Row("--disable-spawn-processes", "`triton.participant_ids`", _WORKERS, "rendered"),
    Row("--trtllm_llmapi_launch", "`engine: llmapi` over several nodes is started by `trtllm-llmapi-launch`", "gateway_ops/repository/test_build_commands.py::test_the_llm_api_is_started_without_mpi_or_by_its_own_launcher", "rendered"),
    Row("--no-mpi", "`engine: llmapi` on one node is started without MPI", "gateway_ops/repository/test_build_commands.py::test_the_llm_api_is_started_without_mpi_or_by_its_own_launcher", "rendered"),
    Row("--oversubscribe", "`gateway launch --oversubscribe`; `MPIRUN_OPTIONS` of `launch.sh`", _OPTIONS, "rendered"),
    Row("--grpc_port", "`gateway launch --grpc-port`; after `launch.sh`, as tritonserver has it", _OPTIONS),
    Row("--http_port", "`gateway launch --http-port`, as above", _PORT),
    Row("--metrics_port", "`gateway launch --metrics-port`, as above", _PORT),
    Row("--tritonserver", "`gateway launch --tritonserver`", f"{_LAUNCH}test_options_that_cannot_be_are_refused"),
    Row("--force", "not needed: another server is in the way only where it has the ports", _PORT),
    Row("--log", "`gateway launch -- --log-verbose=3`", _OPTIONS),
    Row("--log-file", "`gateway launch --log-dir`", _LOGGED),
    Row("--exit_timeout", "`gateway launch --exit-timeout`", _OPTIONS),
    Row("--multimodal_gpu0_cuda_mem_pool_bytes", "for images, of which there are none here; else after `--` or `launch.sh`", status="documented"),
    Row("--disable-auto-complete-config", "as the launcher has it", _SLURM, "rendered"),
    Row("--backend-config=python,shm-region-prefix-name", "one for each rank under Slurm", _SLURM, "rendered"),
)  # fmt: skip


_TUTORIAL = "gateway_ops/repository/test_build_commands.py::test_the_flags_of_the_tutorial_are_in_the_script"
_FLAGS = "gateway_ops/repository/test_build_commands.py::test_the_flags_of_the_readme_s_example_are_in_the_script"
_GONE = "TensorRT-LLM 0.5; gone since 0.8"
_OLD_TOOLS = f"{_GONE}: `convert_checkpoint.py` and `trtllm-build` are rendered instead"


def _flag(name: str, where: str) -> Row:
    return Row(name, where, _FLAGS, "rendered")


TOOLS = (
    Row("convert_checkpoint.py", "by the family of the model", _FLAGS, "rendered"),
    Row("quantize.py", "where `model.quantization` wants it", _TUTORIAL, "rendered"),
    Row("trtllm-build", "with the limits of the deployment", _FLAGS, "rendered"),
    _flag("--model_dir", "`model.folder`"),
    _flag("--dtype", "`model.dtype`"),
    _flag("--tp_size", "`parallelism.tp`"),
    _flag("--output_dir", "the checkpoint's folder; `engine_dir`"),
    _flag("--checkpoint_dir", "the checkpoint's folder"),
    Row("--qformat", "`model.quantization`", _TUTORIAL, "rendered"),
    Row("--awq_block_size", "`build.awq_block_size`", _TUTORIAL, "rendered"),
    _flag("--gpt_attention_plugin", "`build.attention_plugin`"),
    _flag("--gemm_plugin", "`build.gemm_plugin`"),
    _flag("--remove_input_padding", "`build.remove_input_padding`"),
    Row("--paged_kv_cache", "`build.paged_kv_cache`; today's `trtllm-build` calls it `--kv_cache_type`", _FLAGS, "rendered"),
    _flag("--gather_context_logits", "`logits.context`"),
    _flag("--gather_generation_logits", "`logits.generation`"),
    Row("--gather_all_token_logits", "both of the former", _FLAGS, "rendered"),
    Row("--batch_size", "of the calibration of `quantize.py`: `build.calib_batch_size`", _TUTORIAL, "rendered"),
    Row("--engine_dir", "of `run.py`, which tries an engine before Triton does; here `/v1/completions` does", status="documented"),
    Row("--max_output_len", "of `run.py`, as above", status="documented"),
    Row("--tokenizer_dir", "of `run.py`, as above", status="documented"),
    Row("--input_text", "of `run.py`, as above", status="documented"),
    Row("hf_gpt_convert.py", _OLD_TOOLS, status="documented"),
    Row("build.py of examples/gpt", _OLD_TOOLS, status="documented"),
)  # fmt: skip
