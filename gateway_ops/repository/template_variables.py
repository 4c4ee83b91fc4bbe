"""The variables of TensorRT-LLM's templates, which ``fill_template.py`` fills, with the keys that set them here.

Sources: TensorRT-LLM ``triton_backend/all_models/inflight_batcher_llm/*/config.pbtxt`` and ``tools/fill_template.py``,
tensorrtllm_backend ``docs/model_config.md``, and the READMEs of 2023 and 2024 for what is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

_TEXT_STEPS = ("preprocessing", "postprocessing")
_ENGINE = ("tensorrt_llm",)
_BLS = ("tensorrt_llm_bls",)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable ``${name}`` of TensorRT-LLM's templates.

    Attributes:
        name: name in the template.
        models: the templates that have it.
        key: the key of a deployment that sets it; empty when it is not served.
        default: TensorRT-LLM's, ``required`` where it must be set.
        parameter: the engine model's parameter that it fills; empty when it fills something else.
        rejected: why it is not served; empty when it is.
    """

    name: str
    models: tuple[str, ...]
    key: str = ""
    default: str = ""
    parameter: str = ""
    rejected: str = ""

    @property
    def required(self) -> bool:
        """Whether a deployment must set the variable, because the template has no default for it."""
        return self.default == "required"


def _engine(name: str, key: str, default: str = "", *, parameter: str = "") -> Variable:
    return Variable(name, _ENGINE, key, default, parameter or name)


_MULTIMODAL = "preprocessing here is for text"
_ALL = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")

