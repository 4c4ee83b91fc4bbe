"""The CPU engine in the place of TensorRT-LLM's, behind exactly the tensors that were rendered for that."""

from __future__ import annotations

import shutil
from pathlib import Path

from gateway_ops.repository.model_folders import read_repository
from gateway_ops.repository.pbtxt import to_text


def put_reference_engine(model: Path, repository: Path, weights: Path) -> None:
    """Let a rendered engine model run on the CPU.

    Args:
        model: folder of the Triton model.
        repository: this project's model repository.
        weights: folder of the model that it serves.
    """
    config = read_repository(model.parent)[model.name].config
    config.backend = "python"
    config.ClearField("dynamic_batching")
    for tensor in config.input:
        tensor.ClearField("reshape")
    for name, value in (("engine", "reference"), ("gpt_model_path", str(weights))):
        config.parameters[name].string_value = value
    (model / "config.pbtxt").write_text(to_text(config))
    shutil.copytree(repository / "tensorrt_llm" / "1", model / "1", dirs_exist_ok=True)
