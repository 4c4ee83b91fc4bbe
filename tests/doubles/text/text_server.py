"""A real Triton with doubles of the vLLM backend's model and of plain text models, and what tests tell them to play."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2

from tests.doubles.text.vllm_sampling import VERSIONS
from tests.scripted_engine.replay import TextModelsServer

MAX_MODEL_LEN = 1024
ADAPTER = "pirate"

_TEXT = (("text_input", "STRING", False),)
_SAMPLED = (("max_tokens", "INT32", True), ("temperature", "FP32", True), ("seed", "UINT64", True))
PLAIN: Mapping[str, dict[str, Any]] = {
    "plain_stream": {"decoupled": True, "inputs": (*_TEXT, *_SAMPLED)},
    "plain_whole": {"decoupled": False, "batch": 4, "inputs": _TEXT},
    "plain_counts": {"decoupled": True, "inputs": (*_TEXT, *_SAMPLED),
                     "outputs": (("finish_reason", "STRING"), ("num_input_tokens", "INT32"),
                                 ("num_output_tokens", "INT32"))},
    "plain_picky": {"decoupled": True, "inputs": (*_TEXT, ("persona", "STRING", False))},
}  # fmt: skip
"""Plain text models by name: whether they are decoupled, and their inputs with types, and whether they are optional."""


def vllm_model(version: str) -> str:
    """The name of the double of a version of the vLLM backend."""
    return f"vllm_{version.replace('.', '_')}"


def write_vllm(repository: Path, version: str, model_dir: Path) -> None:
    """Write a model of the vLLM backend as upstream's sample is: no tensors in its configuration, and model.json."""
    folder = repository / vllm_model(version) / "1"
    folder.mkdir(parents=True)
    config = 'backend: "python"\ninstance_group [{ count: 1 kind: KIND_CPU }]\n'
    (folder.parent / "config.pbtxt").write_text(config, encoding="utf-8")
    settings: dict[str, Any] = {"model": str(model_dir), "max_model_len": MAX_MODEL_LEN}
    if version == "26.01":
        settings["adapters"] = [ADAPTER]
    (folder / "model.json").write_text(json.dumps(settings), encoding="utf-8")
    code = "from tests.doubles.text.vllm_model import VllmModel\n\n\n"
    code += f'class TritonPythonModel(VllmModel):\n    VERSION = "{version}"\n'
    (folder / "model.py").write_text(code, encoding="utf-8")


def vllm_config(version: str) -> Any:
    """The configuration of the double of a version as Triton tells it once the model has completed it."""
    config = model_config_pb2.ModelConfig(name=vllm_model(version), backend="vllm")
    config.model_transaction_policy.decoupled = True
    for add, tensors in (
        (config.input.add, VERSIONS[version].inputs()),
        (config.output.add, VERSIONS[version].outputs()),
    ):
        for name, kind, dim in tensors:
            tensor = add(name=name, data_type=model_config_pb2.DataType.Value(f"TYPE_{kind}"), dims=[dim])
            if add == config.input.add:
                tensor.optional = name != "text_input"
    return config


def write_plain(repository: Path, name: str) -> None:
    """Write a plain text model."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    facts = PLAIN[name]
    lines = ['backend: "python"', f"max_batch_size: {facts.get('batch', 0)}"]
    lines.append(f"model_transaction_policy {{ decoupled: {str(facts['decoupled']).lower()} }}")
    for tensor, kind, optional in facts["inputs"]:
        more = " optional: true" if optional else ""
        lines.append(f'input {{ name: "{tensor}" data_type: TYPE_{kind} dims: 1{more} }}')
    for tensor, kind in (("text_output", "STRING"), *facts.get("outputs", ())):
        lines.append(f'output {{ name: "{tensor}" data_type: TYPE_{kind} dims: 1 }}')
    lines.append("instance_group { count: 1 kind: KIND_CPU }")
    (folder.parent / "config.pbtxt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "model.py").write_text(
        "from tests.doubles.text.plain_model import TritonPythonModel  # noqa: F401\n", encoding="utf-8"
    )


class TextServer(TextModelsServer):
    """A running Triton with these models; the fixture ``text_triton``.

    A test tells what they all play, and goes through the gateway::

        text_triton.play(turn("weather", text="It rains."), chunk=[1, 3])
        ... triton: {url: text_triton.grpc_url, model: vllm_model("26.01")}, tokenizer: text_triton.model_dir ...
        assert text_triton.requests()[0]["effective"]["temperature"] == 0.5
    """

    def __init__(self, folder: Path, model_dir: Path, vllm: Sequence[str], plain: Sequence[str]) -> None:
        names = [*(vllm_model(version) for version in vllm), *plain]
        super().__init__(folder, model_dir, names, auto_complete=True)
        for version in vllm:
            write_vllm(folder / "repository", version, model_dir)
        for name in plain:
            write_plain(folder / "repository", name)


def one_of_each() -> dict[str, Sequence[str]]:
    """Arguments of a server with all of them."""
    return {"vllm": tuple(VERSIONS), "plain": tuple(PLAIN)}
