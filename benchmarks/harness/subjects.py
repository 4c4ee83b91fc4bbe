"""The subjects of measurements: the naive gateway, and this one on each dialect and transport."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway_ops.local_stack.smollm2 import ensure_model_folder

from .processes import BUILT, ROOT, Child, SyntheticTriton, free_port

Dialect = Literal["tokens", "text", "ensemble"]
KEY = "sk-benchmark"
PROMPT = " ".join(["word"] * 180)  # about 200 tokens with the template
_CONTEXT = 131072
_TEMPLATE = ROOT / "chat_templates" / "hermes.jinja"
_TEXT_ONLY = "ensemble_text"  # an ensemble as NVIDIA's, whose answers carry no token ids
_IDS = ("output_ids", "sequence_length")
_TRITON_MODEL = {"tokens": "ensemble", "text": _TEXT_ONLY, "ensemble": "ensemble"}


@dataclass(frozen=True)
class Subject:
    """A gateway to measure.

    Attributes:
        kind: ``naive`` or ``gateway``.
        dialect: ``tokens`` to the engine step, ``text`` to an ensemble without token ids, ``ensemble`` to one with.
        transport: of the gateway; empty for the naive one.
    """

    kind: Literal["naive", "gateway"]
    dialect: Dialect
    transport: str = ""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return " ".join(filter(None, (self.kind, self.dialect, self.transport)))


def transports() -> tuple[str, list[str]]:
    """The transport that the default, ``auto``, comes to here, and all that are measured."""
    return "h2", ["grpcio", "h2"]


def tokenizer_folder() -> Path:
    """The model folder whose tokenizer and template all gateways use: ``BENCH_TOKENIZER``, else SmolLM2's."""
    if given := os.environ.get("BENCH_TOKENIZER"):
        return Path(given)
    return ensure_model_folder(lambda text: print(text, file=sys.stderr))


def write_repository() -> Path:
    """The repository that the synthetic Triton describes: ours, and an ensemble whose answers have no token ids."""
    folder = BUILT / "repository"
    for config in (ROOT / "triton_repo").glob("*/config.pbtxt"):
        _write(folder, config.parent.name, config.read_text())
    ensemble = model_config_pb2.ModelConfig()
    text_format.Parse((ROOT / "triton_repo" / "ensemble" / "config.pbtxt").read_text(), ensemble)
    ensemble.name = _TEXT_ONLY
    shown = [output for output in ensemble.output if output.name not in _IDS]
    del ensemble.output[:]
    ensemble.output.extend(shown)
    for step in ensemble.ensemble_scheduling.step:  # still what the steps exchange, under another name
        for tensors in (step.input_map, step.output_map):
            for key, tensor in tensors.items():
                if tensor in _IDS:
                    tensors[key] = f"_{tensor}"
    _write(folder, _TEXT_ONLY, text_format.MessageToString(ensemble))
    return folder


def _write(folder: Path, model: str, config: str) -> None:
    (folder / model).mkdir(parents=True, exist_ok=True)
    (folder / model / "config.pbtxt").write_text(config)


def start(subject: Subject, triton: SyntheticTriton, **server: Any) -> Child:
    """Start a gateway and wait until it serves.

    Args:
        subject: a gateway.
        triton: its Triton.
        server: changes of its section, and ``workers``.

    Raises:
        BenchmarkError: it did not start.
    """
    port = free_port()
    if subject.kind == "naive":
        child = Child(
            subject.name.replace(" ", "-"),
            [sys.executable, "-m", "uvicorn", "naive:app", "--port", str(port), "--no-access-log", "--backlog", "2048"],
            port,
            env={
                "TRITON": f"127.0.0.1:{triton.port}",
                "MODE": "tokens" if subject.dialect == "tokens" else "text",
                "TOKENIZER": str(tokenizer_folder() / "tokenizer.json"),
            },
            cwd=ROOT / "benchmarks",
        )
        child.wait_http("/openapi.json")
        return child
    child = launch(subject, triton, port, **server)
    child.wait_http("/health/ready")
    return child


def settings_file(
    subject: Subject,
    triton: SyntheticTriton,
    port: int,
    *,
    label: str = "",
    families: Sequence[str] = (),
    model: Mapping[str, Any] | None = None,
    sections: Mapping[str, Any] | None = None,
    more_models: Sequence[Mapping[str, Any]] = (),
    **server: Any,
) -> Path:
    """Write the settings of a gateway: API key, metrics and access log on.

    Args:
        subject: a gateway.
        triton: its Triton.
        port: its port.
        label: for a second gateway of this subject, as each looks after its own file.
        model: more settings of the model.
        sections: further sections.
        more_models: further models.
        families: of further models ``bench-FAMILY``, on the same Triton model and with a template that takes tools.
        server: more settings of the section ``server``.
    """
    served: dict[str, Any] = {
        "name": "bench",
        "triton": {"url": f"127.0.0.1:{triton.port}", "model": _TRITON_MODEL[subject.dialect]},
        "path": "tokens" if subject.dialect == "tokens" else "ensemble",
        "tokenizer": str(tokenizer_folder()),
        "max_seq_len": _CONTEXT,
        "tokens_per_block": 32,
        **(model or {}),
    }
    if subject.dialect == "text":
        served["text_streaming"] = "lossy"  # a stream of what Triton sends, as the naive gateway's
    served["triton"]["transport"] = subject.transport
    settings: dict[str, Any] = {
        "server": {"port": port, "api_keys": [KEY], "lame_duck_s": 0, **server},
        "models": [served, *more_models],
    }
    settings |= sections or {}
    for family in families:
        settings["models"].append({**served, "name": f"bench-{family}", "family": family, "template": str(_TEMPLATE)})
    file = BUILT / f"{' '.join(filter(None, (subject.name, label))).replace(' ', '-')}.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


def launch(subject: Subject, triton: SyntheticTriton, port: int, **server: Any) -> Child:
    """Start ``gateway serve``; returns at once."""
    arguments = [f"--workers={server.pop('workers')}"] if "workers" in server else []
    file = settings_file(subject, triton, port, **server)
    return Child(
        file.stem,
        [sys.executable, "-m", "gateway_ops.cli", "serve", *arguments],
        port,
        env={"GATEWAY_CONFIG": str(file)},
    )


def body(max_tokens: int, prompt: str = "Hello", **fields: Any) -> Path:
    """Write a streamed chat request with usage to a file for the load generator."""
    request = {
        "model": "bench",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **fields,
    }
    return _written(request)


def responses_body(max_tokens: int, prompt: str = "Hello", **fields: Any) -> Path:
    """Write a streamed Responses request to a file for the load generator."""
    return _written({"model": "bench", "input": prompt, "max_output_tokens": max_tokens, "stream": True, **fields})


def messages_body(max_tokens: int, prompt: str = "Hello", **fields: Any) -> Path:
    """Write a streamed Messages request to a file for the load generator."""
    asked = [{"role": "user", "content": prompt}]
    return _written({"model": "bench", "messages": asked, "max_tokens": max_tokens, "stream": True, **fields})


def _written(request: dict[str, Any]) -> Path:
    file = BUILT / "body.json"
    file.write_text(json.dumps(request))
    return file
