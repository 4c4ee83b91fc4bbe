"""The pure engine, imported from its model folder as Triton's stub does, on the tiny model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "triton_repo" / "tensorrt_llm" / "1"))

from cpu_double.llama import Llama
from cpu_double.reference_engine import Limits, ReferenceEngine
from wire.request import Request
from wire.response import Response

MakeEngine = Callable[..., ReferenceEngine]
Generate = Callable[..., list[Response]]


@pytest.fixture(scope="session")
def tiny(tiny_model_dir: Path) -> Llama:
    return Llama(tiny_model_dir)


@pytest.fixture(scope="session")
def make_engine(tiny: Llama) -> MakeEngine:
    def make(*, normalize_log_probs: bool = False, **limits: int) -> ReferenceEngine:
        return ReferenceEngine(tiny, Limits(**{"max_seq_len": 2048, **limits}), normalize_log_probs=normalize_log_probs)

    return make


@pytest.fixture(scope="session")
def generate(make_engine: MakeEngine) -> Generate:
    """All responses to one request on an engine of its own."""

    def run(request: Request, engine: ReferenceEngine | None = None) -> list[Response]:
        engine = engine or make_engine()
        engine.submit(request)
        responses: list[Response] = []
        while engine.busy:
            responses += engine.step()
        return responses

    return run