VARIABLES: tuple[Variable, ...] = (
    Variable("triton_max_batch_size", _ALL, "triton.max_batch_size", "required"),
    Variable("logits_datatype", ("ensemble", *_ENGINE, *_BLS), "logits.datatype", "required"),
    Variable("tokenizer_dir", (*_TEXT_STEPS, *_ENGINE), "model.folder", "required"),
    Variable("add_special_tokens", ("preprocessing",), "text.add_special_tokens", "true"),
    Variable("skip_special_tokens", ("postprocessing",), "text.skip_special_tokens", "true"),
    Variable("preprocessing_instance_count", ("preprocessing",), "triton.instances.preprocessing", "required"),
    Variable("postprocessing_instance_count", ("postprocessing",), "triton.instances.postprocessing", "required"),
    Variable("max_queue_delay_microseconds", ("preprocessing", *_ENGINE), "triton.max_queue_delay_microseconds", "0"),
    Variable("max_queue_size", ("preprocessing", *_ENGINE), "triton.max_queue_size", "0"),
    Variable("triton_backend", _ENGINE, "engine", "required"),
    Variable("decoupled_mode", (*_ENGINE, *_BLS), "triton.decoupled", "required"),
    Variable("encoder_input_features_data_type", _ENGINE, "encoder_features_datatype", "required"),
    Variable("prompt_embedding_table_data_type", (*_ENGINE, *_BLS), "prompt_table_datatype", "required"),
    _engine("max_beam_width", "limits.max_beam_width", "1"),
    _engine("batching_strategy", "scheduler.batching", "required", parameter="gpt_model_type"),
    _engine("engine_dir", "engine_dir", "required", parameter="gpt_model_path"),
    _engine("encoder_engine_dir", "encoder.engine_dir", parameter="encoder_model_path"),
    _engine("max_tokens_in_paged_kv_cache", "kv_cache.max_tokens", "no bound"),
    _engine("max_attention_window_size", "kv_cache.max_attention_window", "the longest sequence"),
    _engine("sink_token_length", "kv_cache.sink_tokens", "0"),
    _engine("batch_scheduler_policy", "scheduler.policy", "guaranteed_no_evict"),
    _engine("kv_cache_free_gpu_mem_fraction", "kv_cache.free_gpu_mem_fraction", "0.9"),
    _engine("cross_kv_cache_fraction", "kv_cache.cross_fraction", "0.5"),
    _engine("kv_cache_host_memory_bytes", "kv_cache.host_memory_bytes", "0"),
    _engine("kv_cache_onboard_blocks", "kv_cache.onboard_blocks", "true"),
    _engine("enable_trt_overlap", "runtime.trt_overlap", "false"),
    _engine("exclude_input_in_output", "decoding.exclude_input_in_output", "false"),
    _engine("cancellation_check_period_ms", "runtime.cancellation_check_period_ms", "100"),
    _engine("stats_check_period_ms", "runtime.stats_check_period_ms", "100"),
    _engine("recv_poll_period_ms", "runtime.recv_poll_period_ms", "0"),
    _engine("iter_stats_max_iterations", "runtime.iter_stats_max_iterations", "1000"),
    _engine("request_stats_max_iterations", "runtime.request_stats_max_iterations", "0"),
    _engine("enable_kv_cache_reuse", "kv_cache.reuse", "true; false up to 0.18"),
    _engine("normalize_log_probs", "decoding.normalize_log_probs", "true"),
    _engine("enable_chunked_context", "scheduler.chunked_context", "false"),
    _engine("gpu_device_ids", "triton.gpu_ids", "all visible GPUs"),
    _engine("participant_ids", "triton.participant_ids", "none"),
    _engine("num_nodes", "parallelism.nodes", "1"),
    _engine("lora_cache_optimal_adapter_size", "lora.optimal_adapter_size", "8"),
    _engine("lora_cache_max_adapter_size", "lora.max_adapter_size", "64"),
    _engine("lora_cache_gpu_memory_fraction", "lora.gpu_memory_fraction", "0.05"),
    _engine("lora_cache_host_memory_bytes", "lora.host_memory_bytes", "1 GiB"),
    _engine("lora_prefetch_dir", "lora.prefetch_dir", "none"),
    _engine("decoding_mode", "decoding.mode", "top_k_top_p, or beam_search with beams"),
    _engine("lookahead_window_size", "speculative.window_size", "none"),
    _engine("lookahead_ngram_size", "speculative.ngram_size", "none"),
    _engine("lookahead_verification_set_size", "speculative.verification_set_size", "none"),
    _engine("medusa_choices", "speculative.medusa_choices", "mc_sim_7b_63"),
    _engine("eagle_choices", "speculative.eagle_choices", "mc_sim_7b_63"),
    _engine("speculative_decoding_fast_logits", "speculative.fast_logits", "false"),
    _engine("gpu_weights_percent", "runtime.gpu_weights_percent", "1.0"),
    _engine("enable_context_fmha_fp32_acc", "runtime.context_fmha_fp32_acc", "false"),
    _engine("multi_block_mode", "runtime.multi_block_mode", "true"),
    _engine("cuda_graph_mode", "runtime.cuda_graph_mode", "false"),
    _engine("cuda_graph_cache_size", "runtime.cuda_graph_cache_size", "0"),
    _engine("executor_worker_path", "runtime.executor_worker_path", "the image's own"),
    _engine("guided_decoding_backend", "guided_decoding.backend", "none"),
    _engine("xgrammar_tokenizer_info_path", "guided_decoding.tokenizer_info", "none"),
    Variable("bls_instance_count", _BLS, "triton.instances.bls", "required"),
    Variable("accumulate_tokens", _BLS, "bls.accumulate_tokens", "false"),
    Variable("tensorrt_llm_model_name", _BLS, "engine_model", "tensorrt_llm"),
    Variable("tensorrt_llm_draft_model_name", _BLS, "speculative.draft", "none"),
    Variable("multimodal_encoders_name", _BLS, rejected=_MULTIMODAL),
    Variable("multimodal_model_path", ("preprocessing",), rejected=_MULTIMODAL),
    Variable("hf_model_path", ("preprocessing",), rejected=_MULTIMODAL),
    Variable("max_num_images", ("preprocessing",), rejected=_MULTIMODAL),
    Variable("tokenizer_type", _TEXT_STEPS, rejected="removed in 0.9: tokenizer.json describes the tokenizer"),
)
"""Every variable, in the order of the templates."""

BY_NAME = {variable.name: variable for variable in VARIABLES}
_SPELLINGS = {variable.parameter: variable for variable in VARIABLES if variable.parameter}
BY_SPELLING = {**_SPELLINGS, "decoupled": BY_NAME["decoupled_mode"], **BY_NAME}
"""The variables by every name in upstream's READMEs: of the variable, its parameter or its field."""
ENGINE_PARAMETERS = tuple(variable for variable in VARIABLES if variable.parameter)
"""Those that fill parameters of the C++ backend's model, in its order."""
