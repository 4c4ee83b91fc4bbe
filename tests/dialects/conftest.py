"""The gateway before all doubles, once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dialects.bench import Bench
from tests.dialects.dialects import DIALECTS, Dialect, parameters
from tests.doubles.llmapi.server import LlmapiServer
from tests.doubles.stock.server import StockServer
from tests.doubles.text.text_server import TextServer


@pytest.fixture(scope="session")
def bench(
    request: pytest.FixtureRequest,
    stock_triton: StockServer,
    llmapi_triton: LlmapiServer,
    text_triton: TextServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    """A running gateway that serves every dialect that the selected tests are about: a double takes seconds to load."""
    specs = (item.callspec for item in request.session.items if hasattr(item, "callspec"))
    names = {spec.params["dialect"].name for spec in specs if "dialect" in spec.params}
    served = [dialect for dialect in DIALECTS if dialect.name in names]
    with Bench(tmp_path_factory.mktemp("dialects"), stock_triton, llmapi_triton, text_triton, served) as running:
        yield running


@pytest.fixture(params=parameters(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each dialect in its turn."""
    found: Dialect = request.param
    return found
