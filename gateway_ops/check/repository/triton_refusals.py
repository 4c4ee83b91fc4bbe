"""Finds faults for which Triton rejects the configuration of any model.

Source: triton-inference-server/core, ``src/model_config_utils.cc`` (ValidateModelConfig, ValidateInstanceGroup,
ValidateIOShape, ValidateEnsembleSchedulingConfig); each rejection was seen in tritonserver 2.51.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository.models import at_tensor, error
from gateway_ops.repository.model_folders import ModelFolder

_REJECTS = "Triton rejects"


def check_configuration(model: ModelFolder) -> Iterator[Finding]:
    """Find faults that prevent a model from being loaded."""
    yield from _check_tensors(model)
    config = model.config
    if config.max_batch_size < 0:
        what = f"max_batch_size is {config.max_batch_size}; {_REJECTS} the model."
        yield error(model, "max_batch_size:", what, "Write 1 or more.")
    if config.HasField("dynamic_batching"):
        yield from _check_batching(model)
    if config.platform == "ensemble" or config.ensemble_scheduling.step:
        yield from _check_ensemble(model)
    else:
        yield from _check_instances(model)
    if config.response_cache.enable and config.model_transaction_policy.decoupled:
        what = f"A decoupled model has no response cache; {_REJECTS} the model."
        yield error(model, "response_cache", what, "Remove response_cache.")


def _check_tensors(model: ModelFolder) -> Iterator[Finding]:
    for kind in ("input", "output"):
        seen: set[str] = set()
        for tensor in getattr(model.config, kind):
            where, what, fix = at_tensor(model, tensor.name), "", ""
            if tensor.name in seen:
                # The stock ensemble lists kv_cache_alloc_total_blocks twice, which does no harm.
                severity = Severity.INFO if tensor.name == "kv_cache_alloc_total_blocks" else Severity.WARNING
                yield Finding(severity, where, f"The {kind} {tensor.name!r} is declared twice.", "Remove one.")
            seen.add(tensor.name)
            if not tensor.name:
                what, fix = f"An {kind} has no name", "Name it."
            elif not tensor.data_type:
                what, fix = f"The {kind} {tensor.name!r} has no data_type", "Write one, such as data_type: TYPE_INT32."
            elif not tensor.dims:
                what, fix = (
                    f"The {kind} {tensor.name!r} has no dims",
                    "Write dims: [ 1 ], or -1 for a size that varies.",
                )
            elif any(size < 1 and size != -1 for size in tensor.dims):
                what = f"The {kind} {tensor.name!r} has dims {list(tensor.dims)}"
                fix = "Write sizes from 1, or -1 for one that varies."
            if what and tensor.name not in model.unfilled:
                yield Finding(Severity.ERROR, where, f"{what}; {_REJECTS} the configuration.", fix)


def _check_batching(model: ModelFolder) -> Iterator[Finding]:
    batching, most = model.config.dynamic_batching, model.config.max_batch_size
    wrong = [size for size in batching.preferred_batch_size if not 0 < size <= most]
    if wrong and most >= 0 and not model.unfilled & {"dynamic_batching", "max_batch_size"}:
        what = f"preferred_batch_size is {wrong[0]}, but max_batch_size {most}; {_REJECTS} the model."
        yield error(model, "preferred_batch_size", what, f"Write 1 to {most}." if most > 0 else "Remove it.")
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    delays = [one for one in policies if one.default_timeout_microseconds and one.timeout_action == one.DELAY]
    if batching.preserve_ordering and delays:
        what = f"With preserve_ordering a queue's timeout_action cannot be DELAY; {_REJECTS} the model."
        yield error(model, "timeout_action", what, "Write timeout_action: REJECT.")


def _check_ensemble(model: ModelFolder) -> Iterator[Finding]:
    config = model.config
    given = {"instance_group": config.instance_group, "model_warmup": config.model_warmup}
    named = [name for name, value in given.items() if value]
    named += ["optimization"] if config.HasField("optimization") else []
    for name in named:
        what = f"An ensemble has no {name}: its steps have; {_REJECTS} the model."
        yield error(model, name, what, f"Remove {name}.")
    if config.backend:
        what = f"It has both an ensemble's steps and the backend {config.backend!r}; {_REJECTS} the model."
        yield error(model, "backend:", what, 'Write platform: "ensemble", and no backend.')


def _check_instances(model: ModelFolder) -> Iterator[Finding]:
    for group in model.config.instance_group:
        if group.kind == group.KIND_CPU and group.gpus:
            what = f"An instance group has KIND_CPU and gpus: {list(group.gpus)}; {_REJECTS} the model."
            yield error(model, "gpus:", what, "Remove gpus, or write KIND_GPU.")
