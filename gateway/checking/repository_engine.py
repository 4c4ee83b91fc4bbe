"""What is wrong with the engine models of a repository, their steps and their drafts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from gateway.checking.findings import Finding, Severity
from gateway.repository.reading import ModelFolder

Models = Mapping[str, ModelFolder]

_ENGINE_INPUTS = frozenset({"input_ids", "input_lengths", "request_output_len"})
_SHARES = ("kv_cache_free_gpu_mem_fraction", "gpu_weights_percent", "lora_cache_gpu_memory_fraction")
_STRATEGIES = ("inflight_fused_batching", "inflight_batching", "V1")
_POLICIES = ("guaranteed_no_evict", "max_utilization", "static_batch")
_MODES = (*("auto", "top_k", "top_p", "top_k_top_p", "beam_search", "medusa", "redrafter", "lookahead", "eagle"),)


def engines(models: Models) -> dict[str, ModelFolder]:
    """The models that take and answer token ids."""
    found = {name: {tensor.name for tensor in model.config.input} for name, model in models.items()}
    return {name: models[name] for name, inputs in found.items() if inputs >= _ENGINE_INPUTS}


def is_native(model: ModelFolder) -> bool:
    """Whether a model runs on the C++ backend."""
    return str(model.config.backend) == "tensorrtllm"


def filled(model: ModelFolder, name: str) -> str:
    """A parameter's value; empty when it is absent or nobody filled it in."""
    value = model.config.parameters[name].string_value if name in model.config.parameters else ""
    return "" if value.startswith("${") else str(value).strip()


def at(model: ModelFolder, text: str) -> str:
    """The line of a parameter, else of a text, as findings write it."""
    return f"{model.file}:{model.line_of(f'key: {chr(34)}{text}{chr(34)}') or model.line_of(text) or 1}"


def check_engines(models: Models, *, unreadable: Set[str]) -> Iterator[Finding]:
    """Check the engine models, each and together, and what calls them.

    Args:
        models: all models of the repository whose configurations parse.
        unreadable: names of the others.
    """
    found = engines(models)
    for model in found.values():
        if is_native(model):
            yield from _check_native(model)
        yield from _check_values(model)
    yield from _check_gpus(found)
    yield from _check_callers(models, models.keys() | unreadable)


def _check_native(model: ModelFolder) -> Iterator[Finding]:
    strategy, folder = filled(model, "gpt_model_type"), filled(model, "gpt_model_path")
    if "gpt_model_type" not in model.config.parameters or (strategy and strategy not in _STRATEGIES):
        what = f"gpt_model_type is {strategy!r}, which the backend does not know." if strategy else "No gpt_model_type."
        yield Finding(Severity.ERROR, at(model, "gpt_model_type"), what, "Set it to inflight_fused_batching.")
    elif strategy == "V1":
        what = "gpt_model_type V1 has no in-flight batching: a request waits until the batch before it is done."
        yield Finding(Severity.WARNING, at(model, "gpt_model_type"), what, "Set it to inflight_fused_batching.")
    if "gpt_model_path" not in model.config.parameters:
        fix = "Set it to the folder that trtllm-build wrote."
        yield Finding(Severity.ERROR, at(model, "parameters"), "There is no gpt_model_path, so no engine.", fix)
    elif folder and not Path(folder).is_absolute():
        what = f"gpt_model_path {folder!r} is relative to wherever Triton is started."
        yield Finding(Severity.ERROR, at(model, "gpt_model_path"), what, "Write an absolute path.")
    elif folder and Path(folder).is_dir() and not list(Path(folder).glob("rank*.engine")):
        what = f"{folder} holds no rank0.engine."
        yield Finding(Severity.ERROR, at(model, "gpt_model_path"), what, "Build the engine there with trtllm-build.")
    if filled(model, "guided_decoding_backend") and not filled(model, "xgrammar_tokenizer_info_path"):
        what = "guided_decoding_backend is set, but not xgrammar_tokenizer_info_path, which the C++ backend needs."
        fix = "Make the file with generate_xgrammar_tokenizer_info.py and name it."
        yield Finding(Severity.ERROR, at(model, "guided_decoding_backend"), what, fix)


