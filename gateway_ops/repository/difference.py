"""Compares rendered configurations with existing ones by meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tritonclient.grpc import model_config_pb2

from gateway_ops.repository.pbtxt import is_repeated

_TYPES = model_config_pb2.DataType
_NOT_FILLED_IN = "not filled in"
# Fields that `settings_of` words in its own way; all others of a configuration are taken as they are.
_WORDED = frozenset(
    {
        *("name", "platform", "backend", "max_batch_size", "model_transaction_policy", "parameters"),
        *("input", "output", "instance_group", "dynamic_batching", "ensemble_scheduling"),
    }
)
_WORDED_OF_TENSORS = frozenset({"name", "data_type", "dims", "optional", "allow_ragged_batch", "reshape"})
_WORDED_OF_BATCHING = frozenset({"preserve_ordering", "max_queue_delay_microseconds"})
_QUEUE = "default_queue_policy"


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """One different setting.

    Attributes:
        model: the Triton model.
        setting: such as ``input seed dims`` or ``parameter decoding_mode``; empty for the model as a whole.
        rendered: rendered value; None where it is absent.
        existing: existing value; None where it is absent.
    """

    model: str
    setting: str
    rendered: str | None
    existing: str | None

    def __str__(self) -> str:
        """One line for people."""
        where = f"{self.model}: {self.setting}" if self.setting else self.model
        rendered, existing = self.rendered or "empty", self.existing or "empty"
        if self.existing is None:
            return f"{where}: only rendered{f' ({rendered})' if self.setting else ''}"
        if self.rendered is None:
            return f"{where}: only there{f' ({existing})' if self.setting else ''}"
        return f"{where}: {rendered} rendered, {existing} there"


def differences(
    rendered: Mapping[str, Any],
    existing: Mapping[str, Any],
    *,
    full: bool = False,
    unfilled: Mapping[str, Collection[str]] | None = None,
) -> Iterator[SettingDifference]:
    """Compare configurations by meaning, not by order or layout.

    Args:
        rendered: rendered ModelConfig by name.
        existing: existing ModelConfig by name.
        full: whether to compare fields that a rendering does not set, too. Leave them out for configurations of
            a running server, which adds fields such as a version policy and names of instance groups.
        unfilled: existing settings with a placeholder, by model; see `unfilled_settings`.
    """
    for model in sorted(rendered.keys() | existing.keys()):
        if model not in rendered or model not in existing:
            yield SettingDifference(
                model, "", "model" if model in rendered else None, "model" if model in existing else None
            )
            continue
        left, right = settings_of(rendered[model], full=full), settings_of(existing[model], full=full)
        right |= dict.fromkeys((unfilled or {}).get(model, ()), _NOT_FILLED_IN)
        for setting in sorted(left.keys() | right.keys()):
            if left.get(setting) != right.get(setting):
                yield SettingDifference(model, setting, left.get(setting), right.get(setting))


def unfilled_settings(config: Any, changed: Any) -> frozenset[str]:
    """Find the settings with a placeholder.

    Args:
        config: a ModelConfig with stand-ins for placeholders.
        changed: the same with other stand-ins.
    """
    left, right = settings_of(config, full=True), settings_of(changed, full=True)
    return frozenset(setting for setting in left.keys() | right.keys() if left.get(setting) != right.get(setting))


def settings_of(config: Any, *, full: bool = False) -> dict[str, str]:
    """Flatten a configuration, without defaults and parameters with a placeholder.

    Args:
        config: a ModelConfig.
        full: whether to include fields that a rendering does not set.
    """
    found = {"max_batch_size": str(config.max_batch_size), "backend": config.backend or config.platform}
    if config.model_transaction_policy.decoupled and not config.ensemble_scheduling.step:  # an ensemble's is derived
        found["decoupled"] = "true"
    for kind in ("input", "output"):
        for tensor in getattr(config, kind):
            found |= {f"{kind} {tensor.name} {key}": value for key, value in _tensor(kind, tensor, full=full).items()}
    if config.instance_group and not config.ensemble_scheduling.step:
        found["instances"] = str(sum(group.count for group in config.instance_group))
    if config.HasField("dynamic_batching"):
        found |= _batching(config.dynamic_batching)
    for name, parameter in config.parameters.items():
        value = parameter.string_value
        if not _unfilled(value):
            found[f"parameter {name}"] = value.lower() if value in ("True", "False") else value
    return found | _steps(config) | (_others(config) if full else {})


def datatype_name(tensor: Any) -> str:
    """The type of a declared tensor, without ``TYPE_``."""
    return str(_TYPES.Name(tensor.data_type)).removeprefix("TYPE_")


def _tensor(kind: str, tensor: Any, *, full: bool) -> dict[str, str]:
    said = {"type": datatype_name(tensor), "dims": str(list(tensor.dims))}
    if kind == "input":
        said["optional"] = str(bool(tensor.optional)).lower()
        said["ragged"] = str(bool(tensor.allow_ragged_batch)).lower()
    if tensor.HasField("reshape"):
        said["reshape"] = str(list(tensor.reshape.shape))
    return said | (dict(flat_fields(tensor, "", _WORDED_OF_TENSORS)) if full else {})


def _batching(batching: Any) -> dict[str, str]:
    found = {"dynamic_batching": "true"}
    if batching.preserve_ordering:
        found["dynamic_batching preserve_ordering"] = "true"
    if batching.max_queue_delay_microseconds:
        found["dynamic_batching max_queue_delay_microseconds"] = str(batching.max_queue_delay_microseconds)
    if batching.default_queue_policy.max_queue_size:
        found["dynamic_batching max_queue_size"] = str(batching.default_queue_policy.max_queue_size)
    return found


def _steps(config: Any) -> dict[str, str]:
    """The steps by model; inner tensors are named after the step output that makes them."""
    makers = {
        name: f"{step.model_name} {output}"
        for step in config.ensemble_scheduling.step
        for output, name in step.output_map.items()
    }
    public = {tensor.name for tensor in (*config.input, *config.output)}
    found = {}
    for step in config.ensemble_scheduling.step:
        found[f"step {step.model_name}"] = "step"
        for name, source in step.input_map.items():
            found[f"step {step.model_name} input {name}"] = makers.get(source, source)
        for name, target in step.output_map.items():
            if target in public:
                found[f"step {step.model_name} output {name}"] = target
    return found


def _others(config: Any) -> dict[str, str]:
    """Every other field that is set."""
    found = dict(flat_fields(config, "", _WORDED))
    if found.get("version_policy latest num_versions") == "1":  # Triton's default
        del found["version_policy latest num_versions"]
    for number, group in enumerate(config.instance_group, 1):
        found |= flat_fields(group, f"instance_group {number} ", frozenset({"name", "count"}))
    batching = config.dynamic_batching
    found |= flat_fields(batching, "dynamic_batching ", _WORDED_OF_BATCHING | {_QUEUE})
    found |= flat_fields(batching.default_queue_policy, f"dynamic_batching {_QUEUE} ", frozenset({"max_queue_size"}))
    for step in config.ensemble_scheduling.step:
        found[f"step {step.model_name} model_version"] = str(step.model_version)
        found |= flat_fields(
            step,
            f"step {step.model_name} ",
            frozenset({"model_name", "model_version", "input_map", "output_map"}),
        )
    return found


def _unfilled(value: str) -> bool:
    """Whether a value is a template's placeholder; environment variables of this project are in capitals."""
    return value.startswith("${") and value.endswith("}") and not value[2:-1].isupper()


def flat_fields(message: Any, path: str, but: Collection[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield the set fields of a message by their nested names, each with its value as text.

    Args:
        message: a protobuf message.
        path: a prefix of the names, which ends with a blank unless it is empty.
        but: names of fields of this message to skip.
    """
    for field, value in message.ListFields():
        if field.name in but:
            continue
        where = f"{path}{field.name}"
        if field.message_type is None:
            yield where, _field_text(field, value)
        elif field.message_type.GetOptions().map_entry:
            for key in sorted(value):
                yield from _entry(f"{where} {key}", value[key])
        elif is_repeated(field):
            for number, item in enumerate(value, 1):
                yield from _entry(f"{where} {number}", item)
        else:
            yield from _entry(where, value)


def _entry(where: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a message or a plain value of a map; an empty message counts as well."""
    if not hasattr(value, "ListFields"):
        yield where, str(value)
        return
    yield from list(flat_fields(value, f"{where} ")) or [(where, "there")]


def _field_text(field: Any, value: Any) -> str:
    values = [_one(field, one) for one in value] if is_repeated(field) else _one(field, value)
    return values if isinstance(values, str) else f"[{', '.join(values)}]"


def _one(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    return str(value).lower() if isinstance(value, bool) else str(value)
