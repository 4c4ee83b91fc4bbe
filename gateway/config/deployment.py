"""Settings of one deployment: what ``gateway repo build`` renders a Triton model repository from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from gateway.config.deployment_engine import (
    BuildSettings,
    Count,
    DecodingSettings,
    EnvironmentReference,
    GuidedDecodingSettings,
    KvCacheSettings,
    LogitsSettings,
    LoraSettings,
    Period,
    RuntimeSettings,
    SchedulerSettings,
    SpeculativeSettings,
)
from gateway.config.section import Section

EngineKind = Literal["tensorrt", "llmapi", "transformers", "reference"]
NAME_PATTERN = r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$"  # it becomes a folder: none may be hidden, or lead out of another
Identifier = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=128)]
Quantization = Literal["none", "fp8", "int8_sq", "int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "nvfp4"]
Group = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
"""Of GPUs, or of MPI ranks, that one instance runs on."""


class ModelSource(Section):
    """The model itself. What is not said of it is read from ``config.json`` where the folder can be read here."""

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
    """Over how many GPUs one instance is spread."""

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
    """How many copies of the models run."""

    preprocessing: Count = Field(1, description="Of preprocessing.")
    postprocessing: Count = Field(1, description="Of postprocessing; one, or streamed pieces may overtake each other.")
    bls: Count = Field(1, description="Of tensorrt_llm_bls; one of ours serves many requests at once.")


class TritonModelSettings(Section):
    """What Triton does in front of the engine."""

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
    """One model to be deployed: five Triton models, or the one of a draft."""

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
        """Where the server finds tokenizer and, without an engine of its own, weights."""
        if self.model.folder is not None:
            return self.model.folder
        is_path = self.model.source.startswith(("/", "~", "${"))
        return self.model.source if is_path else f"/models/{self.name}"


def taken_deployment_names(deployments: Sequence[Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """Find deployments whose names are given twice; key path and sentence of each second one."""
    first: dict[str, int] = {}
    found: list[tuple[tuple[str | int, ...], str]] = []
    for index, deployment in enumerate(deployments):
        name = deployment.get("name") if isinstance(deployment, dict) else getattr(deployment, "name", None)
        if isinstance(name, str):
            if name in first:
                sentence = f"the name {name!r} is already taken by deployments[{first[name]}]"
                found.append((("deployments", index, "name"), sentence))
            first.setdefault(name, index)
    return found
