"""Settings of one deployment, from which ``gateway repo build`` renders a Triton model repository.

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
    """The choice of requests that are computed together."""

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
    """The choice of tokens, and the log-probs and text that answers carry."""

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
    adapters: dict[Count, str] = Field(
        {}, description="Adapters by task id, as {1: /lora/sql}: folders in PEFT's format, converted into prefetch_dir."
    )


class SpeculativeSettings(Section):
    """Speculative decoding."""

    method: Literal["draft_target", "medusa", "redrafter", "lookahead", "eagle"] = Field(
        description="How tokens are guessed ahead."
    )
    draft: str | None = Field(None, description="draft_target: the deployment of this file that guesses.")
    max_draft_tokens: Count | None = Field(
        None,
        description="Guessed tokens at most, as built; draft_target needs it; none: lookahead's sizes, or the "
        "checkpoint's.",
    )
    heads: str | None = Field(
        None, description="medusa, eagle: folder of the heads beside the model; none: you make the checkpoint."
    )
    num_heads: Count | None = Field(None, description="medusa: how many heads; none: upstream's 4.")
    fast_logits: bool = Field(
        False,
        description="draft_target: hand logits over directly, not through Triton; for the draft too.",
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
        description="Kinds that a Python engine of this project takes.",
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
    """Options of ``trtllm-build`` beside the limits, and of the tools that quantise."""

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
    calib_dataset: str | None = Field(
        None, description="Texts for calibration: an id, or a folder where the image has no network; none: the tool's."
    )
    calib_size: Count | None = Field(None, description="How many of them; none: the tool's, 512.")
    calib_batch_size: Count | None = Field(None, description="How many at a time; none: the tool's.")


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


EngineKind = Literal["tensorrt", "llmapi", "transformers", "reference"]
NAME_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$"  # it becomes a folder, which may not be hidden or lie outside
Identifier = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=128)]
Quantization = Literal["none", "fp8", "int8_sq", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "nvfp4"]
Group = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
"""Of GPUs, or of MPI ranks, that one instance runs on."""


class ModelSource(Section):
    """The model itself. Missing values come from its ``config.json``, where the folder can be read here."""

    source: str = Field(min_length=1, description="Hugging Face id, or a folder in its format.")
    folder: str | None = Field(
        None, description="Where the server finds it; none: the source if it is a folder, else /models/<name>."
    )
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = Field("auto", description="Type of weights.")
    quantization: Quantization = Field("none", description="How the weights are quantised.")
    family: Identifier | None = Field(
        None, description="Folder of TensorRT-LLM's examples/models/core for it; none: by config.json's model_type."
    )
    heads: Count | None = Field(None, description="Attention heads.")
    kv_heads: Count | None = Field(None, description="Heads of keys and values.")
    layers: Count | None = Field(None, description="Decoder layers.")
    vocab_size: Count | None = Field(None, description="Width of the logits, without padding.")
    max_positions: Count | None = Field(None, description="Positions that the model was made for.")


class ParallelismSettings(Section):
    """The GPUs that one instance is spread over."""

    tp: Count = Field(1, description="Tensor parallelism.")
    pp: Count = Field(1, description="Pipeline parallelism.")
    nodes: Count = Field(1, description="Machines that tp times pp GPUs are spread over.")
    moe_tp: Count | None = Field(None, description="GPUs that share each expert; none: tp divided by moe_ep.")
    moe_ep: Count | None = Field(
        None, description="Groups of GPUs with experts of their own; none: tp divided by moe_tp."
    )


class EngineLimits(Section):
    """Bounds of the engine."""

    max_batch_size: Count | None = Field(None, description="Sequences computed together; none: triton.max_batch_size.")
    max_input_len: Count | None = Field(
        None, description="Tokens of a prompt; none: as many as max_seq_len and a step leave room for."
    )
    max_seq_len: Count | EnvironmentReference | None = Field(
        None, description="Prompt plus generated tokens; none: the positions of the model's config.json."
    )
    max_num_tokens: Count | None = Field(
        None, description="Tokens computed in one step; none: 8192 with TensorRT engines, else the engine's own bound."
    )
    max_beam_width: Count = Field(1, description="Beams of a request.")


class InstanceSettings(Section):
    """The number of copies of each model."""

    preprocessing: Count = Field(1, description="Of preprocessing.")
    postprocessing: Count = Field(1, description="Of postprocessing; one, or streamed pieces may overtake each other.")
    bls: Count = Field(1, description="Of tensorrt_llm_bls; one of ours serves many requests at once.")


class TritonModelSettings(Section):
    """Triton's part in front of the engine: batching, queues and placement."""

    max_batch_size: Count = Field(64, description="triton_max_batch_size of all models.")
    decoupled: bool = Field(True, description="Several responses to a request: streaming. Upstream's default is false.")
    max_queue_size: Period = Field(
        0, description="Requests that may wait; more are refused. 0: no bound with TensorRT engines, else the engine's."
    )
    max_queue_delay_microseconds: Period = Field(0, description="How long Triton waits to send requests together.")
    instances: InstanceSettings = InstanceSettings()
    executor: Literal["leader", "orchestrator"] = Field(
        "leader", description="One Triton for each rank, or one that spawns workers; several engines need the latter."
    )
    gpu_ids: tuple[Group, ...] = Field((), description="GPUs of each instance, as [[0, 1], [2, 3]]; none: all.")
    participant_ids: tuple[Group, ...] = Field(
        (),
        description="MPI ranks of each instance, as [[1, 2]], from 1; workers start with the orchestrator.",
    )


