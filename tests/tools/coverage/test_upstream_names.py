"""The page has a row for everything that upstream's pages name, by the page and its table: facts, taken down from them.

The READMEs are those of github.com/triton-inference-server/tensorrtllm_backend, README.md of 2023 (0.5) and of 2024
(0.9 and 0.10); the tutorial is "Running Llama 3 with Triton and TensorRT-LLM" (2024, TensorRT-LLM 0.9); the scripts are
``inflight_batcher_llm/client/*.py`` of v0.19.0 and ``scripts/launch_triton_server.py`` of TensorRT-LLM 1.2.
"""

from __future__ import annotations

import pytest

from tools.coverage.document import rows_by_section

_ENGINE_OPTIONS = """
    gpt_model_type gpt_model_path batch_scheduler_policy decoupled max_beam_width max_tokens_in_paged_kv_cache
    max_attention_window_size kv_cache_free_gpu_mem_fraction enable_trt_overlap exclude_input_in_output
    cancellation_check_period_ms stats_check_period_ms iter_stats_max_iterations request_stats_max_iterations
    normalize_log_probs enable_chunked_context gpu_device_ids decoding_mode medusa_choices
    lora_cache_optimal_adapter_size lora_cache_max_adapter_size lora_cache_gpu_memory_fraction
    lora_cache_host_memory_bytes gpu_weights_percent
"""
_BLS_INPUTS = """
    text_input max_tokens bad_words stop_words end_id pad_id temperature top_k top_p len_penalty repetition_penalty
    min_length presence_penalty frequency_penalty random_seed return_log_probs return_context_logits
    return_generation_logits beam_width stream prompt_embedding_table prompt_vocab_size lora_task_id lora_weights
    lora_config embedding_bias_words embedding_bias_weights num_draft_tokens use_draft_logits
"""
_METRICS = """
    nv_trt_llm_request_metrics nv_trt_llm_runtime_memory_metrics nv_trt_llm_kv_cache_block_metrics
    nv_trt_llm_inflight_batcher_metrics nv_trt_llm_general_metrics nv_trt_llm_v1_metrics nv_inference_request_success
    nv_inference_request_failure nv_inference_count nv_inference_exec_count nv_inference_request_duration_us
    nv_inference_queue_duration_us nv_inference_compute_input_duration_us nv_inference_compute_infer_duration_us
    nv_inference_compute_output_duration_us nv_inference_pending_request_count
"""
_CLIENT = """
    --verbose --url --ssl --private-key --root-certificates --certificate-chain --tokenizer-dir --tokenizer-type --text
    --input-tokens-csv --output-tokens-csv --draft-tokens-csv --request-output-len --stop-after-ms
    --stop-via-request-cancel --stream-timeout --streaming --grpc-compression-algorithm --lora-path --lora-task-id
    --prompt-embedding-table-path --prompt-task-id --prompt_table_extra_id --exclude-input-in-output --beam-width
    --temperature --repetition-penalty --presence-penalty --frequency-penalty --top-k --top-p --end-id --pad-id
    --request-id --num-return-sequences --return-log-probs --return-context-logits --return-generation-logits
    --return-perf-metrics --requested-outputs --model-name --dtype --check-output --correctness-threshold
    --lookahead_config --vocab_size
"""
_END_TO_END = """
    --prompt --output-len --batch-inputs --check-outputs --expected-outputs --overwrite-output-text --bad-words
    --stop-words --embedding-bias-words --embedding-bias-weights --guided-decoding-guide-type --guided-decoding-guide
"""
_SPECULATIVE = """
    --url-target --url-draft --preprocessor-model-name --postprocessor-model-name --target-tensorrt-llm-model-name
    --draft-tensorrt-llm-model-name --num-draft-tokens --return-draft-model-draft-logits
    --return-target-model-accepted-token-logits
"""
_LAUNCHER = """
    --world_size --model_repo --tensorrt_llm_model_name --grpc_port --http_port --metrics_port --tritonserver --force
    --log --log-file --multi-model --disable-spawn-processes --no-mpi --oversubscribe --trtllm_llmapi_launch
    --multimodal_gpu0_cuda_mem_pool_bytes --exit_timeout
"""

