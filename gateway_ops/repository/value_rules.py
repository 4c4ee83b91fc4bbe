"""Values that no engine, file or shell takes, whatever stands beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel

from gateway.config.deployment_settings import DeploymentSettings
from gateway_ops.repository.keys import Found, value_at

# TensorRT-LLM's lora_manager.py, LORA_MODULE_IDS.
_LORA_MODULES = (
    *("attn_qkv", "attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"),
    *("cross_attn_qkv", "cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_dense"),
    *("moe_h_to_4h", "moe_4h_to_h", "moe_gate", "moe_router", "mlp_router", "mlp_gate_up"),
)
TREE = re.compile(r"\s*\{\s*\d+(\s*,\s*\d+)*\s*\}(\s*,\s*\{\s*\d+(\s*,\s*\d+)*\s*\})*\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def find(deployment: DeploymentSettings) -> Iterator[Found]:
    """Values of one deployment that are wrong by themselves."""
    yield from _texts(deployment, "")
    yield from _paths(deployment)
    unknown = [module for module in deployment.lora.modules if module not in _LORA_MODULES] if deployment.lora else []
    if unknown:
        reason = f"TensorRT-LLM has no LoRA module {unknown[0]!r}"
        yield "lora.modules", reason, f"Take some of {', '.join(_LORA_MODULES)}."
    for key in ("medusa_choices", "eagle_choices"):
        tree = getattr(deployment.speculative, key) if deployment.speculative is not None else None
        if tree and not TREE.fullmatch(tree):
            yield f"speculative.{key}", f"{tree!r} is no tree of choices", "Write it as {0}, {0, 0}, {1}."


def _paths(deployment: DeploymentSettings) -> Iterator[Found]:
    """Folders are the server's, which is started elsewhere; a source may be a Hugging Face id as well."""
    for key in ("model.source", "model.folder", "engine_dir", "lora.prefetch_dir", "encoder.engine_dir"):
        path = value_at(deployment, key)
        if not isinstance(path, str) or not path:
            continue
        relative = path.startswith((".", "~")) if key == "model.source" else not path.startswith(("/", "${"))
        if relative:
            reason = f"{path!r} is relative to wherever the server is started"
            yield key, reason, "Write an absolute path, as the server sees it."


def _texts(section: BaseModel, path: str) -> Iterator[Found]:
    """Texts that would break a line of a script or configuration, and empty ones."""
    for name in section.model_fields_set:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _texts(value, f"{path}{name}.")
        elif isinstance(value, str) and _CONTROL.search(value):
            yield f"{path}{name}", "it holds a control character or a line break", "Write it as plain text in one line."
        elif value == "" and name != "prefix":
            yield f"{path}{name}", "it is empty", "Write a value, or leave the key out."
