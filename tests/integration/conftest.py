"""What the tests on the real Triton share beyond its servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kserve import Kserve
from openai import OpenAI
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess


@pytest.fixture
def kserve(triton: TritonServer) -> Iterator[Kserve]:
    """A gRPC client of ``triton``."""
    client = Kserve(triton.grpc_url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    """The tiny model's."""
    return Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))


@pytest.fixture(scope="session")
def greeting(tokenizer: Tokenizer) -> list[int]:
    """Ids of "Grüße 你好 🙂"; the last four are the bytes of the emoji."""
    return list(tokenizer.encode("Grüße 你好 🙂").ids)


@pytest.fixture(scope="module")
def client(gateway: GatewayProcess) -> Iterator[OpenAI]:
    """The SDK at a module's gateway."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="unused", max_retries=0, timeout=60) as sdk:
        yield sdk
