"""How `tensorrt_llm.LLM` is built: from the environment, the model's parameters and an optional file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

_Value = TypeVar("_Value", str, int, float)

TRTLLM_SAMPLER = "TRTLLMSampler"
GUIDED_BACKENDS = ("xgrammar", "llguidance")
_VERSION_FOLDER = Path(__file__).resolve().parents[1]
_TORCH_SAMPLER_COMPLETE = (1, 3, 24)  # first version whose TorchSampler applies penalties and bad words
# And min_p, top-p decay and all that a beam search is told: pull requests 16590, 16184 and 16620.
_TORCH_SAMPLER_WIDE = (1, 3, 26)


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


@dataclass(frozen=True)
class SamplerChoice:
    """A sampler of the PyTorch backend.

    Attributes:
        arguments: for `tensorrt_llm.LLM`.
        applies_penalties: False where penalties and bad words would be dropped in silence.
        is_wide: False where min_p, top-p decay and lengths and diversity of beams would be.
        beam_log_probs: whether log-probs of beams are given: TRTLLMSampler fails where it computes two such requests
            together.
    """

    arguments: dict[str, Any]
    applies_penalties: bool
    is_wide: bool = False
    beam_log_probs: bool = False


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

    def setting(name: str, parameter: str, default: _Value) -> _Value:
        text = environ.get(name) or parameters.get(parameter) or ""
        if not text:
            return default
        try:
            value = type(default)(text)
        except ValueError:
            value = None
        if value is None or (not isinstance(value, str) and not (math.isfinite(value) and value > 0)):
            raise RuntimeError(f"{name} is {text!r}; it must be a positive {type(default).__name__}")
        return value

    positions, vocab_size = _model_size(folder)
    max_seq_len = setting("MAX_SEQ_LEN", "max_seq_len", positions)
    if not max_seq_len:
        raise RuntimeError(f"MAX_SEQ_LEN is not set, and {folder / 'config.json'} has no max_position_embeddings")
    fraction = setting("LLM_KV_CACHE_FREE_GPU_MEM_FRACTION", "kv_cache_free_gpu_mem_fraction", 0.9)
    if fraction > 1:
        raise RuntimeError(f"LLM_KV_CACHE_FREE_GPU_MEM_FRACTION is {fraction}; it must be at most 1")
    extra_file = environ.get("LLM_EXTRA_ARGS_FILE", "")
    if not extra_file and parameters.get("extra_args_file"):
        extra_file = str(_VERSION_FOLDER / parameters["extra_args_file"])
    backend = setting("LLM_GUIDED_DECODING_BACKEND", "guided_decoding_backend", "")
    if backend not in ("", *GUIDED_BACKENDS):
        raise RuntimeError(
            f"LLM_GUIDED_DECODING_BACKEND is {backend!r}; it must be one of: {', '.join(GUIDED_BACKENDS)}"
        )
    lora_dir = setting("LLM_LORA_DIR", "lora_prefetch_dir", "")
    extra = _read_extra(Path(extra_file)) if extra_file else {}
    beams = setting("LLM_MAX_BEAM_WIDTH", "max_beam_width", 1)
    return Options(
        max_seq_len=max_seq_len,
        vocab_size=vocab_size,
        max_batch_size=setting("ENGINE_MAX_BATCH_SIZE", "max_batch_size", 64),
        max_queue_size=setting("ENGINE_MAX_QUEUE_SIZE", "max_queue_size", 256),
        tensor_parallel_size=setting("LLM_TENSOR_PARALLEL_SIZE", "tensor_parallel_size", 1),
        kv_cache_fraction=fraction,
        kv_cache_reuse=parameters.get("enable_kv_cache_reuse", "true").lower() == "true",
        tokens_per_block=setting("tokens_per_block", "tokens_per_block", 32),
        dtype=setting("LLM_DTYPE", "dtype", "auto"),
        sampler_type=environ.get("LLM_SAMPLER_TYPE") or None,
        guided_decoding_backend=backend or None,
        lora_dir=Path(lora_dir) if lora_dir else None,
        max_beam_width=int(extra.get("max_beam_width") or beams),
        gpu_ids=_read_gpu_ids(setting("LLM_GPU_IDS", "gpu_device_ids", "")),
        extra=extra,
    )


def choose_sampler(version: str, fields: Mapping[str, Any], wanted: str | None) -> SamplerChoice:
    """Choose the sampler, so that no sampling parameter is dropped in silence.

    TorchSampler, the default, ignored penalties and bad words for long (TensorRT-LLM pull requests 16485 and 16052,
    July 2026); TRTLLMSampler applies them, but gives no alternatives to the chosen token, and is gone since 1.3.

    Args:
        version: of tensorrt_llm.
        fields: arguments that this version's PyTorch backend knows.
        wanted: the operator's choice, None for ours.

    Raises:
        RuntimeError: TRTLLMSampler is wanted of a version that has it no longer.
    """
    complete, wide = (_version(version) >= least for least in (_TORCH_SAMPLER_COMPLETE, _TORCH_SAMPLER_WIDE))
    torch_s = SamplerChoice({}, complete, is_wide=wide, beam_log_probs=wide)
    if wanted is None and complete:
        return torch_s
    name = wanted or TRTLLM_SAMPLER
    trtllm = name == TRTLLM_SAMPLER
    chosen = SamplerChoice({}, applies_penalties=True, is_wide=True) if trtllm else torch_s
    if "sampler_type" in fields:
        return replace(chosen, arguments={"sampler_type": name})
    if "enable_trtllm_sampler" in fields:  # 1.0
        return replace(chosen, arguments={"enable_trtllm_sampler": trtllm})
    if wanted == TRTLLM_SAMPLER:
        raise RuntimeError(f"LLM_SAMPLER_TYPE is {wanted!r}, which TensorRT-LLM {version} does not have")
    return torch_s


def llm_arguments(options: Options, folder: Path, sampler: SamplerChoice, kv_cache_config: type[Any]) -> dict[str, Any]:
    """Keyword arguments of `tensorrt_llm.LLM`.

    Args:
        options: what was asked for.
        folder: the model.
        sampler: from `choose_sampler`.
        kv_cache_config: `tensorrt_llm.llmapi.KvCacheConfig`.

    Raises:
        RuntimeError: this version's KvCacheConfig does not have a setting: tokens_per_block came after 1.0.0, and
            onboard_blocks is gone from 1.3.0rc27.
    """
    extra = dict(options.extra)
    cache: dict[str, Any] = {"free_gpu_memory_fraction": options.kv_cache_fraction}
    if not options.kv_cache_reuse:
        cache["enable_block_reuse"] = False
    if options.tokens_per_block != Options.tokens_per_block:
        cache["tokens_per_block"] = options.tokens_per_block
    cache |= extra.pop("kv_cache_config", {})
    if unknown := sorted(cache.keys() - kv_cache_config.model_fields.keys()):
        raise RuntimeError(f"kv_cache_config of this TensorRT-LLM has no {', '.join(unknown)}")
    return {
        "model": str(folder),
        "skip_tokenizer_init": options.guided_decoding_backend is None,  # ids in, ids out; guides are of text
        "tensor_parallel_size": options.tensor_parallel_size,
        "dtype": options.dtype,
        "max_batch_size": options.max_batch_size,
        "max_seq_len": options.max_seq_len,
        "enable_chunked_prefill": True,  # else a prompt longer than max_num_tokens is refused
        "kv_cache_config": kv_cache_config(**cache),
        **({"guided_decoding_backend": backend} if (backend := options.guided_decoding_backend) else {}),
        **(_beam_arguments(options.max_beam_width, sampler) if options.max_beam_width > 1 else {}),
        **sampler.arguments,
        **extra,
    }


def visible_gpus(options: Options, instance_name: str) -> str | None:
    """What CUDA_VISIBLE_DEVICES must be for an instance of the model; None leaves it as it is.

    Args:
        options: what was asked for.
        instance_name: Triton's, which ends with the number of the instance.

    Raises:
        RuntimeError: there are fewer groups than instances, or not as many GPUs in the group as the engine takes.
    """
    if not options.gpu_ids:
        return None
    number = int(instance_name.rpartition("_")[2] or 0)
    if number >= len(options.gpu_ids):
        raise RuntimeError(f"gpu_device_ids has {len(options.gpu_ids)} groups, and this is instance {number + 1}")
    group = options.gpu_ids[number]
    stages = options.extra.get("pipeline_parallel_size", 1)
    if len(group.split(",")) != options.tensor_parallel_size * stages:
        need = options.tensor_parallel_size * stages
        raise RuntimeError(f"gpu_device_ids gives instance {number + 1} the GPUs {group}, and the engine takes {need}")
    return group


def _beam_arguments(width: int, sampler: SamplerChoice) -> dict[str, Any]:
    """What `tensorrt_llm.LLM` is told for beams: before 1.3 neither graphs nor overlap, by its documentation."""
    if not sampler.is_wide:
        raise RuntimeError(
            f"max_beam_width is {width}, and the sampler of this TensorRT-LLM would ignore what it is told"
        )
    alone = {} if sampler.beam_log_probs else {"disable_overlap_scheduler": True, "cuda_graph_config": None}
    return {"max_beam_width": width, **alone}


def _read_gpu_ids(text: str) -> tuple[str, ...]:
    groups = tuple(group.replace(" ", "") for group in text.split(";")) if text else ()
    if any(not all(number.isdecimal() for number in group.split(",")) for group in groups):
        raise RuntimeError(f"LLM_GPU_IDS is {text!r}; it must be numbers of GPUs, as 0,1;2,3 for two instances")
    return groups


def _version(text: str) -> tuple[int, int, int]:
    """Major, minor, release candidate; a release sorts after its candidates."""
    found = re.match(r"(\d+)\.(\d+)\.?(\d*)(?:rc(\d+))?", text)
    if found is None:
        return 0, 0, 0
    return int(found[1]), int(found[2]), int(found[4]) if found[4] else 10**6


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
