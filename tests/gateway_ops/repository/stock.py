"""A stock repository as somebody fills it in by hand, rebuilt from the recorded facts of TensorRT-LLM's templates."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

Values = dict[str, dict[str, str]]
UPSTREAM: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("upstream.json").read_text())
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled_by_hand(version: str, values: Values) -> dict[str, Any]:
    """ModelConfig by model, with ``values`` by model and variable; variables without a value stay as they are."""
    return {model: fill(model, facts, values.get(model, {})) for model, facts in UPSTREAM[version].items()}


def renamed(configs: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The same models under other names, as somebody calls them who copies the folders of a second deployment."""
    for config in configs.values():
        config.name = names.get(config.name, config.name)
        for step in config.ensemble_scheduling.step:
            step.model_name = names.get(step.model_name, step.model_name)
    return {config.name: config for config in configs.values()}


def is_image(setting: str) -> bool:
    """Tensors and parameters of pictures and videos: preprocessing here is for text."""
    image = ("IMAGE", "VIDEO", "PIXEL", "ASPECT_RATIO", "CROSS_ATTENTION", "ATTENTION_MASK", "VISION")
    return any(word in setting for word in image)


def fill(model: str, facts: dict[str, Any], values: dict[str, str]) -> Any:
    """The ModelConfig of one model by its recorded facts; variables without a value stay as they are."""
    config = model_config_pb2.ModelConfig(name=model, max_batch_size=int(values["triton_max_batch_size"]))
    if model == "ensemble":
        config.platform = "ensemble"
    else:
        config.backend = values.get("triton_backend", "python")
        count = next((int(value) for name, value in values.items() if name.endswith("_instance_count")), 1)
        config.instance_group.add(count=count, kind=model_config_pb2.ModelInstanceGroup.KIND_CPU)
    if values.get("decoupled_mode", "").lower() == "true":
        config.model_transaction_policy.decoupled = True
    if facts["batching"]:
        config.dynamic_batching.default_queue_policy.max_queue_size = int(values.get("max_queue_size", "0"))
    for kind in ("input", "output"):
        for name, tensor in facts[f"{kind}s"].items():
            entry = getattr(config, kind).add(name=name, data_type=_type(name, tensor, values), dims=tensor["dims"])
            if kind == "input":
                entry.optional = tensor.get("optional", False)
                entry.allow_ragged_batch = tensor.get("ragged", False)
            if tensor.get("scalar"):
                entry.reshape.SetInParent()
    for name, text in facts["parameters"].items():
        config.parameters[name].string_value = _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)
    for step in facts["steps"]:
        entry = config.ensemble_scheduling.step.add(model_name=step["model"], model_version=-1)
        entry.input_map.update(step["inputs"])
        entry.output_map.update(step["outputs"])
    return config


def _type(name: str, tensor: dict[str, Any], values: dict[str, str]) -> int:
    text = tensor["type"]
    if text == "variable":
        variables = {"encoder_input_features": "encoder_input_features_data_type"}
        variables["prompt_embedding_table"] = "prompt_embedding_table_data_type"
        text = values[variables.get(name, "logits_datatype")].removeprefix("TYPE_")
    return int(model_config_pb2.DataType.Value(f"TYPE_{text}"))
