"""Sections of the README beside its tables: steps, modes, features, metrics."""

from __future__ import annotations

from gateway.coverage.row import Row

_RENDERING = "repository/test_rendering.py::"
_EXAMPLE = f"{_RENDERING}test_an_example_renders_the_tensors_of_the_contract"
_SCRIPTS = f"{_RENDERING}test_python_files_come_with_it_and_scripts_say_how"
_RULES = "repository/test_contradictions.py::"
_OPTIONS = "repository/test_options.py::"
_RELAY = "integration/test_triton_metrics_relay.py::test_triton_s_metrics_are_relayed"
_SERVER = "integration/test_rendered_repository.py::test_every_way_gives_the_same_text"

STEPS = (
    Row("Prepare engines (convert, quantize, trtllm-build)", "`build_engines.sh` of a rendered repository", _SCRIPTS, "rendered"),
    Row("Create the model repository", "`gateway repo build`; the five models", _EXAMPLE),
    Row("Modify the model configuration (fill_template.py)", "`deployments`, or `--set` in the same words", "repository/test_overrides.py::test_variables_and_keys_reach_their_sections"),
    Row("Launch within NVIDIA's container", "`launch.sh` of a rendered repository", _SCRIPTS, "rendered"),
    Row("Launch without one", "`gateway up`, docker compose: the same models on a CPU", "cli/test_up.py::test_up_in_the_background_chats_as_printed_and_goes_down"),
    Row("Query with the generate endpoint", "all five models answer it", "integration/test_triton_repo_text.py::test_generate_answers_over_http"),
    Row("Query with generate_stream", "likewise", "integration/test_triton_repo_text.py::test_generate_stream_answers_over_http"),
    Row("Early stopping", "a client that leaves ends its generation", "integration/test_triton_repo_control.py::test_a_cancelled_call_frees_the_engine"),
    Row("Return context and generation logits", "`logits` of a deployment; log-probs are made of them", "integration/test_dialects_parameters.py::test_log_probs_from_logits_where_the_engine_has_no_others"),
    Row("Requests with batch size above 1", "a request for each prompt; the engine batches in flight", "clients/test_completions.py::test_more_prompts_than_the_engine_s_queue_holds"),
    Row("Slurm clusters", "`launch.sh` under `srun --mpi=pmix`; the job script around it is the cluster's own", f"{_RENDERING}test_slurm_starts_a_server_for_each_rank", "rendered"),
    Row("Kill the server", "`gateway down`", "cli/test_up.py::test_up_in_the_background_chats_as_printed_and_goes_down"),
)  # fmt: skip

MODES = (
    Row("Ensemble", "rendered, and called where token ids do not flow straight", _SERVER),
    Row("BLS (tensorrt_llm_bls)", "rendered; many requests in one instance", _SERVER),
    Row("BLS: accumulate_tokens", "`bls.accumulate_tokens`", "integration/test_triton_repo_parameters.py::test_accumulate_tokens_gives_the_text_so_far"),
    Row("BLS: speculative decoding with a draft model", "`speculative` of a served model whose `triton.model` it is, by ids or by logits, streamed too; both engines are rendered", "integration/test_drafts.py::test_a_chat_is_drafted_for_and_stays_the_targets_own"),
    Row("Decoupled mode", "`triton.decoupled`, on by default", f"{_RULES}test_a_contradiction_is_named_with_its_fix"),
    Row("Leader mode", "`triton.executor: leader`", _SCRIPTS, "rendered"),
    Row("Orchestrator mode (--multi-model)", "`triton.executor: orchestrator`", f"{_RULES}test_deployments_of_one_repository_must_not_get_in_each_others_way", "rendered"),
    Row("Several models in one Triton", "several deployments with `prefix`", _SERVER),
    Row("Several instances of one model", "`triton.gpu_ids: [[0], [1]]`", "checking/test_repository.py::test_engines_that_take_each_others_gpus", "rendered"),
    Row("Several nodes", "`parallelism.nodes`; `launch.sh` is started with `srun`", f"{_RENDERING}test_slurm_starts_a_server_for_each_rank", "rendered"),
    Row("Tensor and pipeline parallelism", "`parallelism`", f"{_RULES}test_a_contradiction_is_named_with_its_fix", "rendered"),
    Row("Expert parallelism", "`parallelism.moe_tp`, `parallelism.moe_ep`", f"{_RENDERING}test_experts_are_shared_when_the_checkpoint_is_made", "rendered"),
    Row("MIG", "nothing to set: give the container a slice as its GPU, and build the engine on one like it", status="documented"),
    Row("Scheduling policies", "`scheduler.policy`", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("KV cache and its reuse", "`kv_cache`; the reference engine reuses blocks as well", "engine/test_engine_kv_reuse.py::test_whole_blocks_of_a_known_prefix_are_reused"),
    Row("Top-k, top-p, top-k top-p", "the reference engine, and `decoding.mode: auto`", "engine/test_engine_contract.py::test_top_p_keeps_the_shortest_nucleus"),
    Row("Beam search", "`use_beam_search`, never streamed, on a deployment with `limits.max_beam_width` and `decoding.mode: beam_search`; this project's engines search no beams", f"{_RULES}test_a_deployment_for_beam_search_is_one_that_the_gateway_serves", "rendered"),
    Row("Medusa, ReDrafter, Lookahead, EAGLE", "`speculative`", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("Chunked context", "`scheduler.chunked_context`; the reference engine always does", "engine/test_engine_model.py::test_chunked_prefill_equals_one_pass"),
    Row("Quantization", "`model.quantization`", _SCRIPTS, "rendered"),
    Row("LoRA", "`models[].lora`: a model of its own name; `lora` of a deployment", "integration/test_additions.py::test_adapters_by_model_name_survive_eviction"),
    Row("Guided decoding", "`guided_decoding`; the reference engine has it", "integration/test_guided.py::test_answers_keep_to_their_guides"),
    Row("P-tuning", "`models[].prompt_tables`, `prompt_table` of a request", "integration/test_additions.py::test_a_table_of_a_text_acts_like_the_text"),
    Row("LLM API", "`engine: llmapi` behind the same five models", "llmapi/test_llmapi_server.py::test_tokens_are_those_of_the_reference_engine"),
    Row("Multimodal, Whisper, encoder-decoder", "text-only decoders", "repository/test_overrides.py::test_what_cannot_be_set_says_why", "refused"),
)  # fmt: skip

METRICS = (
    Row("nv_trt_llm_request_metrics", "from this project's engines; relayed by `/metrics`", _RELAY),
    Row("nv_trt_llm_kv_cache_block_metrics", "likewise", "engine/test_engine_scheduling.py::test_kv_blocks_are_counted"),
    Row("nv_trt_llm_general_metrics", "likewise", _RELAY),
    Row("nv_trt_llm_runtime_memory_metrics", "relayed where TensorRT-LLM has it", _RELAY),
    Row("nv_trt_llm_inflight_batcher_metrics", "relayed where TensorRT-LLM has it", _RELAY),
    Row("nv_trt_llm_v1_metrics", "relayed where TensorRT-LLM has it", _RELAY),
    Row("nv_trt_llm_disaggregated_serving_metrics", "relayed where TensorRT-LLM has it", _RELAY),
    Row("nv_inference_*", "Triton's own, relayed", _RELAY),
)  # fmt: skip
