"""Model repositories of the stock LLM API model, written as upstream's lie there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.doubles.llmapi.versions import VERSIONS


@dataclass(frozen=True, slots=True)
class LlmapiConfig:
    """One model of a repository.

    Attributes:
        version: a key of `VERSIONS`.
        name: of the model and its folder.
        decoupled: what model.yaml says, and so what the model believes.
        policy: whether config.pbtxt says that it is decoupled.
        arguments: further keys of model.yaml, such as ``lora_config``.
    """

    version: str
    name: str
    decoupled: bool = True
    policy: bool = True
    arguments: dict[str, Any] = field(default_factory=dict)


def write_model(repository: Path, config: LlmapiConfig, model_dir: Path) -> None:
    """Write ``config.pbtxt``, ``1/model.yaml`` and ``1/model.py``; ``model_dir`` has the tokenizer."""
    folder = repository / config.name / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(_config_text(config), encoding="utf-8")
    settings = {
        "model": str(model_dir), "backend": "pytorch", "tensor_parallel_size": 1, "pipeline_parallel_size": 1,
        **config.arguments, "triton_config": {"max_batch_size": 0, "decoupled": config.decoupled},
    }  # fmt: skip
    (folder / "model.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    (folder / "model.py").write_text(
        "from tests.doubles.llmapi.template import LlmapiModel\n\n\n"
        f'class TritonPythonModel(LlmapiModel):\n    VERSION = "{config.version}"\n',
        encoding="utf-8",
    )


def _config_text(config: LlmapiConfig) -> str:
    version = VERSIONS[config.version]
    lines = [f'name: "{config.name}"', 'backend: "python"']
    if config.policy:
        lines.append("model_transaction_policy { decoupled: true }")
    for name, kind, dimension in version.inputs():
        optional = "" if name == "text_input" else " optional: true"
        lines.append(f'input {{ name: "{name}" data_type: TYPE_{kind} dims: {dimension}{optional} }}')
    for name, kind in version.outputs():
        lines.append(f'output {{ name: "{name}" data_type: TYPE_{kind} dims: -1 }}')
    lines.append("instance_group { count: 1 kind: KIND_CPU }")
    return "\n".join(lines) + "\n"
