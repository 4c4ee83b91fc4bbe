"""Contradictions in speculative decoding, within a deployment and between a draft and its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.settings.deployment_settings import DeploymentSettings, SpeculativeSettings
from gateway_ops.repository.build_steps import draft_length
from gateway_ops.repository.converters import HEADS
from gateway_ops.repository.key_paths import Found, Shared

_BELONGS = {
    "draft": "draft_target",
    "fast_logits": "draft_target",
    "medusa_choices": "medusa",
    "num_heads": "medusa",
    "eagle_choices": "eagle",
    **dict.fromkeys(("window_size", "ngram_size", "verification_set_size"), "lookahead"),
}
# trtllm-build's own, for EAGLE.
_EAGLE_BATCH, _EAGLE_DRAFT = 512, 256


def speculative_contradictions(deployment: DeploymentSettings) -> Iterator[Found]:
    """Find contradictions within one deployment's speculative decoding."""
    speculative = deployment.speculative
    if speculative is None:
        return
    method, mode = speculative.method, deployment.decoding.mode
    if deployment.engine in ("llmapi", "transformers"):
        reason = f"the engine {deployment.engine} does not support draft tokens"
        yield "speculative", reason, "Set engine: tensorrt, or leave it out."
    elif deployment.engine != "tensorrt" and method != "draft_target":
        reason = f"{method} is rendered for TensorRT engines only"
        yield "speculative.method", reason, "Set engine: tensorrt, or leave it out."
    yield from _heads(deployment, speculative)
    for key, owner in _BELONGS.items():
        if getattr(speculative, key) and owner != method:
            yield f"speculative.{key}", f"it belongs to method {owner}, and the method is {method}", "Leave it out."
    if method != "draft_target" and mode not in ("auto", method):
        yield "decoding.mode", f"an engine of method {method} decodes by {method} alone", f"Leave it auto, or {method}."
    if deployment.limits.max_beam_width > 1:
        yield "speculative", "speculative decoding does not support beams", "Set limits.max_beam_width: 1."
    if method == "draft_target" and not deployment.bls.enabled:
        yield "bls.enabled", "tensorrt_llm_bls drives the draft model", "Leave it true."
    if deployment.engine == "tensorrt":
        yield from _lengths(deployment, speculative)


def _heads(deployment: DeploymentSettings, speculative: SpeculativeSettings) -> Iterator[Found]:
    if speculative.num_heads is not None and speculative.heads is None:
        yield (
            "speculative.num_heads",
            "it is the number of heads, but speculative.heads is not set",
            "Name their folder as well.",
        )
    if speculative.heads is None:
        return
    if speculative.method not in HEADS:
        reason = f"it belongs to the methods {' and '.join(HEADS)}, and this is {speculative.method}"
        yield "speculative.heads", reason, "Leave it out."
    if deployment.model.quantization not in ("none", "int8_wo", "int4_wo"):
        reason = f"convert_checkpoint.py of {speculative.method} does not make {deployment.model.quantization}"
        fix = "Set int8_wo, int4_wo or none; or leave speculative.heads out, and make the checkpoint by hand."
        yield "model.quantization", reason, fix


def _lengths(deployment: DeploymentSettings, speculative: SpeculativeSettings) -> Iterator[Found]:
    method, most = speculative.method, speculative.max_draft_tokens
    sizes = (speculative.window_size, speculative.ngram_size, speculative.verification_set_size)
    if method == "lookahead" and None in sizes:
        yield "speculative", "lookahead needs its three sizes", "Set window_size, ngram_size and verification_set_size."
    elif method == "lookahead" and most not in (None, draft_length(speculative)):
        reason = (
            f"lookahead's three sizes make it {draft_length(speculative)}, and the engine must be built for just that"
        )
        yield "speculative.max_draft_tokens", reason, "Leave it out."
    if method == "draft_target" and most is None:
        reason = "an engine accepts only as many draft tokens as it was built for, and the number is not set"
        yield "speculative.max_draft_tokens", reason, "Set the most draft tokens, such as 8."
    if deployment.logits.context is True and draft_length(speculative):
        reason = "trtllm-build does not gather prompt logits in an engine with draft tokens"
        yield "logits.context", reason, "Leave it out."
    if method == "eagle":
        rows = deployment.limits.max_batch_size or deployment.triton.max_batch_size
        if rows > _EAGLE_BATCH:
            yield "limits.max_batch_size", f"EAGLE supports at most {_EAGLE_BATCH} sequences", f"Take {_EAGLE_BATCH}."
        if most is not None and most > _EAGLE_DRAFT:
            yield (
                "speculative.max_draft_tokens",
                f"EAGLE drafts at most {_EAGLE_DRAFT} tokens",
                f"Take {_EAGLE_DRAFT}.",
            )


def find_draft(deployment: DeploymentSettings, deployments: Sequence[DeploymentSettings]) -> DeploymentSettings | None:
    """Find the draft deployment of another one, by its name or its engine model's."""
    wanted = deployment.speculative.draft if deployment.speculative is not None else None
    return next((other for other in deployments if wanted in (other.name, other.engine_name)), None)


def hands_logits_over(draft: DeploymentSettings, deployments: Sequence[DeploymentSettings]) -> bool:
    """Tell whether a target of these deployments takes a draft's logits directly."""
    wanting = (one for one in deployments if one.speculative is not None and one.speculative.fast_logits)
    return any(find_draft(target, deployments) is draft for target in wanting)


def shared_drafts(deployments: Sequence[DeploymentSettings]) -> Iterator[Shared]:
    """Find contradictions between targets and their drafts."""
    for index, deployment in enumerate(deployments):
        speculative = deployment.speculative
        if speculative is None or speculative.method != "draft_target":
            continue
        draft = find_draft(deployment, deployments)
        if speculative.draft is None:
            yield index, "speculative.draft", "draft_target needs a draft model", "Name its deployment."
        elif draft is None:
            reason = f"deployment {speculative.draft!r} does not exist in this file"
            yield index, "speculative.draft", reason, "Add one with `role: draft`."
        elif draft is deployment:
            yield index, "speculative.draft", "a model cannot be its own draft model", "Name another deployment."
        else:
            for key, reason, fix in _pair(deployment, draft):
                yield index, key, reason, fix


def _pair(target: DeploymentSettings, draft: DeploymentSettings) -> Iterator[Found]:
    sizes = (target.model.vocab_size, draft.model.vocab_size)
    if draft.role != "draft":
        reason = f"deployment {draft.name!r} is not a draft"
        yield "speculative.draft", reason, f"Set `role: draft` in {draft.name!r}."
    elif draft.engine != target.engine:
        reason = f"deployment {draft.name!r} has engine {draft.engine}, this one {target.engine}"
        yield "speculative.draft", reason, "Drafts and target must have the same kind of engine."
    elif None not in sizes and sizes[0] != sizes[1]:
        reason = f"its vocabulary has {sizes[1]} tokens, the target's {sizes[0]}"
        yield "speculative.draft", reason, "Use a draft model with the same tokenizer."
    speculative = target.speculative
    if speculative is not None and speculative.fast_logits and target.engine == "tensorrt":
        missing = [one.name for one in (target, draft) if not one.triton.participant_ids]
        if missing:
            reason = (
                "the C++ backend hands logits over directly only between workers that are started beforehand, and "
                f"deployment {missing[0]!r} has no triton.participant_ids"
            )
            yield "speculative.fast_logits", reason, "Give target and draft ranks, as [[2]] and [[1]]."
