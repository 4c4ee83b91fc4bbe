"""Settings of an engine on GPUs: from the environment, the model's parameters and an optional file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

_Value = TypeVar("_Value", str, int, float)

GUIDED_BACKENDS = ("xgrammar", "llguidance")
_VERSION_FOLDER = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Options:
    """Settings of the engine.

    Attributes:
        max_seq_len: prompt plus generated tokens.
        vocab_size: length of the logits, and of an embedding bias.
        max_batch_size: sequences computed together.
        max_queue_size: requests waiting beside them.
        tensor_parallel_size: GPUs.
        kv_cache_fraction: share of the free GPU memory for the KV cache.
        kv_cache_reuse: whether prompts with a common prefix share its blocks.
        tokens_per_block: size of such a block.
        dtype: of the weights and activations; ``auto`` takes the model's own.
        sampler_type: None leaves the choice to `choose_sampler`.
        guided_decoding_backend: ``xgrammar`` or ``llguidance``; None is no guided decoding.
        lora_dir: folder of adapters; None is no LoRA.
        max_beam_width: beams of every request; above 1 the engine is for beam searches alone.
        gpu_ids: GPUs of each instance of the model, as CUDA_VISIBLE_DEVICES has them; none: whatever is visible.
        extra: further arguments of `tensorrt_llm.LLM`; they win over everything else.
    """

    max_seq_len: int
    vocab_size: int
    max_batch_size: int = 64
    max_queue_size: int = 256
    tensor_parallel_size: int = 1
    kv_cache_fraction: float = 0.9
    kv_cache_reuse: bool = True
    tokens_per_block: int = 32
    dtype: str = "auto"
    sampler_type: str | None = None
    guided_decoding_backend: str | None = None
    lora_dir: Path | None = None
    max_beam_width: int = 1
    gpu_ids: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def max_in_flight(self) -> int:
        """Requests taken at the same time."""
        return self.max_batch_size + self.max_queue_size

    def gpus_of(self, instance_name: str, count: int) -> str | None:
        """The value of CUDA_VISIBLE_DEVICES for an instance of the model; None leaves it as it is.

        Args:
            instance_name: Triton's, which ends with the number of the instance.
            count: GPUs that an instance takes.

        Raises:
            RuntimeError: there are fewer groups than instances, or another number of GPUs in the group.
        """
        if not self.gpu_ids:
            return None
        number = int(instance_name.rpartition("_")[2] or 0)
        if number >= len(self.gpu_ids):
            raise RuntimeError(f"gpu_device_ids has {len(self.gpu_ids)} groups, and this is instance {number + 1}")
        group = self.gpu_ids[number]
        if len(group.split(",")) != count:
            raise RuntimeError(
                f"gpu_device_ids gives instance {number + 1} the GPUs {group}, and the engine takes {count}"
            )
        return group


def read_options(environ: Mapping[str, str], parameters: Mapping[str, str], folder: Path) -> Options:
    """Read all settings; the environment wins over the model's parameters.

    Args:
        environ: ``MAX_SEQ_LEN``, ``ENGINE_MAX_BATCH_SIZE``, ``ENGINE_MAX_QUEUE_SIZE``, ``LLM_TENSOR_PARALLEL_SIZE``,
            ``LLM_KV_CACHE_FREE_GPU_MEM_FRACTION``, ``LLM_DTYPE``, ``LLM_SAMPLER_TYPE``, ``LLM_EXTRA_ARGS_FILE``,
            ``LLM_GUIDED_DECODING_BACKEND``, ``LLM_LORA_DIR`` (adapters in Hugging Face PEFT's format, in subfolders
            named by task id), ``LLM_MAX_BEAM_WIDTH``, ``LLM_GPU_IDS``.
        parameters: parameters of config.pbtxt: ``max_seq_len``, ``tensor_parallel_size``,
            ``kv_cache_free_gpu_mem_fraction``, ``enable_kv_cache_reuse``, ``tokens_per_block``, ``max_batch_size``,
            ``max_queue_size``, ``dtype``, ``extra_args_file`` (relative to the version folder),
            ``guided_decoding_backend``, ``lora_prefetch_dir``, ``max_beam_width``, ``gpu_device_ids`` (of two
            instances as ``0,1;2,3``).
        folder: model folder in Hugging Face style.

    Raises:
        RuntimeError: a setting has no valid value; the message names it.
    """
    settings = _Settings(environ, parameters)
    positions, vocab_size = _model_size(folder)
    max_seq_len = settings.value("MAX_SEQ_LEN", "max_seq_len", positions)
    if not max_seq_len:
        raise RuntimeError(f"MAX_SEQ_LEN is not set, and {folder / 'config.json'} has no max_position_embeddings")
    fraction = settings.value("LLM_KV_CACHE_FREE_GPU_MEM_FRACTION", "kv_cache_free_gpu_mem_fraction", 0.9)
    if fraction > 1:
        raise RuntimeError(f"LLM_KV_CACHE_FREE_GPU_MEM_FRACTION is {fraction}; it must be at most 1")
    extra = settings.extra()
    lora_dir = settings.value("LLM_LORA_DIR", "lora_prefetch_dir", "")
    beams = settings.value("LLM_MAX_BEAM_WIDTH", "max_beam_width", 1)
    return Options(
        max_seq_len=max_seq_len,
        vocab_size=vocab_size,
        max_batch_size=settings.value("ENGINE_MAX_BATCH_SIZE", "max_batch_size", 64),
        max_queue_size=settings.value("ENGINE_MAX_QUEUE_SIZE", "max_queue_size", 256),
        tensor_parallel_size=settings.value("LLM_TENSOR_PARALLEL_SIZE", "tensor_parallel_size", 1),
        kv_cache_fraction=fraction,
        kv_cache_reuse=parameters.get("enable_kv_cache_reuse", "true").lower() == "true",
        tokens_per_block=settings.value("tokens_per_block", "tokens_per_block", 32),
        dtype=settings.value("LLM_DTYPE", "dtype", "auto"),
        sampler_type=environ.get("LLM_SAMPLER_TYPE") or None,
        guided_decoding_backend=settings.guided_decoding_backend(),
        lora_dir=Path(lora_dir) if lora_dir else None,
        max_beam_width=int(extra.get("max_beam_width") or beams),
        gpu_ids=_read_gpu_ids(settings.value("LLM_GPU_IDS", "gpu_device_ids", "")),
        extra=extra,
    )


@dataclass(frozen=True)
class _Settings:
    environ: Mapping[str, str]
    parameters: Mapping[str, str]

    def value(self, name: str, parameter: str, default: _Value) -> _Value:
        """The environment's value, else the model's, else the default, whose type it has."""
        text = self.environ.get(name) or self.parameters.get(parameter) or ""
        if not text:
            return default
        try:
            value = type(default)(text)
        except ValueError:
            value = None
        if value is None or (not isinstance(value, str) and not (math.isfinite(value) and value > 0)):
            raise RuntimeError(f"{name} is {text!r}; it must be a positive {type(default).__name__}")
        return value

    def guided_decoding_backend(self) -> str | None:
        backend = self.value("LLM_GUIDED_DECODING_BACKEND", "guided_decoding_backend", "")
        if backend not in ("", *GUIDED_BACKENDS):
            allowed = ", ".join(GUIDED_BACKENDS)
            raise RuntimeError(f"LLM_GUIDED_DECODING_BACKEND is {backend!r}; it must be one of: {allowed}")
        return backend or None

    def extra(self) -> dict[str, Any]:
        file = self.environ.get("LLM_EXTRA_ARGS_FILE", "")
        if not file and self.parameters.get("extra_args_file"):
            file = str(_VERSION_FOLDER / self.parameters["extra_args_file"])
        return _read_extra(Path(file)) if file else {}


def _read_gpu_ids(text: str) -> tuple[str, ...]:
    groups = tuple(group.replace(" ", "") for group in text.split(";")) if text else ()
    if any(not all(number.isdecimal() for number in group.split(",")) for group in groups):
        raise RuntimeError(f"LLM_GPU_IDS is {text!r}; it must be numbers of GPUs, as 0,1;2,3 for two instances")
    return groups


def _model_size(folder: Path) -> tuple[int, int]:
    """Positions (0 where unknown) and vocabulary."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RuntimeError(f"cannot read {path}: {error}") from error
    config = config.get("text_config", config)
    vocab_size = config.get("vocab_size")
    if not isinstance(vocab_size, int):
        raise RuntimeError(f"{path} has no vocab_size")  # noqa: TRY004 - the file is wrong, not a caller's type
    return int(config.get("max_position_embeddings") or 0), vocab_size


def _read_extra(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RuntimeError(f"LLM_EXTRA_ARGS_FILE cannot be read: {error}") from error
    try:
        extra = json.loads(text) if path.suffix == ".json" else _load_yaml(text)
    except ValueError as error:
        raise RuntimeError(f"LLM_EXTRA_ARGS_FILE {path} cannot be parsed: {error}") from error
    if not isinstance(extra, dict) or not isinstance(extra.get("kv_cache_config", {}), dict):
        message = f"LLM_EXTRA_ARGS_FILE {path} must hold a mapping, as must its kv_cache_config"
        raise RuntimeError(message)  # noqa: TRY004 - the file is wrong, not a caller's type
    return extra


def _load_yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - only operators who write YAML need it

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
