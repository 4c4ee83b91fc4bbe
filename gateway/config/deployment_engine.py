"""Settings of a deployment's engine: KV cache, scheduling, decoding, LoRA, speculation, guides, logits, build, runtime.

Each description says what a key means; defaults are TensorRT-LLM's own unless the description says otherwise. Sources:
TensorRT-LLM's backend, ``docs/model_config.md``; the wire contract 1.3.1 and 6.1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gateway.config.section import Section

REFERENCE_PATTERN = r"^\$\{[A-Z][A-Z0-9_]*\}$"
EnvironmentReference = Annotated[str, StringConstraints(pattern=REFERENCE_PATTERN)]
"""``${NAME}``: this project's Python models read the variable when Triton loads them."""

Share = Annotated[float, Field(gt=0, le=1)]
# Triton and TensorRT-LLM keep numbers in 32 bits, and bytes in 64.
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Period = Annotated[int, Field(ge=0, le=2**31 - 1)]
Size = Annotated[int, Field(ge=0, le=2**63 - 1)]


class KvCacheSettings(Section):
    """The engine's KV cache."""

    free_gpu_mem_fraction: Share = Field(0.9, description="Share of the GPU memory left after loading, for the cache.")
    max_tokens: Count | None = Field(None, description="Tokens at most; the smaller of this and the fraction counts.")
    cross_fraction: Share | None = Field(None, description="Share for cross attention; encoder-decoder models only.")
    host_memory_bytes: Size = Field(0, description="Host memory to offload reusable blocks to.")
    onboard_blocks: bool | None = Field(None, description="Whether offloaded blocks are copied back before use.")
    reuse: bool = Field(True, description="Share the blocks of common prompt prefixes.")
    tokens_per_block: Count | None = Field(
        None, description="Tokens of a block, a power of two, fixed when the engine is built; none: 32."
    )
    dtype: Literal["auto", "fp8", "int8"] = Field("auto", description="Type of the cached keys and values.")
    max_attention_window: tuple[Count, ...] = Field(
        (), description="Tokens attended to, one number or one for each layer in turn; none: the whole sequence."
    )
    sink_tokens: Period | None = Field(None, description="First tokens always kept in the attention window.")


class SchedulerSettings(Section):
    """Which requests are computed together."""

    batching: Literal["inflight_fused_batching", "V1"] = Field(
        "inflight_fused_batching", description="In-flight batching, or V1 without it."
    )
    policy: Literal["guaranteed_no_evict", "max_utilization"] = Field(
        "guaranteed_no_evict", description="Never pause a started request, or pack greedily and pause when memory ends."
    )
    chunked_context: bool | None = Field(
        None,
        description="Compute long prompts in pieces; none: false with TensorRT engines, true with the LLM API.",
    )


DecodingMode = Literal[
    "auto", "top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle"
]


class DecodingSettings(Section):
    """How tokens are chosen, and what is told of them."""

    mode: DecodingMode = Field(
        "auto",
        description="Fixed sampling algorithm; auto: top_k_top_p, or beam_search where max_beam_width is above 1.",
    )
    normalize_log_probs: bool = Field(
        False, description="Log-probs over the sampled candidates only. TensorRT-LLM's default is true."
    )
    exclude_input_in_output: bool | EnvironmentReference = Field(
        True, description="No prompt in answers that are not streamed. TensorRT-LLM's default is false."
    )


class LoraSettings(Section):
    """LoRA adapters and their caches."""

    modules: tuple[str, ...] = Field(("attn_q", "attn_k", "attn_v"), description="Modules that adapters may change.")
    max_rank: Count = Field(8, description="Largest rank of an adapter.")
    optimal_adapter_size: Count = Field(8, description="Adapter size that a cache page is made for.")
    max_adapter_size: Count = Field(64, description="Largest adapter size; sets the smallest cache page.")
    gpu_memory_fraction: Share = Field(0.05, description="Share of the memory left after the KV cache.")
    host_memory_bytes: Size = Field(2**30, ge=1, description="Host cache.")
    prefetch_dir: str | None = Field(None, description="Folder of adapters that are loaded at the start.")


