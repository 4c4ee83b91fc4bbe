"""One encoder of each kind, some of them in a Triton, and the gateway before them, in process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.app import create_app
from gateway.generation.encoder import EncoderParams
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.settings import Settings
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from tests.doubles.encoders.encoder_server import ROWS, EncoderServer, write_tokenizer


@dataclass
class EncoderGateway:
    """A running application before encoders.

    Attributes:
        app: the application.
        client: an HTTP client of it.
    """

    app: Any
    client: httpx.AsyncClient

    async def embed(self, model: str, given: Any, **body: Any) -> httpx.Response:
        """A request for embeddings."""
        return await self.client.post("/v1/embeddings", json={"model": model, "input": given, **body})

    async def vectors(self, model: str, given: Any, **body: Any) -> Any:
        """The vectors of a request that succeeds, in the order of their ``index``."""
        answer = await self.embed(model, given, **body)
        assert answer.status_code == 200, answer.text
        data = answer.json()["data"]
        assert [each["index"] for each in data] == list(range(len(data)))
        return np.array([each["embedding"] for each in data])

    async def score(self, model: str, pairs: Sequence[tuple[str, str | None]]) -> EncoderResult:
        """The scores of pairs, or of texts, as the endpoints of other tasks ask for them."""
        served = self.app.state.registry.get(model)
        assert isinstance(served, EncoderModel)
        inputs = [EncoderInput(*pair) for pair in pairs]
        return await served.encode(inputs, EncoderParams(), "req", time.perf_counter())


@contextlib.asynccontextmanager
async def serving(*models: dict[str, Any], **sections: Any) -> AsyncIterator[EncoderGateway]:
    """The application with these models."""
    app = create_app(Settings.model_validate({"models": models, **sections}))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client,
    ):
        await app.state.registry.wait_ready()
        yield EncoderGateway(app, client)


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of the encoders: each byte is a token."""
    return write_tokenizer(tmp_path_factory.mktemp("encoder-tokenizer"))


_REAL = ("nim", "vllm", "ensemble", "bert")


@pytest.fixture(scope="session", params=["some in Triton", pytest.param("all in Triton", marks=pytest.mark.long)])
def _encoders(
    request: pytest.FixtureRequest, encoder_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EncoderServer]:
    real = _REAL if request.param == "some in Triton" else tuple(ROWS)
    scripted = [name for name in ROWS if name not in real]
    with EncoderServer(tmp_path_factory.mktemp("encoders"), encoder_folder, real, scripted) as server:
        yield server


@pytest.fixture
def encoders(_encoders: EncoderServer) -> EncoderServer:
    """One running encoder of each kind, all of them well; a short run has those in Triton that differ most."""
    _encoders.forget()
    return _encoders
