"""A real Triton with doubles of the vLLM backend's model and of plain text models, and what tests tell them to play."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tritonclient.grpc import model_config_pb2

from tests.doubles.llmapi.server import ROOT, AskingServer
from tests.doubles.text.vllm_sampling import VERSIONS

MAX_MODEL_LEN = 1024
ADAPTER = "pirate"

_TEXT = (("text_input", "STRING", False),)
_SAMPLED = (("max_tokens", "INT32", True), ("temperature", "FP32", True), ("seed", "UINT64", True))
PLAIN: Mapping[str, dict[str, Any]] = {
    "plain_stream": {"decoupled": True, "inputs": (*_TEXT, *_SAMPLED)},
    "plain_whole": {"decoupled": False, "batch": 4, "inputs": _TEXT},
    "plain_counts": {
        "decoupled": True,
        "inputs": (*_TEXT, *_SAMPLED),
        "outputs": (("finish_reason", "STRING"), ("num_input_tokens", "INT32"), ("num_output_tokens", "INT32")),
    },
    "plain_picky": {"decoupled": True, "inputs": (*_TEXT, ("persona", "STRING", False))},
}
"""Plain text models by name: whether they are decoupled, and their inputs with types, and whether they are optional."""


def vllm_model(version: str) -> str:
    """The name of the double of a version of the vLLM backend."""
    return f"vllm_{version.replace('.', '_')}"


def write_vllm(repository: Path, version: str, model_dir: Path, name: str | None = None) -> None:
    """Write a model of the vLLM backend as upstream's sample is: no tensors in its configuration, and model.json."""
    folder = repository / (name or vllm_model(version)) / "1"
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


class TextServer:
    """A running Triton with these models; the fixture ``text_triton``.

    A test tells what they all play, and goes through the gateway::

        text_triton.play(turn("weather", text="It rains."), chunk=[1, 3])
        ... triton: {url: text_triton.grpc_url, model: vllm_model("26.01")}, tokenizer: text_triton.model_dir ...
        assert text_triton.requests()[0]["effective"]["temperature"] == 0.5

    What a turn may say is in `text_script` and `plain_model`.

    Args:
        folder: for the repository, the script and the logs.
        model_dir: the folder with the tokenizer of all models.
        vllm: versions of the vLLM backend.
        plain: plain text models.

    Attributes:
        model_dir: the same.
        tokenizer: of that folder.
        triton: the server.
    """

    def __init__(self, folder: Path, model_dir: Path, vllm: Sequence[str], plain: Sequence[str]) -> None:
        self.model_dir = model_dir
        self.tokenizer: Tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
        self._script, self._journal = folder / "script.json", folder / "journal"
        self._names = [*(vllm_model(version) for version in vllm), *plain]
        for version in vllm:
            write_vllm(folder / "repository", version, model_dir)
        for name in plain:
            write_plain(folder / "repository", name)
        self.triton = AskingServer(
            folder / "repository",
            model_dir=model_dir,
            engine=None,
            env={"PYTHONPATH": str(ROOT), "SCRIPT_FILE": str(self._script), "JOURNAL_FILE": str(self._journal)},
            log_path=folder / "triton.log",
        )
        self.play()

    def __enter__(self) -> TextServer:
        self.triton.start()
        self.triton.wait_ready(self._names)
        return self

    def __exit__(self, *_exc: object) -> None:
        self.triton.kill()

    @property
    def grpc_url(self) -> str:
        """Where the gateway finds it."""
        return self.triton.grpc_url

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, special ones where it spells them."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def play(self, *turns: dict[str, Any], chunk: int | Sequence[int] = 1) -> None:
        """Replace the script, and begin a new journal; answers that stand still end."""
        chunks = chunk if isinstance(chunk, int) else list(chunk)
        fresh = self._script.with_suffix(".new")
        fresh.write_text(json.dumps({"chunk": chunks, "turns": turns}), encoding="utf-8")
        self._journal.unlink(missing_ok=True)
        os.replace(fresh, self._script)  # noqa: PTH105 - a model never sees half a script

    def requests(self) -> list[dict[str, Any]]:
        """What the models were asked since the last `play`, in the order of arrival, without probes.

        Each has ``id``, ``model`` and ``inputs`` as they came. Of the vLLM backend also ``prompt`` (decoded, with
        special tokens), ``prompt_ids``, ``max_tokens``, ``effective`` (sampling parameters as vLLM follows them),
        ``generated`` (tokens but the one that ended it), ``finish``, ``ended`` and ``tokens`` at its end, ``error``.
        """
        merged: dict[str, dict[str, Any]] = {}
        lines = self._journal.read_text(encoding="utf-8").splitlines() if self._journal.exists() else []
        for entry in map(json.loads, lines):
            merged.setdefault(entry.pop("key"), {}).update(entry)
        return [entry for entry in merged.values() if not entry.get("id", "probe-").startswith("probe-")]


def one_of_each() -> dict[str, Sequence[str]]:
    """Arguments of a server with all of them."""
    return {"vllm": tuple(VERSIONS), "plain": tuple(PLAIN)}