def _check_values(model: ModelFolder) -> Iterator[Finding]:
    for name in _SHARES:
        text = filled(model, name)
        if text and not _is_share(text):
            what = f"{name} is {text!r}; it is a share of the GPU's memory."
            yield Finding(Severity.ERROR, at(model, name), what, "Write a number above 0 and at most 1.")
    policy, mode = filled(model, "batch_scheduler_policy"), filled(model, "decoding_mode")
    if policy and policy not in _POLICIES:
        what = f"batch_scheduler_policy is {policy!r}, which the backend does not know."
        fix = "Set guaranteed_no_evict or max_utilization."
        yield Finding(Severity.ERROR, at(model, "batch_scheduler_policy"), what, fix)
    if mode and mode not in _MODES:
        what = f"decoding_mode is {mode!r}, which the backend does not know."
        yield Finding(Severity.ERROR, at(model, "decoding_mode"), what, "Remove it, or set one that it knows.")
    beams = filled(model, "max_beam_width")
    if beams and not (beams.isdigit() and int(beams) > 0):
        what = f"max_beam_width is {beams!r}."
        yield Finding(Severity.ERROR, at(model, "max_beam_width"), what, "Write a whole number from 1.")


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _check_gpus(found: Models) -> Iterator[Finding]:
    natives = {name: model for name, model in found.items() if is_native(model)}
    first: dict[str, str] = {}
    for name, model in natives.items():
        gpus = filled(model, "gpu_device_ids")
        ids = {gpu.strip() for group in gpus.split(";") for gpu in group.split(",") if gpu.strip()}
        if len(natives) > 1 and not ids:
            what = f"{name} is one of {len(natives)} engines, and has no gpu_device_ids: it takes all GPUs."
            yield Finding(Severity.ERROR, at(model, "gpu_device_ids"), what, "Give each engine GPUs of its own.")
        for gpu in sorted(ids):
            other = first.setdefault(gpu, name)
            if other != name and not _share_memory(model, natives[other]):
                what = f"GPU {gpu} is given to {name} and to {other}, whose memory shares add up to more than 1."
                fix = "Give them different GPUs, or lower kv_cache_free_gpu_mem_fraction of both."
                yield Finding(Severity.ERROR, at(model, "gpu_device_ids"), what, fix)
        groups = [group for group in gpus.split(";") if group.strip()]
        count = sum(group.count for group in model.config.instance_group)
        if len(groups) > 1 and count != len(groups) and "instance_group" not in model.unfilled:
            what = f"gpu_device_ids names {len(groups)} instances, and the instance group has {count}."
            yield Finding(Severity.ERROR, at(model, "gpu_device_ids"), what, f"Set count: {len(groups)}.")


def _share_memory(one: ModelFolder, other: ModelFolder) -> bool:
    shares = [filled(model, "kv_cache_free_gpu_mem_fraction") or "0.9" for model in (one, other)]
    return all(map(_is_share, shares)) and sum(map(float, shares)) <= 1


def _check_callers(models: Models, names: Set[str]) -> Iterator[Finding]:
    """What calls other models by name: tensorrt_llm_bls."""
    for model in models.values():
        for name in ("tensorrt_llm_model_name", "tensorrt_llm_draft_model_name"):
            target = filled(model, name)
            if target and target not in names:
                what = f"{name} is {target!r}, which is not in this repository."
                yield Finding(Severity.ERROR, at(model, name), what, "Name a model of this repository.")
        if filled(model, "tensorrt_llm_draft_model_name"):
            yield from _check_drafting(model, models)


def _check_drafting(model: ModelFolder, models: Models) -> Iterator[Finding]:
    """What a draft model needs beside itself: a request that asks for guesses, and a target that takes them."""
    drafting = "tensorrt_llm_draft_model_name is set"
    inputs = {tensor.name for tensor in model.config.input}
    if "text_input" in inputs and "num_draft_tokens" not in inputs:
        what = f"{drafting}, but there is no input num_draft_tokens: no request can ask for drafts."
        yield Finding(Severity.WARNING, at(model, "tensorrt_llm_draft_model_name"), what, _declare("num_draft_tokens"))
    name = filled(model, "tensorrt_llm_model_name") or "tensorrt_llm"
    target = models.get(name)
    if target is not None and not any(tensor.name == "draft_input_ids" for tensor in target.config.input):
        what = f"{drafting} in {model.path.name}, but {name} has no input draft_input_ids: it takes no drafts."
        yield Finding(Severity.WARNING, at(target, "input"), what, _declare("draft_input_ids"))


def _declare(name: str) -> str:
    return f"Declare the input {name} as TensorRT-LLM's own template does, or render the model anew."
