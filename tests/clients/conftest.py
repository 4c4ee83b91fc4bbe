"""The running stack, once by each path to the engine: SmolLM2 where content matters, else the tiny model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from gateway_ops.local_stack.minilm import ensure_embedding_folder
from gateway_ops.local_stack.stack import embedding_entry
from tests.stack import GatewayProcess, strict_client

MODEL = "smollm2-135m-instruct"
MAX_SEQ_LEN = 1024
TINY = "tiny"
TINY_MAX_SEQ_LEN = 2048
PATHS = ("tokens", "ensemble")
BY_BOTH_PATHS = pytest.mark.parametrize("gateway", PATHS, indirect=True)
"""For a test that asks SmolLM2 by both paths in each run; of the others those by the ensemble are long."""


@pytest.fixture(scope="session", params=["tokens", pytest.param("ensemble", marks=pytest.mark.long)])
def gateway(
    request: pytest.FixtureRequest, triton_smollm2: Any, smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """The gateway over SmolLM2 in the real Triton; the whole client suite runs by both paths."""
    with GatewayProcess.of_model(
        tmp_path_factory.mktemp("gateway") / "log",
        MODEL,
        triton_smollm2.grpc_url,
        smollm2_dir,
        MAX_SEQ_LEN,
        GATEWAY_PATH=request.param,
    ) as process:
        yield process


@pytest.fixture(scope="session")
def tiny_gateways(
    triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, GatewayProcess]]:
    """Two gateways over the tiny model in the real Triton, one for each path."""
    with contextlib.ExitStack() as stack:
        yield {
            path: stack.enter_context(
                GatewayProcess.of_model(
                    tmp_path_factory.mktemp("tiny-gateway") / "log",
                    TINY,
                    triton.grpc_url,
                    tiny_model_dir,
                    TINY_MAX_SEQ_LEN,
                    GATEWAY_PATH=path,
                )
            )
            for path in PATHS
        }


@pytest.fixture(params=PATHS)
def tiny_gateway(request: pytest.FixtureRequest, tiny_gateways: dict[str, GatewayProcess]) -> GatewayProcess:
    """One of them."""
    return tiny_gateways[request.param]


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[OpenAI]:
    """The SDK, refusing whatever does not validate strictly."""
    with strict_client(gateway.url) as sdk:
        yield sdk


@pytest.fixture
def tiny(tiny_gateway: GatewayProcess) -> Iterator[OpenAI]:
    """The same at one of the tiny gateways."""
    with strict_client(tiny_gateway.url) as sdk:
        yield sdk


@pytest.fixture(scope="session")
def encoder_gateway(
    triton_smollm2: Any, smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """The gateway over SmolLM2 and all-MiniLM-L6-v2, as ``gateway up`` serves them."""
    folder = tmp_path_factory.mktemp("encoders")
    chat = {"url": triton_smollm2.grpc_url, "model": "ensemble"}
    models = [
        embedding_entry(ensure_embedding_folder(), triton_smollm2.grpc_url),
        {"name": MODEL, "triton": chat, "tokenizer": str(smollm2_dir), "max_seq_len": MAX_SEQ_LEN},
    ]
    with GatewayProcess(folder / "log", {"models": models}) as process:
        yield process
