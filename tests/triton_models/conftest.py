"""The helper modules of the model folders, loaded by path as Triton's stub would find them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2] / "triton_repo"


def _load(model: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / model / "1" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pre() -> ModuleType:
    return _load("preprocessing", "text_to_tokens")


@pytest.fixture(scope="session")
def post() -> ModuleType:
    return _load("postprocessing", "tokens_to_text")


@pytest.fixture(scope="session")
def speculation() -> ModuleType:
    return _load("tensorrt_llm_bls", "speculation")


@pytest.fixture(scope="session")
def bert() -> ModuleType:
    return _load("embedding", "bert_encoder")


@pytest.fixture(scope="session")
def texts(bert: ModuleType) -> ModuleType:
    return _load("embedding", "texts_to_tokens")
