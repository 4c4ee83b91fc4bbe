"""What deployments cannot be: each contradiction with the key, the reason and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gateway.config.deployment import DeploymentSettings
from gateway.config.document import Keys
from gateway.config.model import ModelSettings
from gateway.contract.versions import GONE, OLDEST, parse_version
from gateway.repository import build_rules, engine_rules, model_rules, value_rules
from gateway.repository.engine_rules import Found
from gateway.repository.placement import shared_placement


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
    for index, key, reason, fix in (*_shared_names(deployments), *_drafts(deployments), *shared_placement(deployments)):
        yield Contradiction(("deployments", index, *key.split(".")), reason, fix)


def _of_one(deployment: DeploymentSettings) -> Iterator[Found]:
    yield from _version(deployment)
    yield from value_rules.find(deployment)
    yield from model_rules.find(deployment)
    yield from build_rules.find(deployment)
    yield from engine_rules.find(deployment)


def _version(deployment: DeploymentSettings) -> Iterator[Found]:
    version = parse_version(deployment.trtllm)
    if version < OLDEST:
        yield "trtllm", f"the tensors of TensorRT-LLM {deployment.trtllm} are not known here", "Take 0.19 or newer."
    if version >= GONE and deployment.engine == "tensorrt":
        reason = f"TensorRT-LLM {deployment.trtllm} has no TensorRT engines: they ended with 1.2"
        yield "trtllm", reason, "Set engine: llmapi, or take an image with 1.2.1."


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


def find_draft(deployment: DeploymentSettings, deployments: Sequence[DeploymentSettings]) -> DeploymentSettings | None:
    """The deployment that drafts for another, by its name or its engine model's; None where there is none."""
    wanted = deployment.speculative.draft if deployment.speculative is not None else None
    return next((other for other in deployments if wanted in (other.name, other.engine_name)), None)


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


def _drafts(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    for index, deployment in enumerate(deployments):
        speculative = deployment.speculative
        if speculative is None or speculative.method != "draft_target":
            continue
        draft = find_draft(deployment, deployments)
        if speculative.draft is None:
            yield index, "speculative.draft", "draft_target needs a model that guesses", "Name its deployment."
        elif draft is None:
            reason = f"there is no deployment {speculative.draft!r} in this file"
            yield index, "speculative.draft", reason, "Add one with `role: draft`."
        elif draft is deployment:
            yield index, "speculative.draft", "a model does not guess for itself", "Name another deployment."
        elif draft.role != "draft":
            reason = f"deployment {draft.name!r} is not a draft"
            yield index, "speculative.draft", reason, f"Set `role: draft` in {draft.name!r}."
        elif draft.engine != deployment.engine:
            reason = f"deployment {draft.name!r} has engine {draft.engine}, this one {deployment.engine}"
            yield index, "speculative.draft", reason, "Drafts and target must have the same kind of engine."
        elif None not in (draft.model.vocab_size, deployment.model.vocab_size) and (
            draft.model.vocab_size != deployment.model.vocab_size
        ):
            reason = f"its vocabulary has {draft.model.vocab_size} tokens, the target's {deployment.model.vocab_size}"
            yield index, "speculative.draft", reason, "Take a draft model with the same tokenizer."
