"""Arguments of `tensorrt_llm.LLM`, by what its version knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engines.llmapi.options import Options

TRTLLM_SAMPLER = "TRTLLMSampler"
_TORCH_SAMPLER_COMPLETE = (1, 3, 24)  # first version whose TorchSampler applies penalties and bad words
# And min_p, top-p decay and all options of a beam search: pull requests 16590, 16184 and 16620.
_TORCH_SAMPLER_WIDE = (1, 3, 26)


@dataclass(frozen=True)
class SamplerChoice:
    """A sampler of the PyTorch backend.

    Attributes:
        arguments: for `tensorrt_llm.LLM`.
        applies_penalties: False where penalties and bad words would be dropped silently.
        is_wide: False where min_p, top-p decay and lengths and diversity of beams would be.
        beam_log_probs: whether log-probs of beams are given: TRTLLMSampler fails where it computes two such requests
            together.
    """

    arguments: dict[str, Any]
    applies_penalties: bool
    is_wide: bool = False
    beam_log_probs: bool = False


def choose_sampler(version: str, fields: Mapping[str, Any], wanted: str | None) -> SamplerChoice:
    """Choose the sampler, so that no sampling parameter is dropped in silence.

    TorchSampler, the default, ignored penalties and bad words for long (TensorRT-LLM pull requests 16485 and 16052,
    July 2026); TRTLLMSampler applies them, but gives no alternatives to the chosen token, and is gone since 1.3.

    Args:
        version: of tensorrt_llm.
        fields: arguments that this version's PyTorch backend knows.
        wanted: the operator's choice; None chooses by version.

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
        "enable_chunked_prefill": True,  # else a prompt longer than max_num_tokens is rejected
        "kv_cache_config": kv_cache_config(**cache),
        **({"guided_decoding_backend": backend} if (backend := options.guided_decoding_backend) else {}),
        **(_beam_arguments(options.max_beam_width, sampler) if options.max_beam_width > 1 else {}),
        **sampler.arguments,
        **extra,
    }


def visible_gpus(options: Options, instance_name: str) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES for an instance of the model; None leaves it as it is.

    Args:
        options: what was asked for.
        instance_name: Triton's, which ends with the number of the instance.

    Raises:
        RuntimeError: there are fewer groups than instances, or not as many GPUs in the group as the engine takes.
    """
    return options.gpus_of(instance_name, options.tensor_parallel_size * options.extra.get("pipeline_parallel_size", 1))


def _beam_arguments(width: int, sampler: SamplerChoice) -> dict[str, Any]:
    """Arguments for beams: before 1.3 neither graphs nor overlap, by TensorRT-LLM's documentation."""
    if not sampler.is_wide:
        raise RuntimeError(
            f"max_beam_width is {width}, but the sampler of this TensorRT-LLM would ignore the options of beam search"
        )
    alone = {} if sampler.beam_log_probs else {"disable_overlap_scheduler": True, "cuda_graph_config": None}
    return {"max_beam_width": width, **alone}


def _version(text: str) -> tuple[int, int, int]:
    """Major, minor, release candidate; a release sorts after its candidates."""
    found = re.match(r"(\d+)\.(\d+)\.?(\d*)(?:rc(\d+))?", text)
    if found is None:
        return 0, 0, 0
    return int(found[1]), int(found[2]), int(found[4]) if found[4] else 10**6