class SpeculativeSettings(Section):
    """Speculative decoding."""

    method: Literal["draft_target", "medusa", "redrafter", "lookahead", "eagle"] = Field(
        description="How tokens are guessed ahead."
    )
    draft: str | None = Field(None, description="draft_target: the deployment of this file that guesses.")
    max_draft_tokens: Count | None = Field(
        None,
        description="Guessed tokens at most, fixed when the engine is built; draft_target needs it, lookahead's sizes "
        "make it, and else none is the checkpoint's own.",
    )
    fast_logits: bool = Field(
        False,
        description="draft_target: hand logits over directly, not through Triton; goes for the draft as well.",
    )
    medusa_choices: str | None = Field(None, description="Medusa's tree, as {0}, {0, 1}; none: mc_sim_7b_63.")
    eagle_choices: str | None = Field(None, description="EAGLE's tree, likewise.")
    window_size: Count | None = Field(None, description="lookahead: window; goes with the next two.")
    ngram_size: Count | None = Field(None, description="lookahead: length of an n-gram.")
    verification_set_size: Count | None = Field(None, description="lookahead: n-grams verified at once.")


GuideType = Literal["json", "json_schema", "regex", "ebnf_grammar", "structural_tag"]


class GuidedDecodingSettings(Section):
    """Answers held to a JSON schema, a regular expression or a grammar."""

    backend: Literal["xgrammar", "llguidance"] = Field("xgrammar", description="Library that computes token masks.")
    tokenizer_info: str | None = Field(
        None, description="JSON file of generate_xgrammar_tokenizer_info.py, which the C++ backend needs."
    )
    guide_types: tuple[GuideType, ...] = Field(
        ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag"),
        description="Kinds that a Python engine of this project takes, as it tells the gateway.",
    )


class LogitsSettings(Section):
    """Logits as outputs: 4 bytes times the vocabulary for each token."""

    context: bool | EnvironmentReference = Field(False, description="Gather those of the prompt.")
    generation: bool | EnvironmentReference = Field(False, description="Gather those of the answer.")
    datatype: Literal["FP32", "FP16"] = Field("FP32", description="Type of the tensors; the engine's.")


# TensorRT-LLM's plugin.py, the choices of trtllm-build.
PluginType = Literal["auto", "float16", "float32", "bfloat16", "int32", "disable"]
GemmPluginType = Literal["auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable"]


class BuildSettings(Section):
    """What ``trtllm-build`` is told beside the limits; TensorRT engines only."""

    attention_plugin: PluginType = Field("auto", description="gpt_attention_plugin: a type, auto or disable.")
    gemm_plugin: GemmPluginType = Field("auto", description="gemm_plugin: a type, auto or disable.")
    lora_plugin: PluginType | None = Field(
        None, description="A type, auto or disable; none: auto where `lora` is given."
    )
    paged_kv_cache: bool = Field(True, description="kv_cache_type paged.")
    paged_context_fmha: bool = Field(True, description="Needed by KV-cache reuse and chunked context.")
    remove_input_padding: bool = Field(True, description="Packed prompts; in-flight batching needs it.")
    max_prompt_table_size: Period = Field(
        0, description="Virtual tokens that the tables of a batch may have (max_prompt_embedding_table_size); p-tuning."
    )
    weight_streaming: bool = Field(False, description="Let a part of the weights live in host memory.")
    awq_block_size: Count = Field(128, description="Group size of int4_awq and w4a8_awq.")


class RuntimeSettings(Section):
    """Tuning of the C++ backend."""

    gpu_weights_percent: Share = Field(1.0, description="Share of the weights that stays on the GPU.")
    context_fmha_fp32_acc: bool | None = Field(None, description="FP32 accumulation in context attention.")
    multi_block_mode: bool | None = Field(None, description="Multi-block attention; the engine's default is true.")
    cuda_graph_mode: bool = Field(False, description="Capture the generation step as a CUDA graph.")
    cuda_graph_cache_size: Period = Field(0, description="CUDA graphs kept.")
    trt_overlap: bool = Field(False, description="Run two micro-batches at once; experimental, gone in later versions.")
    cancellation_check_period_ms: Count = Field(100, description="How often cancelled requests are looked for.")
    stats_check_period_ms: Count = Field(100, description="How often statistics are reported.")
    recv_poll_period_ms: Period = Field(0, description="Pause of the receiving thread in orchestrator mode.")
    iter_stats_max_iterations: Period | None = Field(None, description="Iterations that statistics are kept for.")
    request_stats_max_iterations: Period | None = Field(None, description="The same for statistics of requests.")
    executor_worker_path: str = Field(
        "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker", description="Worker of the orchestrator mode."
    )
