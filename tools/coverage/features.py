"""Steps of the READMEs and of the Llama 3 tutorial, modes and features, and families of metrics: how each is done here."""

from __future__ import annotations

from tools.coverage.row import Row, Status

_RENDERING = "gateway_ops/repository/test_rendering.py::"
_SCRIPTS = f"{_RENDERING}test_python_files_come_with_it_and_scripts_say_how"
_EXAMPLE = f"{_RENDERING}test_an_example_renders_the_tensors_of_the_contract"
_README = "gateway_ops/repository/test_build_commands.py::"
_TEXT = "integration/test_triton_repo_text.py::"
_UP = "gateway_ops/cli/test_up.py::test_up_in_the_background_chats_as_printed_and_goes_down"
_JOB = "gateway_ops/launch/test_slurm.py::test_each_task_is_a_rank_and_all_end_when_rank_0_has_answered"
_JOB_SIZE = "gateway_ops/launch/test_slurm.py::test_an_allocation_that_does_not_fit_is_named"
_LAUNCHED = "gateway_ops/launch/test_running.py::test_it_comes_back_from_failures_and_ends_when_all_is_answered"

STEPS = (
    Row("Run the pre-built container (NGC)", "`launch.sh` runs inside it; it was not run", _SCRIPTS, "rendered"),
    Row("Build the container with build.py of the server", "upstream's own build, unchanged; the image only gets the rendered repository", status="documented"),
    Row("Build the container with Docker", "as above", status="documented"),
    Row("Download the weights", "`hf download` in `build_engines.sh`, where `model.source` is an id", f"{_README}test_the_flags_of_the_readme_s_example_are_in_the_script", "rendered"),
    Row("Prepare TensorRT-LLM engines", "`gateway engine build`, or `build_engines.sh` of a rendered repository", _SCRIPTS, "rendered"),
    Row("Quantize the model", "as above, with `model.quantization`", f"{_README}test_the_flags_of_the_tutorial_are_in_the_script", "rendered"),
    Row("Run the engine locally (run.py)", "upstream's script, before Triton comes in; here the same by `/v1/completions`", status="documented"),
    Row("Create the model repository", "`gateway repo`; the five models", _EXAMPLE),
    Row("Leave the BLS model out", "`bls.enabled: false`", "gateway_ops/repository/test_no_key_is_dropped.py::test_every_key_is_rendered_or_refused"),
    Row("Modify the model configuration (fill_template.py)", "`deployments`, or `--set` in the same words", "gateway_ops/repository/test_overrides.py::test_variables_and_keys_reach_their_sections"),
    Row("Launch Triton server within NVIDIA's container", "`gateway launch`, or `launch.sh` of a rendered repository", _SCRIPTS, "rendered"),
    Row("Launch without one", "`gateway up`, docker compose: the same models on a CPU", _UP),
    Row("Log in to Hugging Face before the launch", "not needed: the tokenizer is read from the model's folder", "app/test_application.py::test_tokenizer_and_context_from_what_is_discovered"),
    Row("Query the server with the generate endpoint", "all five models answer it", f"{_TEXT}test_generate_answers_over_http"),
    Row("Query with generate_stream", "as above", f"{_TEXT}test_generate_stream_answers_over_http"),
    Row("Query tensorrt_llm_bls instead of the ensemble", "a served model's `triton.model`, or directly", "integration/test_dialects.py::test_a_bls_model_answers_as_the_ensemble_does"),
    Row("Utilize the provided client script", "its arguments one by one [below](#arguments-of-the-client-scripts)", "clients/test_readme.py::test_python"),
    Row("Early stopping", "a client that leaves ends its generation", "integration/test_triton_repo_control.py::test_a_cancelled_call_frees_the_engine"),
    Row("Return context logits and/or generation logits", "`logits` of a deployment; log-probs are made of them", "integration/test_dialects_parameters.py::test_log_probs_from_logits_where_the_engine_has_no_others"),
    Row("Requests with batch size above 1", "a request for each prompt; the engine batches in flight. Triton's own batch of one request is rejected", "clients/test_completions.py::test_log_likelihoods_as_evaluation_harnesses_take_them"),
    Row("Launch Triton server within Slurm based clusters", "`launch.sbatch` of `gateway repo --slurm`", _JOB, "rendered"),
    Row("Submit a Slurm job", "`sbatch launch.sbatch`; an allocation of another size is named", _JOB_SIZE, "rendered"),
    Row("Kill the Triton server", "SIGTERM to `gateway launch`; `gateway down`", _LAUNCHED),
    Row("Triton metrics", "relayed by `/metrics`, family by family [below](#metrics)", "integration/test_triton_metrics_relay.py::test_triton_s_metrics_are_relayed"),
    Row("Load and unload models while Triton runs", "Triton's own API (`--model-control-mode=explicit`); the gateway says which of its models are ready", "integration/test_errors.py::test_an_unloaded_model"),
    Row("Testing the TensorRT-LLM backend (ci/README.md)", "upstream's tests of its own backend; this repository's are `make test`", status="documented"),
)  # fmt: skip


