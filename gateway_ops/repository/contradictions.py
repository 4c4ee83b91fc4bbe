"""Finds contradictions in deployments, each with a key, a reason and a fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.model_settings import ModelSettings
from gateway.settings.yaml_file import Keys
from gateway_ops.repository.engine_keys import unread_keys
from gateway_ops.repository.engine_rules import engine_contradictions
from gateway_ops.repository.key_paths import Found, Shared, is_given, value_at
from gateway_ops.repository.model_rules import model_contradictions
from gateway_ops.repository.placement_rules import shared_placement
from gateway_ops.repository.scripts import built_from
from gateway_ops.repository.speculative_rules import shared_drafts, speculative_contradictions
from gateway_ops.repository.stock_models import GONE, OLDEST, parse_version


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A reason to reject a deployment.

    Attributes:
        keys: the key path within the settings file.
        reason: one sentence, without the key.
        fix: one sentence.
    """

    keys: Keys
    reason: str
    fix: str


def contradictions(deployments: Sequence[DeploymentSettings]) -> Iterator[Contradiction]:
    """Find every contradiction within deployments, and between those that share a repository."""
    for index, deployment in enumerate(deployments):
        for key, reason, fix in _of_one(deployment):
            yield Contradiction(("deployments", index, *key.split(".")), reason, fix)
    shared = (_shared_names, _shared_engines, shared_drafts, shared_placement)
    for index, key, reason, fix in (found for rule in shared for found in rule(deployments)):
        yield Contradiction(("deployments", index, *key.split(".")), reason, fix)


def _of_one(deployment: DeploymentSettings) -> Iterator[Found]:
    yield from _version(deployment)
    for rules in (_values, unread_keys, model_contradictions, engine_contradictions, speculative_contradictions):
        yield from rules(deployment)


def _version(deployment: DeploymentSettings) -> Iterator[Found]:
    version = parse_version(deployment.trtllm)
    if version < OLDEST:
        yield (
            "trtllm",
            f"the tensors of TensorRT-LLM {deployment.trtllm} are unknown to this gateway",
            "Use 0.19 or newer.",
        )
    if version >= GONE and deployment.engine == "tensorrt":
        reason = f"TensorRT-LLM {deployment.trtllm} has no TensorRT engines: version 1.2 is the last with them"
        yield "trtllm", reason, "Set engine: llmapi, or use an image with 1.2.1."
    if deployment.engine != "llmapi":
        return
    if version < _LLM_API:
        reason = f"the engine llmapi is for TensorRT-LLM 1.0 and newer, and this is {deployment.trtllm}"
        yield "trtllm", reason, "Use an image with 1.0 or newer, or set engine: tensorrt."
    if version >= GONE and is_given(deployment, "kv_cache.onboard_blocks"):
        reason = (
            f"KvCacheConfig of TensorRT-LLM {deployment.trtllm} has no onboard_blocks: version 1.2 is the last with it"
        )
        yield "kv_cache.onboard_blocks", reason, "Leave it out: offloaded blocks are copied back before use."
    if version == _LLM_API and deployment.kv_cache.tokens_per_block not in (None, 32):
        reason = f"KvCacheConfig of TensorRT-LLM {deployment.trtllm} has no tokens_per_block: later versions have it"
        yield "kv_cache.tokens_per_block", reason, "Leave it out, or use a newer image."


_LLM_API = (1, 0, 0)
_STEPS = ("preprocessing", "postprocessing", "ensemble")


