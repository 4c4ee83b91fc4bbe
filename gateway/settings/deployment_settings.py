"""Settings of one deployment, from which ``gateway repo`` renders a Triton model repository.

Each description says what a key means; defaults are TensorRT-LLM's own unless the description says otherwise. Sources:
TensorRT-LLM's backend, ``docs/model_config.md``; the wire contract 1.3.1 and 6.1.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gateway.settings.section import Section

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

    free_gpu_mem_fraction: Share = Field(
        0.9, description="Share of the GPU memory that is free after loading, for the cache."
    )
    max_tokens: Count | None = Field(
        None, description="Most tokens of the cache; the smaller of this and the fraction applies."
    )
    cross_fraction: Share | None = Field(
        None, description="Share of the cache for cross attention; encoder-decoder models only."
    )
    host_memory_bytes: Size = Field(0, description="Host memory in bytes for offloaded reusable blocks.")
    onboard_blocks: bool | None = Field(None, description="Whether offloaded blocks are copied back before use.")
    reuse: bool = Field(True, description="Share the blocks of common prompt prefixes.")
    tokens_per_block: Count | None = Field(
        None, description="Tokens per block, a power of two, fixed when the engine is built; none: 32."
    )
    dtype: Literal["auto", "fp8", "int8"] = Field("auto", description="Data type of the cached keys and values.")
    max_attention_window: tuple[Count, ...] = Field(
        (), description="Attention window in tokens, one number or one per layer; none: the whole sequence."
    )
    sink_tokens: Period | None = Field(None, description="First tokens that always stay in the attention window.")


class SchedulerSettings(Section):
    """Batching and scheduling of requests."""

    batching: Literal["inflight_fused_batching", "V1"] = Field(
        "inflight_fused_batching", description="In-flight batching, or V1 without it."
    )
    policy: Literal["guaranteed_no_evict", "max_utilization"] = Field(
        "guaranteed_no_evict",
        description=("Never pause a started request, or start more and pause them when memory is full."),
    )
    chunked_context: bool | None = Field(
        None,
        description="Compute long prompts in pieces; none: false with TensorRT engines, true with the LLM API.",
    )


DecodingMode = Literal[
    "auto", "top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle"
]


class DecodingSettings(Section):
    """Sampling, log-probs and text of answers."""

    mode: DecodingMode = Field(
        "auto",
        description="Fixed sampling algorithm; auto: top_k_top_p, or beam_search where max_beam_width is above 1.",
    )
    normalize_log_probs: bool = Field(
        False, description="Compute log-probs over the sampled candidates only. TensorRT-LLM's default is true."
    )
    exclude_input_in_output: bool | EnvironmentReference = Field(
        True, description="No prompt in answers that are not streamed. TensorRT-LLM's default is false."
    )


class LoraSettings(Section):
    """LoRA adapters and their caches."""

    modules: tuple[str, ...] = Field(("attn_q", "attn_k", "attn_v"), description="Modules that adapters may change.")
    max_rank: Count = Field(8, description="Largest rank of an adapter.")
    optimal_adapter_size: Count = Field(8, description="Adapter size that fits exactly into cache pages.")
    max_adapter_size: Count = Field(64, description="Largest adapter size; sets the smallest cache page.")
    gpu_memory_fraction: Share = Field(0.05, description="Share of the GPU memory that is free after the KV cache.")
    host_memory_bytes: Size = Field(2**30, ge=1, description="Host cache in bytes.")
    prefetch_dir: str | None = Field(None, description="Folder of adapters that are loaded at startup.")
    adapters: dict[Count, str] = Field(
        {}, description="Adapters by task id, as {1: /lora/sql}: folders in PEFT's format, converted into prefetch_dir."
    )


class SpeculativeSettings(Section):
    """Speculative decoding."""

    method: Literal["draft_target", "medusa", "redrafter", "lookahead", "eagle"] = Field(
        description="Method that proposes draft tokens."
    )
    draft: str | None = Field(None, description="draft_target: the draft deployment in this file.")
    max_draft_tokens: Count | None = Field(
        None,
        description=(
            "Most draft tokens, as built; required by draft_target; none: from lookahead's sizes or the checkpoint."
        ),
    )
    heads: str | None = Field(
        None, description="medusa, eagle: folder of the additional heads; none: you create the checkpoint."
    )
    num_heads: Count | None = Field(None, description="medusa: number of heads; none: upstream's default, 4.")
    fast_logits: bool = Field(
        False,
        description=("draft_target: transfer logits directly, not through Triton; for the draft, too."),
    )
    medusa_choices: str | None = Field(None, description="Medusa's tree, such as {0}, {0, 1}; none: mc_sim_7b_63.")
    eagle_choices: str | None = Field(None, description="EAGLE's tree, in the same format.")
    window_size: Count | None = Field(
        None, description="lookahead: window size; set all three lookahead sizes together."
    )
    ngram_size: Count | None = Field(None, description="lookahead: length of an n-gram.")
    verification_set_size: Count | None = Field(None, description="lookahead: n-grams verified together.")


GuideType = Literal["json", "json_schema", "regex", "ebnf_grammar", "structural_tag"]


class GuidedDecodingSettings(Section):
    """Guided decoding by JSON schema, regular expression or grammar."""

    backend: Literal["xgrammar", "llguidance"] = Field("xgrammar", description="Library that computes token masks.")
    tokenizer_info: str | None = Field(
        None, description="JSON file of generate_xgrammar_tokenizer_info.py, which the C++ backend needs."
    )
    guide_types: tuple[GuideType, ...] = Field(
        ("json", "json_schema", "regex", "ebnf_grammar", "structural_tag"),
        description="Guide types that a Python engine of this project accepts.",
    )


class LogitsSettings(Section):
    """Logits as outputs: 4 bytes times the vocabulary for each token."""

    context: bool | EnvironmentReference = Field(False, description="Return the logits of the prompt.")
    generation: bool | EnvironmentReference = Field(False, description="Return the logits of the answer.")
    datatype: Literal["FP32", "FP16"] = Field(
        "FP32", description="Data type of the logits, which must be the engine's."
    )


# TensorRT-LLM's plugin.py, the choices of trtllm-build.
PluginType = Literal["auto", "float16", "float32", "bfloat16", "int32", "disable"]
GemmPluginType = Literal["auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable"]


class BuildSettings(Section):
    """Options of ``trtllm-build`` and of the quantization tools."""

    attention_plugin: PluginType = Field("auto", description="gpt_attention_plugin: a data type, auto or disable.")
    gemm_plugin: GemmPluginType = Field("auto", description="gemm_plugin: a data type, auto or disable.")
    lora_plugin: PluginType | None = Field(
        None, description="lora_plugin: a data type, auto or disable; none: auto if `lora` is set."
    )
    paged_kv_cache: bool = Field(True, description="kv_cache_type paged.")
    paged_context_fmha: bool = Field(
        True, description="Paged context attention, required by KV-cache reuse and chunked context."
    )
    remove_input_padding: bool = Field(True, description="Packed prompts, required by in-flight batching.")
    max_prompt_table_size: Period = Field(
        0,
        description=(
            "Most virtual tokens in the prompt tables of a batch (max_prompt_embedding_table_size); p-tuning."
        ),
    )
    weight_streaming: bool = Field(False, description="Allow a part of the weights to stay in host memory.")
    awq_block_size: Count = Field(128, description="Group size of int4_awq and w4a8_awq.")
    calib_dataset: str | None = Field(
        None, description="Calibration texts: an id, or a folder if the image has no network; none: the tool's default."
    )
    calib_size: Count | None = Field(None, description="Number of calibration texts; none: the tool's default, 512.")
    calib_batch_size: Count | None = Field(None, description="Calibration texts per batch; none: the tool's default.")


class RuntimeSettings(Section):
    """Tuning of the C++ backend."""

    gpu_weights_percent: Share = Field(1.0, description="Share of the weights that stays on the GPU.")
    context_fmha_fp32_acc: bool | None = Field(None, description="FP32 accumulation in context attention.")
    multi_block_mode: bool | None = Field(None, description="Multi-block attention; the engine's default is true.")
    cuda_graph_mode: bool = Field(False, description="Capture the generation step as a CUDA graph.")
    cuda_graph_cache_size: Period = Field(0, description="Number of cached CUDA graphs.")
    trt_overlap: bool = Field(
        False, description="Run two micro-batches in parallel; experimental, removed in later versions."
    )
    cancellation_check_period_ms: Count = Field(
        100, description="Interval in ms between checks for cancelled requests."
    )
    stats_check_period_ms: Count = Field(100, description="Interval in ms between reports of statistics.")
    recv_poll_period_ms: Period = Field(0, description="Pause in ms of the receiving thread in orchestrator mode.")
    iter_stats_max_iterations: Period | None = Field(None, description="Iterations for which statistics are stored.")
    request_stats_max_iterations: Period | None = Field(
        None, description="Iterations for which statistics of requests are stored."
    )
    executor_worker_path: str = Field(
        "/opt/tritonserver/backends/tensorrtllm/trtllmExecutorWorker",
        description="Worker of orchestrator mode.",
    )


EngineKind = Literal["tensorrt", "llmapi", "transformers", "reference"]
NAME_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$"  # it becomes a folder, which may not be hidden or lie outside
Identifier = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=128)]
Quantization = Literal["none", "fp8", "int8_sq", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "nvfp4"]
Group = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
"""Of GPUs, or of MPI ranks, that one instance runs on."""


class ModelSource(Section):
    """The model. Missing values come from its ``config.json`` if the gateway can read the folder."""

    source: str = Field(min_length=1, description="Hugging Face id, or a folder in Hugging Face format.")
    folder: str | None = Field(
        None, description="Path of the model on the server; none: the source if it is a folder, else /models/<name>."
    )
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = Field("auto", description="Data type of the weights.")
    quantization: Quantization = Field("none", description="How the weights are quantised.")
    family: Identifier | None = Field(
        None, description="Folder in TensorRT-LLM's examples/models/core; none: from model_type in config.json."
    )
    heads: Count | None = Field(None, description="Attention heads.")
    kv_heads: Count | None = Field(None, description="Key-value heads.")
    layers: Count | None = Field(None, description="Decoder layers.")
    vocab_size: Count | None = Field(None, description="Width of the logits, without padding.")
    max_positions: Count | None = Field(None, description="Positions that the model was trained for.")


class ParallelismSettings(Section):
    """GPUs of one instance."""

    tp: Count = Field(1, description="Tensor parallelism.")
    pp: Count = Field(1, description="Pipeline parallelism.")
    nodes: Count = Field(1, description="Machines over which the tp times pp GPUs are distributed.")
    moe_tp: Count | None = Field(None, description="Tensor parallelism of experts; none: tp divided by moe_ep.")
    moe_ep: Count | None = Field(None, description="Expert parallelism; none: tp divided by moe_tp.")


class EngineLimits(Section):
    """Limits of the engine."""

    max_batch_size: Count | None = Field(None, description="Most sequences in a batch; none: triton.max_batch_size.")
    max_input_len: Count | None = Field(
        None, description="Most tokens of a prompt; none: as many as max_seq_len and max_num_tokens allow."
    )
    max_seq_len: Count | EnvironmentReference | None = Field(
        None, description="Most prompt plus generated tokens; none: the positions in the model's config.json."
    )
    max_num_tokens: Count | None = Field(
        None,
        description=("Most tokens computed in one step; none: 8192 with TensorRT engines, else the engine's default."),
    )
    max_beam_width: Count = Field(1, description="Most beams of a request.")


class InstanceSettings(Section):
    """Number of instances of each model."""

    preprocessing: Count = Field(1, description="Instances of preprocessing.")
    postprocessing: Count = Field(1, description="Instances of postprocessing; several may send chunks out of order.")
    bls: Count = Field(
        1,
        description=(
            "Instances of tensorrt_llm_bls; an instance of this project's model serves many requests concurrently."
        ),
    )


class TritonModelSettings(Section):
    """Batching, queues and placement in Triton."""

    max_batch_size: Count = Field(64, description="triton_max_batch_size of all models.")
    decoupled: bool = Field(
        True, description="Several responses per request, required for streaming. Upstream's default is false."
    )
    max_queue_size: Period = Field(
        0,
        description=(
            "Most queued requests; more are rejected. 0: no limit with TensorRT engines, else the engine's default."
        ),
    )
    max_queue_delay_microseconds: Period = Field(
        0, description="Time in microseconds that Triton waits to batch requests."
    )
    instances: InstanceSettings = InstanceSettings()
    executor: Literal["leader", "orchestrator"] = Field(
        "leader",
        description=(
            "leader: one Triton per rank; orchestrator: one Triton that starts workers, required for several engines."
        ),
    )
    gpu_ids: tuple[Group, ...] = Field(
        (), description="GPUs of each instance, such as [[0, 1], [2, 3]]; none: all GPUs."
    )
    participant_ids: tuple[Group, ...] = Field(
        (),
        description=(
            "MPI ranks of each instance, such as [[1, 2]], starting at 1; the orchestrator starts the workers."
        ),
    )


class TextSettings(Section):
    """Tokenization and detokenization in Triton."""

    add_special_tokens: bool = Field(
        False, description="Add BOS to each prompt; chat templates already add BOS. Upstream's default is true."
    )
    skip_special_tokens: bool = Field(True, description="Leave control tokens out of the text.")
    state_capacity: Count = Field(4096, description="Streamed texts whose decoding state is stored.")
    state_expiry_seconds: Count = Field(600, description="Time in seconds for which it is stored after the last chunk.")


class BlsSettings(Section):
    """The model ``tensorrt_llm_bls``."""

    enabled: bool = Field(True, description="Whether the model is rendered.")
    accumulate_tokens: bool = Field(False, description="Stream the whole text so far instead of the new text.")
    max_concurrent_requests: Count | None = Field(
        None, description="Most concurrent requests; none: triton.max_batch_size."
    )
    engine_silence_seconds: Count = Field(
        600, description="Time in seconds without a response of the engine after which a request ends."
    )


class EncoderEngineSettings(Section):
    """The encoder of an encoder-decoder model."""

    engine_dir: str = Field(description="encoder_engine_dir: folder of the encoder's engine.")


class DeploymentSettings(Section):
    """One model to be deployed: five Triton models, or the single one of a draft."""

    name: Annotated[Identifier, Field(min_length=1)] = Field(
        description="Name of the deployment in messages and other keys."
    )
    engine: EngineKind | EnvironmentReference = Field(
        description=(
            "Engine: TensorRT with the C++ backend, LLM API, transformers or NumPy; a variable is read at load time."
        )
    )
    role: Literal["chat", "draft"] = Field("chat", description="chat: all five models; draft: only the engine model.")
    prefix: Identifier = Field(
        "", description="Prefix of the names of all Triton models, if several deployments share a Triton."
    )
    engine_model: Annotated[Identifier, Field(min_length=1)] = Field(
        "tensorrt_llm", description="Name of the engine model, without prefix."
    )
    trtllm: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+(\.\d+)?$")] = Field(
        "1.2.1", description="TensorRT-LLM version of the server's image; determines tensor names."
    )
    model: ModelSource
    engine_dir: str | None = Field(None, description="Folder of the built engine; required by TensorRT engines.")
    parallelism: ParallelismSettings = ParallelismSettings()
    limits: EngineLimits = EngineLimits()
    triton: TritonModelSettings = TritonModelSettings()
    kv_cache: KvCacheSettings = KvCacheSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    decoding: DecodingSettings = DecodingSettings()
    lora: LoraSettings | None = None
    speculative: SpeculativeSettings | None = None
    guided_decoding: GuidedDecodingSettings | None = None
    logits: LogitsSettings = LogitsSettings()
    prompt_table_datatype: Literal["FP16", "BF16", "FP32"] = Field(
        "FP16", description="Data type of prompt_embedding_table."
    )
    encoder_features_datatype: Literal["FP16", "BF16"] = Field(
        "FP16", description="Data type of encoder_input_features, with or without an encoder."
    )
    encoder: EncoderEngineSettings | None = None
    text: TextSettings = TextSettings()
    bls: BlsSettings = BlsSettings()
    build: BuildSettings = BuildSettings()
    runtime: RuntimeSettings = RuntimeSettings()

    @property
    def engine_name(self) -> str:
        """The engine model's name in Triton."""
        return self.prefix + self.engine_model

    @property
    def folder(self) -> str:
        """The folder where the server finds the tokenizer and, without a built engine, the weights."""
        if self.model.folder is not None:
            return self.model.folder
        is_path = self.model.source.startswith(("/", "~", "${"))
        return self.model.source if is_path else f"/models/{self.name}"
