"""Contradictions in deployments: each with the key, the reason and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateway.config.deployment_settings import DeploymentSettings
from gateway.config.model_settings import ModelSettings
from gateway.config.yaml_file import Keys
from gateway_ops.repository import build_rules, engine_keys, engine_rules, limit_rules, model_rules, speculative_rules
from gateway_ops.repository import value_rules as values
from gateway_ops.repository.commands import built_from
from gateway_ops.repository.keys import Found, is_given
from gateway_ops.repository.placement import shared_placement
from gateway_ops.repository.speculative_rules import shared_drafts
from gateway_ops.repository.stock_models import GONE, OLDEST, parse_version


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Why a deployment is refused.

    Attributes:
        keys: the key path within the settings file.
        reason: one sentence, without the key.
        fix: one sentence.
    """

    keys: Keys
    reason: str
    fix: str


def contradictions(deployments: Sequence[DeploymentSettings]) -> Iterator[Contradiction]:
    """Find every contradiction within deployments, and between those that share a repository.

    Args:
        deployments: of one file, in its order.
    """
    for index, deployment in enumerate(deployments):
        for key, reason, fix in _of_one(deployment):
            yield Contradiction(("deployments", index, *key.split(".")), reason, fix)
    shared = (_shared_names, _shared_engines, shared_drafts, shared_placement)
    for index, key, reason, fix in (found for rule in shared for found in rule(deployments)):
        yield Contradiction(("deployments", index, *key.split(".")), reason, fix)


def _of_one(deployment: DeploymentSettings) -> Iterator[Found]:
    yield from _version(deployment)
    for rules in (values, engine_keys, model_rules, limit_rules, build_rules, engine_rules, speculative_rules):
        yield from rules.find(deployment)


def _version(deployment: DeploymentSettings) -> Iterator[Found]:
    version = parse_version(deployment.trtllm)
    if version < OLDEST:
        yield "trtllm", f"the tensors of TensorRT-LLM {deployment.trtllm} are not known here", "Take 0.19 or newer."
    if version >= GONE and deployment.engine == "tensorrt":
        reason = f"TensorRT-LLM {deployment.trtllm} has no TensorRT engines: they ended with 1.2"
        yield "trtllm", reason, "Set engine: llmapi, or take an image with 1.2.1."
    if deployment.engine != "llmapi":
        return
    if version < _LLM_API:
        reason = f"the engine llmapi is for TensorRT-LLM 1.0 and newer, and this is {deployment.trtllm}"
        yield "trtllm", reason, "Take an image with 1.0 or newer, or set engine: tensorrt."
    if version >= GONE and is_given(deployment, "kv_cache.onboard_blocks"):
        reason = f"KvCacheConfig of TensorRT-LLM {deployment.trtllm} has no onboard_blocks: it ended with 1.2"
        yield "kv_cache.onboard_blocks", reason, "Leave it out: offloaded blocks are copied back before use."
    if version == _LLM_API and deployment.kv_cache.tokens_per_block not in (None, 32):
        reason = f"KvCacheConfig of TensorRT-LLM {deployment.trtllm} has no tokens_per_block: it came later"
        yield "kv_cache.tokens_per_block", reason, "Leave it out, or take a newer image."


_LLM_API = (1, 0, 0)
Shared = tuple[int, str, str, str]
_STEPS = ("preprocessing", "postprocessing", "ensemble")


def _shared_names(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """Triton models of one repository must have names of their own."""
    first: dict[str, str] = {}
    for index, deployment in enumerate(deployments):
        names = [deployment.engine_name, *_step_names(deployment)]
        if deployment.role == "chat" and deployment.engine_model in (*_STEPS, "tensorrt_llm_bls"):
            reason = f"{deployment.engine_model!r} is the name of another of its five models"
            yield index, "engine_model", reason, "Leave it tensorrt_llm, or take another name."
            continue
        for name in names:
            if name in first:
                reason = f"the Triton model {name!r} would be made by deployment {first[name]!r} too"
                fix = "Give one of them `prefix: ...`, or a draft `engine_model: ...`."
                yield index, "prefix", reason, fix
                break
        for name in names:
            first.setdefault(name, deployment.name)


def _shared_engines(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """An engine may be loaded by several deployments, but is built once."""
    first: dict[str, DeploymentSettings] = {}
    for index, deployment in enumerate(deployments):
        folder = (deployment.engine_dir or "").rstrip("/")
        if deployment.engine != "tensorrt" or not folder:
            continue
        other = first.setdefault(folder, deployment)
        if other is not deployment and built_from(other) != built_from(deployment):
            reason = f"deployment {other.name!r} builds another engine there, which this one would overwrite"
            yield index, "engine_dir", reason, "Name another folder, or give both the same model, limits and build."


def draft_contradictions(
    models: Iterable[tuple[int, ModelSettings]], deployments: Sequence[DeploymentSettings]
) -> Iterator[Contradiction]:
    """Find served models of a file that want longer drafts than its deployment of their Triton model takes.

    Args:
        models: of one file, with their places in it.
        deployments: of the same file.
    """
    for index, model in models:
        name, wanted = model.triton.model, model.speculative
        for deployment in deployments:
            most = deployment.speculative.max_draft_tokens if deployment.speculative is not None else None
            if most is None or name not in (deployment.engine_name, *_step_names(deployment)):
                continue
            for key in ("num_draft_tokens", "max_draft_tokens"):
                if (getattr(wanted, key) or 0) > most:
                    reason = f"it is more than the max_draft_tokens of deployment {deployment.name!r}, {most}"
                    fix = f"Take at most {most}, or build an engine for more."
                    yield Contradiction(("models", index, "speculative", key), reason, fix)


def _step_names(deployment: DeploymentSettings) -> tuple[str, ...]:
    """Names of its Triton models but the engine's; a draft has no others."""
    if deployment.role != "chat":
        return ()
    return tuple(f"{deployment.prefix}{step}" for step in (*_STEPS, *(("tensorrt_llm_bls",) * deployment.bls.enabled)))
