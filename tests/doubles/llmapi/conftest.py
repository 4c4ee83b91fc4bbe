"""A client of the doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.llmapi.server import LlmapiServer
from tests.integration.kserve import Kserve


@pytest.fixture
def client(llmapi_triton: LlmapiServer) -> Iterator[Kserve]:
    client = Kserve(llmapi_triton.grpc_url)
    yield client
    client.close()
