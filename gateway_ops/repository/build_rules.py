"""Contradictions between a deployment and what makes its engine; how the experts of a model are shared."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.deployment_settings import DeploymentSettings
from gateway_ops.repository import converters
from gateway_ops.repository.commands import checkpoint_tool, has_own_conversion
from gateway_ops.repository.converters import family_of
from gateway_ops.repository.keys import Found, is_given, value_at
from gateway_ops.repository.model_shape import text_config_of

# Names of the number of experts in config.json: Mixtral's, Qwen's and DeepSeek's.
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_MOE = ("parallelism.moe_tp", "parallelism.moe_ep")
# What a tool is not told, and what to do.
_UNTOLD = {
    "quantize": (_MOE, "quantize.py does not take it", "Leave it out, or leave model.quantization none."),
    "another": (
        ("model.dtype", "model.quantization", "kv_cache.dtype", *_MOE),
        "the checkpoint of this model, or of this speculative.method, is converted by hand, which decides it",
        "Leave it out here, and say it there.",
    ),
}
_UNKNOWN = (
    "its config.json cannot be read here, so the checkpoint is converted by hand, which decides it",
    "Name model.family, which says how it is told, or leave it out here, and say it there.",
)
_SAYS_NOTHING = (None, "auto", "none")


def find(deployment: DeploymentSettings) -> Iterator[Found]:
    """Contradictions of one deployment with the tools that make its engine, and with its model's experts."""
    yield from _experts(deployment)
    if deployment.engine == "tensorrt":
        tool = checkpoint_tool(deployment)
        keys, reason, fix = _UNTOLD.get(tool, ((), "", ""))
        if tool == "another" and not has_own_conversion(deployment) and family_of(deployment) is None:
            reason, fix = _UNKNOWN
        for key in keys:
            if value_at(deployment, key) not in _SAYS_NOTHING:
                yield key, reason, fix
        if is_given(deployment, "build.awq_block_size") and not deployment.model.quantization.endswith("awq"):
            yield "build.awq_block_size", "it belongs to int4_awq and w4a8_awq", "Leave it out."
        if tool == "convert_checkpoint":
            yield from converters.find(deployment)


def _experts(deployment: DeploymentSettings) -> Iterator[Found]:
    """Each GPU of a stage holds a part of the experts, a part of each of them, or both (TensorRT-LLM's mapping.py)."""
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
