"""TensorRT-LLM's ``convert_checkpoint.py`` of each model family, with its options.

Source: ``examples/models/core/*/convert_checkpoint.py`` of TensorRT-LLM 1.0 to 1.2, the model types also its
``tensorrt_llm/models/*/config.py`` and ``models/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.key_paths import Found
from gateway_ops.repository.model_shape import text_config_of


@dataclass(frozen=True, slots=True)
class Converter:
    """One family's ``convert_checkpoint.py``.

    Attributes:
        model_types: ``model_type`` of the ``config.json`` that it converts.
        experts: whether it has options for expert parallelism.
        stages: whether it makes pipeline stages.
        weight_only: whether it quantises weights to int8 or int4.
        auto_dtype: whether it can use the checkpoint's type.
        tp_option: its option for tensor parallelism.
        kv_dtypes: types that it quantises keys and values to, by an option such as ``--int8_kv_cache``.
        more: options that it always needs.
    """

    model_types: tuple[str, ...]
    experts: bool = False
    stages: bool = True
    weight_only: bool = True
    auto_dtype: bool = True
    tp_option: str = "--tp_size"
    kv_dtypes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


CONVERTERS: dict[str, Converter] = {
    "llama": Converter(
        ("llama", "mistral", "mixtral", "granite", "granitemoe", "exaone"), experts=True, kv_dtypes=("int8", "fp8")
    ),
    "qwen": Converter(("qwen", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"), experts=True, kv_dtypes=("int8",)),
    "phi": Converter(("phi", "phi3", "phi3small", "phimoe"), experts=True, stages=False),
    "gemma": Converter(
        ("gemma", "gemma2", "gemma3_text"),
        stages=False,
        tp_option="--world-size",
        kv_dtypes=("int8", "fp8"),
        more=("--ckpt-type", "hf"),
    ),
    "gpt": Converter(("gpt2", "gpt_bigcode", "starcoder2", "nemotron"), kv_dtypes=("int8",)),
    "commandr": Converter(("cohere",)),
    "glm-4-9b": Converter(("chatglm",), stages=False, kv_dtypes=("int8",)),
    "internlm2": Converter(("internlm2",), auto_dtype=False),
    "nemotron_nas": Converter(("nemotron-nas",), weight_only=False, more=("--trust_remote_code",)),
    "mamba": Converter(("mamba",), stages=False),
    "recurrentgemma": Converter(
        ("recurrent_gemma",),
        stages=False,
        weight_only=False,
        auto_dtype=False,
        tp_option="--world_size",
        more=("--ckpt_type", "hf"),
    ),
}
"""By the folder below ``examples/models/core``."""


def family_of(deployment: DeploymentSettings) -> str | None:
    """The folder of the family's tools, by the settings or a readable ``config.json``; None for an unknown family."""
    if deployment.model.family is not None:
        return deployment.model.family
    model_type = text_config_of(deployment.model).get("model_type")
    return next((family for family, converter in CONVERTERS.items() if model_type in converter.model_types), None)


HEADS: dict[str, Converter] = {
    "medusa": Converter((), auto_dtype=False, kv_dtypes=("int8",)),
    "eagle": Converter((), stages=False, kv_dtypes=("int8",)),
}
"""Converters of a model together with heads that guess, by the folder below ``examples``."""


def converter_of(deployment: DeploymentSettings) -> tuple[str, Converter] | None:
    """The converter that makes the checkpoint, with its folder below ``examples``; None without one."""
    speculative = deployment.speculative
    if speculative is not None and speculative.heads is not None and speculative.method in HEADS:
        return speculative.method, HEADS[speculative.method]
    family = family_of(deployment)
    return (f"models/core/{family}", CONVERTERS[family]) if family in CONVERTERS else None


def _heads_options(deployment: DeploymentSettings) -> list[str]:
    """The options of the heads that guess; the length of drafts goes by another name with each method."""
    speculative = deployment.speculative
    if speculative is None or speculative.heads is None or speculative.method not in HEADS:
        return []
    arguments = [f"--{speculative.method}_model_dir", speculative.heads]
    if speculative.num_heads is not None:
        arguments += ["--num_medusa_heads", str(speculative.num_heads)]
    if speculative.max_draft_tokens is not None:
        length = "--max_medusa_token_len" if speculative.method == "medusa" else "--max_draft_len"
        arguments += [length, str(speculative.max_draft_tokens)]
    return arguments


def options(deployment: DeploymentSettings, converter: Converter) -> list[str]:
    """The options of the converter, without the folders."""
    model, parallelism = deployment.model, deployment.parallelism
    arguments = [*converter.more, "--dtype", model.dtype, converter.tp_option, str(parallelism.tp)]
    if converter.stages:
        arguments += ["--pp_size", str(parallelism.pp)]
    if model.quantization != "none":
        arguments += ["--use_weight_only", "--weight_only_precision", model.quantization.removesuffix("_wo")]
    for name, size in (("--moe_tp_size", parallelism.moe_tp), ("--moe_ep_size", parallelism.moe_ep)):
        arguments += [name, str(size)] if size is not None else []
    if deployment.kv_cache.dtype != "auto":
        arguments.append(f"--{deployment.kv_cache.dtype}_kv_cache")
    if deployment.build.calib_dataset is not None:
        arguments += ["--calib_dataset", deployment.build.calib_dataset]
    return arguments + _heads_options(deployment)


def converter_contradictions(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions of a deployment with the converter that makes its checkpoint."""
    found = converter_of(deployment)
    if found is None:
        kind = text_config_of(deployment.model).get("model_type")
        reason = f"which convert_checkpoint.py takes a model of type {kind!r} is unknown"
        yield "model.family", reason, f"Name the folder of examples/models/core: {', '.join(CONVERTERS)} or another."
        return
    folder, converter = found
    what = f"convert_checkpoint.py of {folder.rpartition('/')[2]}"
    parallelism, model = deployment.parallelism, deployment.model
    if parallelism.pp > 1 and not converter.stages:
        yield "parallelism.pp", f"{what} does not support pipeline stages", "Set parallelism.tp instead."
    for key in ("moe_tp", "moe_ep"):
        if getattr(parallelism, key) is not None and not converter.experts:
            yield f"parallelism.{key}", f"{what} has no option for experts", "Leave it out."
    if model.quantization != "none" and not converter.weight_only:
        yield "model.quantization", f"{what} does not quantise", "Set one that quantize.py makes, such as fp8."
    if deployment.kv_cache.dtype not in ("auto", *converter.kv_dtypes):
        known = " or ".join(("auto", *converter.kv_dtypes))
        fix = f"Leave it {known}, or set a model.quantization that quantize.py makes, such as fp8."
        yield "kv_cache.dtype", f"{what} has no option for a cache in {deployment.kv_cache.dtype}", fix
    if deployment.build.calib_dataset is not None and deployment.kv_cache.dtype != "int8":
        reason = f"{what} calibrates for a cache in int8 alone"
        yield "build.calib_dataset", reason, "Leave it out, or set a model.quantization that quantize.py makes."
    if model.dtype == "auto" and not converter.auto_dtype:
        yield "model.dtype", f"{what} does not detect the data type", "Write float16 or bfloat16."
