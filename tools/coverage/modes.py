"""Modes and features that the READMEs and the configuration page tell of."""

from __future__ import annotations

from tools.coverage.row import Row

_RENDERING = "gateway_ops/repository/test_rendering.py::"
_README = "tools/coverage/test_readme_scripts.py::"
_LAUNCHER = f"{_README}test_the_launcher_is_told_of_ranks_models_and_mode"
_SPECULATIVE = f"{_README}test_engines_are_built_for_each_way_of_guessing"
_RULES = "gateway_ops/repository/test_contradictions.py::"
_OPTIONS = "gateway_ops/repository/test_options.py::"
_SERVER = "integration/test_rendered_repository.py::test_every_way_gives_the_same_text"

MODES = (
    Row("Ensemble", "rendered, and called where token ids do not flow straight", _SERVER),
    Row("BLS (tensorrt_llm_bls)", "rendered, and called where a served model names it", _SERVER),
    Row("BLS: as many instances as requests", "not needed: many requests share one instance, up to `max_concurrent_requests`", "integration/test_triton_repo_text.py::test_two_streams_on_one_bls_instance_run_side_by_side"),
    Row("BLS: accumulate_tokens", "`bls.accumulate_tokens`", "integration/test_triton_repo_parameters.py::test_accumulate_tokens_gives_the_text_so_far"),
    Row("BLS: speculative decoding with a draft model", "`speculative` of a served model whose `triton.model` it is, by ids or by logits, streamed too; both engines are rendered", "integration/test_drafts.py::test_a_chat_is_drafted_for_and_stays_the_targets_own"),
    Row("Decoupled mode", "`triton.decoupled`, on by default", "integration/test_triton_repo_text.py::test_streamed_text_is_the_whole_text"),
    Row("Leader mode", "`triton.executor: leader`", _LAUNCHER, "rendered"),
    Row("Orchestrator mode (--multi-model)", "`triton.executor: orchestrator`", _LAUNCHER, "rendered"),
    Row("Several models in one Triton", "several deployments with `prefix`", _SERVER),
    Row("Several instances of one model", "`triton.gpu_ids: [[0], [1]]`", "gateway_ops/repository/test_stock_comparison.py::test_what_stock_templates_give_differs_only_for_the_better", "rendered"),
    Row("Several nodes", "`parallelism.nodes`; `launch.sh` is started with `srun`", f"{_RENDERING}test_slurm_starts_a_server_for_each_rank", "rendered"),
    Row("Tensor and pipeline parallelism", "`parallelism`", f"{_RENDERING}test_slurm_starts_a_server_for_each_rank", "rendered"),
    Row("Expert parallelism", "`parallelism.moe_tp`, `parallelism.moe_ep`", f"{_RENDERING}test_experts_are_shared_when_the_checkpoint_is_made", "rendered"),
    Row("MIG", "nothing to set: give the container a slice as its GPU, and build the engine on one like it", status="documented"),
    Row("Scheduling policies", "`scheduler.policy`", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("KV cache and its reuse", "`kv_cache`; the reference engine reuses blocks as well", "engine/test_engine_kv_reuse.py::test_whole_blocks_of_a_known_prefix_are_reused"),
    Row("Top-k, top-p, top-k top-p", "the reference engine, and `decoding.mode: auto`", "engine/test_engine_contract.py::test_top_p_keeps_the_shortest_nucleus"),
    Row("Beam search", "`use_beam_search`, never streamed, on a deployment with `limits.max_beam_width` and `decoding.mode: beam_search`; the reference engine searches no beams, the LLM API's does", f"{_RULES}test_a_deployment_for_beam_search_is_one_that_the_gateway_serves", "rendered"),
    Row("Medusa", "`speculative.method: medusa`", _SPECULATIVE, "rendered"),
    Row("ReDrafter", "`speculative.method: redrafter`", _SPECULATIVE, "rendered"),
    Row("Lookahead", "`speculative.method: lookahead`", _SPECULATIVE, "rendered"),
    Row("EAGLE", "`speculative.method: eagle`", _SPECULATIVE, "rendered"),
    Row("Paged KV cache", "`build.paged_kv_cache`, on by default", f"{_README}test_the_flags_of_the_readme_s_example_are_in_the_script", "rendered"),
    Row("In-flight batching", "`scheduler.batching`, on by default; the reference engine always does", "integration/test_dialects.py::test_many_requests_at_once"),
    Row("V1 batching", "`scheduler.batching: V1`", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("Chunked context", "`scheduler.chunked_context`; the reference engine always does", "engine/test_engine_model.py::test_chunked_prefill_equals_one_pass"),
    Row("Quantization", "`model.quantization`", f"{_README}test_the_flags_of_the_tutorial_are_in_the_script", "rendered"),
    Row("LoRA", "`models[].lora`: a model of its own name; `lora` of a deployment", "integration/test_additions.py::test_adapters_by_model_name_survive_eviction"),
    Row("Guided decoding", "`guided_decoding`; the reference engine has it", "integration/test_guided.py::test_answers_keep_to_their_guides"),
    Row("P-tuning", "`models[].prompt_tables`, `prompt_table` of a request", "integration/test_additions.py::test_a_table_of_a_text_acts_like_the_text"),
    Row("LLM API", "`engine: llmapi` behind the same five models", "llmapi/test_llmapi_server.py::test_tokens_are_those_of_the_reference_engine"),
    Row("Encoder-decoder models", "`encoder` of a deployment; `preprocessing` tokenizes `decoder_text_input`. This project's engines refuse it, and the gateway never sends it", f"{_OPTIONS}test_an_option_reaches_its_configuration", "rendered"),
    Row("Multimodal models, Whisper", "text only", "gateway_ops/repository/test_overrides.py::test_what_cannot_be_set_says_why", "refused"),
    Row("Disaggregated serving", "no place in a deployment, and `context_phase_params` is refused", "engine/test_engine_refusals.py::test_what_is_listed_as_refused_is_refused", "refused"),
)  # fmt: skip
