"""A Triton of the test process that has loaded a repository, and what a gateway would say that is pointed at it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.generation.engine import EngineFeatures
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.discovery import discover
from gateway.triton.triton_client import ModelState
from gateway_ops.check.findings import Severity, loss_findings, sentence
from gateway_ops.check.repository import check_repository
from gateway_ops.check.repository.models import LLMAPI, Models, stock_model
from gateway_ops.check.repository.serving import check_serving, entries, gateway_views
from gateway_ops.repository.model_folders import read_repository
from tests.triton.scripted_triton import text, tokens

_POINTED_AT = ("ensemble", "tensorrt_llm", "tensorrt_llm_bls", LLMAPI)


class ConfiguredTriton:
    """Answers what `TritonClient` asks; its engines answer every request with a token."""

    def __init__(self, models: Models) -> None:
        self.configs: dict[str, Any] = {}
        for name, view in gateway_views(models).items():
            config = model_config_pb2.ModelConfig()
            config.CopyFrom(models[name].config)
            config.name = name
            config.model_transaction_policy.decoupled = view.decoupled
            self.configs[name] = config

    async def model_ready(self, model: str) -> bool:
        return model in self.configs

    async def model_config(self, model: str) -> Any:
        return self.configs[model]

    async def completed(self, _model: str) -> int:
        return 0

    async def repository(self) -> dict[str, ModelState]:
        return dict.fromkeys(self.configs, ModelState(ready=True, words="READY"))

    @property
    def name(self) -> str:
        return "configured"

    def infer(self, request: Any, *, timeout: float, traceparent: str | None = None) -> _Call:
        del timeout, traceparent
        takes_ids = any(tensor.name == "input_ids" for tensor in request.inputs)
        return _Call(tokens(7, final=True) if takes_ids else text(b"a", final=True))


class _Call:
    tap = None
    ended = False

    def __init__(self, response: service_pb2.ModelStreamInferResponse) -> None:
        self._left = [response.SerializeToString()]

    async def read(self) -> bytes | None:
        return self._left.pop() if self._left else None

    def cancel(self) -> None:
        self._left.clear()


def discovered(models: Models, name: str) -> EngineFeatures | DiscoveryError:
    """What a gateway discovers that is pointed at a model, or why it does not serve it."""
    triton: Any = ConfiguredTriton(models)
    try:
        return asyncio.run(discover(triton, Connection(triton), name, "auto")).engine.features
    except DiscoveryError as error:
        return error


def agree(folder: Path) -> dict[str, str | None]:
    """Hold the findings on a repository against what a gateway says of each model that it could be pointed at.

    Returns:
        Why each of these models is refused, None where it is served.
    """
    models = {name: model for name, model in read_repository(folder).items() if model.config is not None}
    if any(model.unfilled for model in models.values()):
        return {}  # which Triton cannot load
    judged = entries(models, gateway_views(models))
    found = {(finding.severity, finding.what) for finding in check_serving(models)}
    verdicts: dict[str, str | None] = {}
    for name in [name for name, model in models.items() if stock_model(model) in _POINTED_AT]:
        said = discovered(models, name)
        if isinstance(said, EngineFeatures):
            verdicts[name] = None
            assert {(each.severity, each.what) for each in loss_findings("", said.losses)} <= found
        else:
            verdicts[name] = str(said)
            errors = {
                (each.severity, each.what) for each in check_repository(folder) if each.severity is Severity.ERROR
            }
            assert (Severity.ERROR, sentence(str(said))) in errors if name in judged else errors
    refusals = {sentence(reason) for reason in verdicts.values() if reason is not None}
    assert {what for how, what in found if how is Severity.ERROR} <= refusals
    return verdicts