BY_SECTION: dict[str, tuple[str, ...]] = {
    # READMEs: "Modify the model configuration", three models; "tensorrt_llm_bls"
    "Options of the configurations": (
        *("tokenizer_dir", "tokenizer_type", *_ENGINE_OPTIONS.split()),
        *("accumulate_tokens", "tensorrt_llm_model_name", "tensorrt_llm_draft_model_name"),
        # the tutorial's fill_template.py
        *("triton_max_batch_size", "preprocessing_instance_count", "postprocessing_instance_count", "triton_backend"),
        *("decoupled_mode", "engine_dir", "enable_kv_cache_reuse", "batching_strategy", "max_queue_delay_microseconds"),
    ),
    # READMEs: "BLS Inputs", "BLS Outputs"
    "Inputs": tuple(_BLS_INPUTS.split()),
    "Outputs": ("text_output", "cum_log_probs", "output_log_probs", "context_logits", "generation_logtis"),
    # READMEs: "Triton Metrics"; the contract of 1.2
    "Metrics": (
        *_METRICS.split(),
        *("nv_trt_llm_disaggregated_serving_metrics", "nv_llm_input_token_len", "nv_llm_output_token_len", "nv_gpu_*"),
    ),
    "Arguments of the client scripts": (*_CLIENT.split(), *_END_TO_END.split(), *_SPECULATIVE.split()),
    "Options of the launcher": tuple(_LAUNCHER.split()),
    # READMEs: "Prepare TensorRT-LLM engines", "Return context logits and/or generation logits"; the tutorial
    "Flags of the tools that make engines": (
        *("convert_checkpoint.py", "quantize.py", "trtllm-build", "hf_gpt_convert.py", "build.py of examples/gpt"),
        *("--model_dir", "--dtype", "--tp_size", "--output_dir", "--checkpoint_dir", "--gpt_attention_plugin"),
        *("--remove_input_padding", "--paged_kv_cache", "--gemm_plugin", "--gather_context_logits"),
        *("--gather_generation_logits", "--gather_all_token_logits", "--qformat", "--awq_block_size", "--batch_size"),
        *("--engine_dir", "--max_output_len", "--tokenizer_dir", "--input_text"),
    ),
    "Modes and features": (
        *("Ensemble", "BLS (tensorrt_llm_bls)", "BLS: accumulate_tokens", "Leader mode", "In-flight batching"),
        *("BLS: speculative decoding with a draft model", "Orchestrator mode (--multi-model)", "V1 batching", "Medusa"),
        *("Decoupled mode", "Beam search", "Chunked context", "LoRA", "P-tuning", "Several instances of one model"),
        *("Several models in one Triton", "Quantization", "Paged KV cache", "Tensor and pipeline parallelism"),
    ),
    "Steps": (
        *("Run the pre-built container (NGC)", "Build the container with build.py of the server"),
        *("Build the container with Docker", "Prepare TensorRT-LLM engines", "Create the model repository"),
        *("Modify the model configuration (fill_template.py)", "Launch Triton server within NVIDIA's container"),
        *("Query the server with the generate endpoint", "Utilize the provided client script", "Early stopping"),
        *("Return context logits and/or generation logits", "Launch Triton server within Slurm based clusters"),
        *("Submit a Slurm job", "Kill the Triton server", "Triton metrics", "Download the weights"),
        *("Testing the TensorRT-LLM backend (ci/README.md)", "Quantize the model", "Leave the BLS model out"),
        "Run the engine locally (run.py)",
    ),
}
"""Names that must have a row, by the section of docs/reference/served.md that must have it."""


@pytest.mark.parametrize("section", BY_SECTION)
def test_every_name_of_upstream_s_pages_has_its_row(section: str) -> None:
    rows = [row.name for row in rows_by_section()[section]]
    assert [name for name in BY_SECTION[section] if name not in rows] == []


@pytest.mark.parametrize("section", rows_by_section())
def test_a_name_has_one_row(section: str) -> None:
    rows = [row.name for row in rows_by_section()[section]]
    assert len(rows) == len(set(rows))
