"""Contradictions of a deployment with its model, its kind of engine, and its build tools."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.build_steps import checkpoint_tool, has_own_conversion, prepares_checkpoint
from gateway_ops.repository.converters import converter_contradictions, family_of
from gateway_ops.repository.key_paths import Found, is_given, value_at
from gateway_ops.repository.model_shape import config_of, shape_of, text_config_of


def model_contradictions(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions of one deployment with its model, its kind of engine and its build tools."""
    yield from _shape(deployment)
    yield from _encoder(deployment)
    if deployment.engine == "tensorrt":
        if not deployment.engine_dir:
            yield "engine_dir", "a TensorRT engine is loaded from a folder", "Name the folder, as the server sees it."
        yield from _references(deployment)
    yield from _tools(deployment)
    yield from _prepared(deployment)


# TensorRT-LLM's docs/source/features/quantization.md: what its PyTorch backend has kernels for.
_LOADED = ("none", "fp8", "nvfp4", "int4_awq", "w4a8_awq")


def _prepared(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions of a checkpoint that is quantised for the LLM API, which loads it as it is."""
    model = deployment.model
    if deployment.engine == "llmapi" and model.quantization not in _LOADED:
        reason = f"the LLM API's backend does not load {model.quantization} weights"
        yield "model.quantization", reason, f"Take one of {', '.join(_LOADED)}."
    if prepares_checkpoint(deployment) and deployment.folder.rstrip("/") == model.source.rstrip("/"):
        reason = (
            f"the weights of {model.source} are quantised into a separate folder, and model.folder does not name one"
        )
        fix = "Name a folder in model.folder; if the source is quantised already, leave model.quantization out."
        yield "model.quantization", reason, fix


def _encoder(deployment: DeploymentSettings) -> Iterator[Found]:
    config = config_of(deployment.model)
    # Models that read images have vision_config; encoder-decoder models have is_encoder_decoder.
    if deployment.encoder is None or not config or config.get("is_encoder_decoder") or "vision_config" in config:
        return
    reason = f"the model has no encoder: its config.json ({config.get('model_type', 'no model_type')}) is a decoder's"
    yield "encoder", reason, "Leave it out, or name an encoder-decoder model in model.source."


def _shape(deployment: DeploymentSettings) -> Iterator[Found]:
    shape, tp, pp = shape_of(deployment.model), deployment.parallelism.tp, deployment.parallelism.pp
    heads, kv_heads, layers = shape.get("heads"), shape.get("kv_heads"), shape.get("layers")
    if heads is not None and heads % tp:
        fix = f"Take one of {', '.join(str(n) for n in (1, 2, 4, 8, 16) if heads % n == 0)}."
        yield "parallelism.tp", f"{heads} attention heads cannot be shared by {tp} GPUs", fix
    elif kv_heads is not None and (kv_heads % tp if tp <= kv_heads else tp % kv_heads):
        reason = f"{kv_heads} heads of keys and values can neither be shared by {tp} GPUs nor be repeated on them"
        yield "parallelism.tp", reason, f"Take a divisor or a multiple of {kv_heads}."
    if heads is not None and kv_heads is not None and heads % kv_heads:
        reason = f"{heads} attention heads cannot be grouped over {kv_heads} heads of keys and values"
        yield "model.kv_heads", reason, f"Take a divisor of {heads}, as the model's config.json has it."
    if layers is not None and pp > layers:  # else the first stages have one more (TensorRT-LLM's mapping.py)
        yield "parallelism.pp", f"{layers} layers cannot be shared by {pp} stages", f"Take at most {layers}."
    if (tp * deployment.parallelism.pp) % deployment.parallelism.nodes:
        reason = f"{tp * pp} GPUs cannot be spread over {deployment.parallelism.nodes} machines"
        yield "parallelism.nodes", reason, "Take a divisor of tp times pp."
    longest, positions = deployment.limits.max_seq_len, shape.get("max_positions")
    if isinstance(longest, int) and positions is not None and longest > positions:
        reason = f"it is {longest} tokens, but the model has {positions} positions"
        fix = f"Take at most {positions}, or write model.max_positions where rope scaling allows more."
        yield "limits.max_seq_len", reason, fix


def _references(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find variables of the environment, which only this project's engines read."""
    logits = ("logits.context", "logits.generation")
    for key in ("model.source", "model.folder", "limits.max_seq_len", *logits, "decoding.exclude_input_in_output"):
        value = value_at(deployment, key)
        if isinstance(value, str) and value.startswith("${"):
            yield key, f"the C++ backend does not read {value} from the environment", "Write the value."


# Names of the number of experts in config.json: Mixtral's, Qwen's and DeepSeek's.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_MOE = ("parallelism.moe_tp", "parallelism.moe_ep")
# Keys that a tool has no option for, the reason and the fix.
_UNSUPPORTED = {
    "quantize": (_MOE, "quantize.py does not take it", "Leave it out, or leave model.quantization none."),
    "another": (
        ("model.dtype", "model.quantization", "kv_cache.dtype", *_MOE),
        "the checkpoint of this model, or of this speculative.method, is converted by hand, and the conversion "
        "decides this",
        "Leave it out here, and set it in the conversion.",
    ),
}
_UNKNOWN = (
    "its config.json cannot be read here, so the checkpoint is converted by hand, and the conversion decides this",
    "Set model.family, so that the converter is known; or leave it out here, and set it in the conversion.",
)
_SAYS_NOTHING = (None, "auto", "none")


def _tools(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions with the tools that make the engine, and with the model's experts."""
    yield from _experts(deployment)
    yield from _calibration(deployment)
    if deployment.engine == "tensorrt":
        tool = checkpoint_tool(deployment)
        keys, reason, fix = _UNSUPPORTED.get(tool, ((), "", ""))
        if tool == "another" and not has_own_conversion(deployment) and family_of(deployment) is None:
            reason, fix = _UNKNOWN
        for key in keys:
            if value_at(deployment, key) not in _SAYS_NOTHING:
                yield key, reason, fix
        if tool == "convert_checkpoint":
            yield from converter_contradictions(deployment)


def _calibration(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find settings of quantisation that nothing quantises by."""
    if is_given(deployment, "build.awq_block_size") and not deployment.model.quantization.endswith("awq"):
        yield "build.awq_block_size", "it belongs to int4_awq and w4a8_awq", "Leave it out."
    if prepares_checkpoint(deployment) or (
        deployment.engine == "tensorrt" and checkpoint_tool(deployment) == "quantize"
    ):
        return
    for key in ("build.calib_size", "build.calib_batch_size"):
        if is_given(deployment, key):
            yield key, "it has no effect: no tool calibrates this model with texts", "Leave it out."
    if is_given(deployment, "build.calib_dataset") and checkpoint_tool(deployment) != "convert_checkpoint":
        yield "build.calib_dataset", "it has no effect: this quantization needs no calibration", "Leave it out."


def _experts(deployment: DeploymentSettings) -> Iterator[Found]:
    """Check that experts can be shared: by groups of GPUs, each of them by several, or both (mapping.py)."""
    tp, moe_tp, moe_ep = (getattr(deployment.parallelism, name) for name in ("tp", "moe_tp", "moe_ep"))
    if moe_tp is None and moe_ep is None:
        return
    key = "parallelism.moe_tp" if moe_ep is None else "parallelism.moe_ep"
    if tp % (moe_tp or 1) or tp % (moe_ep or 1) or (moe_tp and moe_ep and moe_tp * moe_ep != tp):
        sizes = f"{moe_tp} times {moe_ep}" if moe_tp and moe_ep else f"{moe_tp or moe_ep} times a whole number"
        yield key, f"moe_tp times moe_ep must be tp, and {sizes} is not {tp}", f"Take divisors of {tp}."
    config = text_config_of(deployment.model)
    experts = next((config[name] for name in _EXPERTS if isinstance(config.get(name), int)), 0)
    if config and experts < (moe_ep or 1):
        fix = f"Take at most {experts}." if experts else "Leave it out."
        yield key, f"the model's config.json has {experts or 'no'} experts", fix
