"""What the tests on the real Triton share beyond its servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kserve import Kserve
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer


@pytest.fixture
def kserve(triton: TritonServer) -> Iterator[Kserve]:
    """A gRPC client of ``triton``."""
    client = Kserve(triton.grpc_url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def greeting(tiny_model_dir: Path) -> list[int]:
    """Ids of "Grüße 你好 🙂"; the last four are the bytes of the emoji."""
    return list(Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json")).encode("Grüße 你好 🙂").ids)