class TextSettings(Section):
    """Tokenizing and detokenizing in Triton."""

    add_special_tokens: bool = Field(
        False, description="BOS before each prompt, which chat templates bring themselves. Upstream's default is true."
    )
    skip_special_tokens: bool = Field(True, description="Keep control tokens out of the text.")
    state_capacity: Count = Field(4096, description="Streamed texts whose decoding state is kept.")
    state_expiry_seconds: Count = Field(600, description="How long after its last piece.")


class BlsSettings(Section):
    """The model ``tensorrt_llm_bls``."""

    enabled: bool = Field(True, description="Whether it is rendered.")
    accumulate_tokens: bool = Field(False, description="Stream the text so far, not what is new.")
    max_concurrent_requests: Count | None = Field(None, description="Requests at once; none: triton.max_batch_size.")
    engine_silence_seconds: Count = Field(600, description="A request whose engine is silent so long is ended.")


class EncoderSettings(Section):
    """The encoder of an encoder-decoder model."""

    engine_dir: str = Field(description="encoder_engine_dir: folder of the encoder's engine.")


class DeploymentSettings(Section):
    """One model to be deployed: five Triton models, or the single one of a draft."""

    name: Annotated[Identifier, Field(min_length=1)] = Field(description="What messages and other keys call it.")
    engine: EngineKind | EnvironmentReference = Field(
        description="TensorRT engine under the C++ backend, LLM API, transformers, or NumPy; a variable: at load."
    )
    role: Literal["chat", "draft"] = Field("chat", description="All five models, or only the engine model.")
    prefix: Identifier = Field("", description="Before the names of all Triton models, where several share a Triton.")
    engine_model: Annotated[Identifier, Field(min_length=1)] = Field(
        "tensorrt_llm", description="Name of the engine model, without prefix."
    )
    trtllm: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+(\.\d+)?$")] = Field(
        "1.2.1", description="TensorRT-LLM of the server's image; decides tensor names."
    )
    model: ModelSource
    engine_dir: str | None = Field(None, description="Folder of the built engine; needed by TensorRT engines.")
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
        "FP16", description="Type of prompt_embedding_table."
    )
    encoder_features_datatype: Literal["FP16", "BF16"] = Field(
        "FP16", description="Type of encoder_input_features, which models without an encoder declare too."
    )
    encoder: EncoderSettings | None = None
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