_LAUNCH = "gateway_ops/launch/test_launch_refusals.py::"
_SPECULATIVE = f"{_README}test_engines_are_built_for_each_way_of_guessing"
_RULES = "gateway_ops/repository/test_contradictions.py::"
_OPTIONS = "gateway_ops/repository/test_overrides.py::"
_SERVER = "integration/test_rendered_repository.py::test_every_way_gives_the_same_text"

MODES = (
    Row("Ensemble", "rendered, and called where token ids do not flow straight", _SERVER),
    Row("BLS (tensorrt_llm_bls)", "rendered, and called where a served model names it", _SERVER),
    Row("BLS: as many instances as requests", "not needed: many requests share one instance, up to `max_concurrent_requests`", "integration/test_triton_repo_text.py::test_two_streams_on_one_bls_instance_run_side_by_side"),
    Row("BLS: accumulate_tokens", "`bls.accumulate_tokens`", "integration/test_triton_repo_parameters.py::test_accumulate_tokens_gives_the_text_so_far"),
    Row("BLS: speculative decoding with a draft model", "`speculative` of a served model at `tensorrt_llm_bls`, by ids or logits, streamed too", "integration/test_drafts.py::test_a_chat_is_drafted_for_and_stays_the_targets_own"),
    Row("Decoupled mode", "`triton.decoupled`, on by default", "integration/test_triton_repo_text.py::test_streamed_text_is_the_whole_text"),
    Row("Leader mode", "`triton.executor: leader`", f"{_LAUNCH}test_four_gpus_have_a_rank_each", "rendered"),
    Row("Orchestrator mode (--multi-model)", "`triton.executor: orchestrator`", f"{_LAUNCH}test_an_orchestrator_is_alone_and_leaves_memory_to_its_workers", "rendered"),
    Row("Several models in one Triton", "several deployments with `prefix`", _SERVER),
    Row("Several instances of one model", "`triton.gpu_ids: [[0], [1]]`", "gateway_ops/repository/test_stock_comparison.py::test_what_stock_templates_give_differs_only_for_the_better", "rendered"),
    Row("Several nodes", "`parallelism.nodes`; `launch.sbatch` starts `launch.sh` with `srun`", f"{_RENDERING}test_slurm_starts_a_server_for_each_rank", "rendered"),
    Row("Several nodes in Kubernetes (LeaderWorkerSet)", "`deploy/kubernetes/multi-node`; ranks by `mpirun` over ssh, the gateway in the leader", "kubernetes/test_manifests.py::test_the_leader_starts_a_rank_for_each_gpu_of_the_group", "rendered"),
    Row("Tensor and pipeline parallelism", "`parallelism`", f"{_RENDERING}test_slurm_starts_a_server_for_each_rank", "rendered"),
    Row("Expert parallelism", "`parallelism.moe_tp`, `parallelism.moe_ep`", "gateway_ops/repository/test_no_key_is_dropped.py::test_every_key_is_rendered_or_refused", "rendered"),
    Row("MIG", "nothing to set: give the container a slice as its GPU, and build the engine on one like it", status="documented"),
    Row("Scheduling policies", "`scheduler.policy`", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("KV cache and its reuse", "`kv_cache`; the reference engine reuses blocks as well", "engine/test_engine_kv_reuse.py::test_whole_blocks_of_a_known_prefix_are_reused"),
    Row("Top-k, top-p, top-k top-p", "the reference engine, and `decoding.mode: auto`", "engine/test_engine_contract.py::test_draws_follow_the_distribution_and_are_among_its_best"),
    Row("Beam search", "`use_beam_search` on a deployment with `decoding.mode: beam_search`, not on the reference engine", f"{_RULES}test_a_deployment_for_beam_search_is_one_that_the_gateway_serves", "rendered"),
    Row("Medusa", "`speculative.method: medusa`, with `heads` or a checkpoint made by hand", _SPECULATIVE, "rendered"),
    Row("ReDrafter", "`speculative.method: redrafter`", _SPECULATIVE, "rendered"),
    Row("Lookahead", "`speculative.method: lookahead`", f"{_README}test_lookahead_is_built_for_the_drafts_of_its_sizes", "rendered"),
    Row("EAGLE", "`speculative.method: eagle`, with `heads` or a checkpoint made by hand", _SPECULATIVE, "rendered"),
    Row("Paged KV cache", "`build.paged_kv_cache`, on by default", f"{_README}test_the_flags_of_the_readme_s_example_are_in_the_script", "rendered"),
    Row("In-flight batching", "`scheduler.batching`, on by default; the reference engine always does", "integration/test_triton_repo_text.py::test_answers_at_the_same_time_do_not_mix"),
    Row("V1 batching", "`scheduler.batching: V1`", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("Chunked context", "`scheduler.chunked_context`; the reference engine always does", "engine/test_engine_model.py::test_chunked_prefill_equals_one_pass"),
    Row("Quantization", "`model.quantization`", f"{_README}test_the_flags_of_the_tutorial_are_in_the_script", "rendered"),
    Row("LoRA", "`models[].lora`: a model of its own name; `lora` of a deployment", "integration/test_additions.py::test_adapters_by_model_name_survive_eviction"),
    Row("Guided decoding", "`guided_decoding`; the reference engine has it", "integration/test_guided.py::test_answers_keep_to_their_guides"),
    Row("P-tuning", "`models[].prompt_tables`, `prompt_table` of a request", "integration/test_additions.py::test_a_table_of_a_text_acts_like_the_text"),
    Row("LLM API", "`engine: llmapi` behind the same five models", "llmapi/test_llmapi_server.py::test_tokens_are_those_of_the_reference_engine"),
    Row("Encoder-decoder models", "`encoder` of a deployment; this project's engines reject it", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("Multimodal models, Whisper", "text only", "gateway_ops/repository/test_overrides.py::test_what_cannot_be_set_says_why", "rejected"),
    Row("Disaggregated serving", "no place in a deployment, and `context_phase_params` is rejected", "engine/test_engine_refusals.py::test_what_is_listed_as_refused_is_refused", "rejected"),
)  # fmt: skip


_RELAY = "integration/test_triton_metrics_relay.py::test_triton_s_metrics_are_relayed"
_AS_THEY_ARE = (
    "telemetry/test_triton_metrics.py::test_families_that_only_tensorrt_llm_and_gpus_have_are_relayed_as_they_are"
)

_RELAYED: Status = "relayed"
_TRITON = ("success", "failure", "count", "exec_count", "request_duration_us", "queue_duration_us", "compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us", "pending_request_count")  # fmt: skip


def _of_triton(name: str) -> str:
    return f"nv_inference_{f'request_{name}' if name in ('success', 'failure') else name}"


METRICS = (
    Row("nv_trt_llm_request_metrics", "from this project's engines; relayed by `/metrics`", _RELAY),
    Row("nv_trt_llm_kv_cache_block_metrics", "from the reference engine; relayed", "engine/test_engine_scheduling.py::test_kv_blocks_are_counted"),
    Row("nv_trt_llm_general_metrics", "from the reference engine; relayed", "integration/test_drafts.py::test_a_prediction_saves_steps_and_changes_nothing"),
    Row("nv_trt_llm_runtime_memory_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_trt_llm_inflight_batcher_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_trt_llm_v1_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_trt_llm_disaggregated_serving_metrics", "no engine here makes it", _AS_THEY_ARE, _RELAYED),
    Row("nv_llm_input_token_len", "no engine here makes it; the gateway's own counts are `gateway_prompt_tokens_total`", _AS_THEY_ARE, _RELAYED),
    Row("nv_llm_output_token_len", "as above; `gateway_completion_tokens_total`", _AS_THEY_ARE, _RELAYED),
    *(Row(_of_triton(name), "Triton's own", _RELAY) for name in _TRITON),
    Row("nv_gpu_*", "Triton's own, where it sees a GPU; also seen on an H200 ([benchmarks/gpu.md](../../benchmarks/gpu.md))", _AS_THEY_ARE, _RELAYED),
)  # fmt: skip
