"""The gateway before all doubles, once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dialects.bench import Bench
from tests.dialects.dialects import DIALECTS, Dialect
from tests.doubles.llmapi.server import LlmapiServer
from tests.doubles.stock.server import StockServer


@pytest.fixture(scope="session")
def bench(
    stock_triton: StockServer, llmapi_triton: LlmapiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """A running gateway that serves every dialect."""
    with Bench(tmp_path_factory.mktemp("dialects"), stock_triton, llmapi_triton) as running:
        yield running


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each dialect in its turn."""
    found: Dialect = request.param
    return found