def _shared_names(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """Find Triton models of one repository that share a name."""
    first: dict[str, str] = {}
    for index, deployment in enumerate(deployments):
        names = [deployment.engine_name, *_step_names(deployment)]
        if deployment.role == "chat" and deployment.engine_model in (*_STEPS, "tensorrt_llm_bls"):
            reason = f"{deployment.engine_model!r} is the name of another model of this deployment"
            yield index, "engine_model", reason, "Keep tensorrt_llm, or choose another name."
            continue
        for name in names:
            if name in first:
                reason = f"the Triton model {name!r} is also rendered by deployment {first[name]!r}"
                fix = "Give one of them `prefix: ...`, or a draft `engine_model: ...`."
                yield index, "prefix", reason, fix
                break
        for name in names:
            first.setdefault(name, deployment.name)


def _shared_engines(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """Find different engines that would be built into one folder."""
    first: dict[str, DeploymentSettings] = {}
    for index, deployment in enumerate(deployments):
        folder = (deployment.engine_dir or "").rstrip("/")
        if deployment.engine != "tensorrt" or not folder:
            continue
        other = first.setdefault(folder, deployment)
        if other is not deployment and built_from(other) != built_from(deployment):
            reason = (
                f"deployment {other.name!r} builds another engine in this folder, which this engine would overwrite"
            )
            yield index, "engine_dir", reason, "Name another folder, or give both the same model, limits and build."


def draft_contradictions(
    models: Iterable[tuple[int, ModelSettings]], deployments: Sequence[DeploymentSettings]
) -> Iterator[Contradiction]:
    """Find served models with longer drafts than the deployment of their Triton model takes."""
    for index, model in models:
        name, wanted = model.triton.model, model.speculative
        for deployment in deployments:
            most = deployment.speculative.max_draft_tokens if deployment.speculative is not None else None
            if most is None or name not in (deployment.engine_name, *_step_names(deployment)):
                continue
            for key in ("num_draft_tokens", "max_draft_tokens"):
                if (getattr(wanted, key) or 0) > most:
                    reason = f"the value is more than max_draft_tokens of deployment {deployment.name!r}, {most}"
                    fix = f"Take at most {most}, or build an engine for more."
                    yield Contradiction(("models", index, "speculative", key), reason, fix)


def _step_names(deployment: DeploymentSettings) -> tuple[str, ...]:
    """The names of a deployment's Triton models without the engine; a draft has none."""
    if deployment.role != "chat":
        return ()
    return tuple(f"{deployment.prefix}{step}" for step in (*_STEPS, *(("tensorrt_llm_bls",) * deployment.bls.enabled)))


# TensorRT-LLM's lora_manager.py, LORA_MODULE_IDS.
_LORA_MODULES = (
    *("attn_qkv", "attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"),
    *("cross_attn_qkv", "cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_dense"),
    *("moe_h_to_4h", "moe_4h_to_h", "moe_gate", "moe_router", "mlp_router", "mlp_gate_up"),
)
TREE = re.compile(r"\s*\{\s*\d+(\s*,\s*\d+)*\s*\}(\s*,\s*\{\s*\d+(\s*,\s*\d+)*\s*\})*\s*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _values(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find values of one deployment that are wrong by themselves."""
    yield from _texts(deployment, "")
    yield from _paths(deployment)
    unknown = [module for module in deployment.lora.modules if module not in _LORA_MODULES] if deployment.lora else []
    if unknown:
        reason = f"TensorRT-LLM has no LoRA module {unknown[0]!r}"
        yield "lora.modules", reason, f"Choose from {', '.join(_LORA_MODULES)}."
    for key in ("medusa_choices", "eagle_choices"):
        tree = getattr(deployment.speculative, key) if deployment.speculative is not None else None
        if tree and not TREE.fullmatch(tree):
            yield f"speculative.{key}", f"{tree!r} is not a choice tree", "Write it as {0}, {0, 0}, {1}."


def _paths(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find relative folders: the server is started elsewhere. A source may be a Hugging Face id as well."""
    for key in (
        "model.source",
        "model.folder",
        "engine_dir",
        "lora.prefetch_dir",
        "encoder.engine_dir",
        "speculative.heads",
    ):
        path = value_at(deployment, key)
        if not isinstance(path, str) or not path:
            continue
        relative = path.startswith((".", "~")) if key == "model.source" else not path.startswith(("/", "${"))
        if relative:
            reason = f"{path!r} is relative to the working directory of the server"
            yield key, reason, "Write an absolute path, as the server sees it."


def _texts(section: BaseModel, path: str) -> Iterator[Found]:
    """Find texts that would break a line of a script or configuration, and empty ones."""
    for name in section.model_fields_set:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _texts(value, f"{path}{name}.")
        elif isinstance(value, str) and _CONTROL.search(value):
            yield f"{path}{name}", "it holds a control character or a line break", "Write it as plain text in one line."
        elif value == "" and name != "prefix":
            yield f"{path}{name}", "it is empty", "Write a value, or leave the key out."
