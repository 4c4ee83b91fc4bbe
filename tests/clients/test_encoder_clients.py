"""Embeddings by OpenAI's SDK, LangChain and plain HTTP, over all-MiniLM-L6-v2 in the real Triton."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, AzureOpenAI, OpenAI

from gateway_ops.bench.exchange import first_model
from gateway_ops.bench.load import open_session
from gateway_ops.chat.chat_server import ChatServer
from gateway_ops.compare.targets import TargetAddress, find_target
from gateway_ops.local_stack.minilm import EMBEDDING_MODEL
from tests.clients.conftest import MODEL
from tests.clients.test_readme import ADDRESS, ROOT, blocks, run
from tests.doubles.encoders.encoder_server import EncoderServer, write_tokenizer
from tests.lazy_module import LazyModule
from tests.stack import GatewayProcess

if TYPE_CHECKING:
    import langchain_openai
else:
    langchain_openai = LazyModule("langchain_openai")

TEXTS = ["The port is 9000.", "Paris is a city in France.", "A third text"]


def _options(gateway: GatewayProcess) -> dict[str, Any]:
    return {"base_url": f"{gateway.url}/v1", "api_key": "unused", "max_retries": 0}


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_the_sdk_gets_vectors_and_usage(encoder_gateway: GatewayProcess) -> None:
    with OpenAI(**_options(encoder_gateway)) as client:
        found = client.embeddings.create(model="embedding", input=TEXTS)  # which asks for base64
        assert [each.index for each in found.data] == [0, 1, 2]
        assert found.usage.prompt_tokens == found.usage.total_tokens == 8 + 9 + 5
        strict = client.with_options(_extra_kwargs={"_strict_response_validation": True})
        floats = strict.embeddings.create(model="embedding", input=TEXTS, encoding_format="float")
        bits, shown = ([np.array(each.embedding, np.float32).tolist() for each in one.data] for one in (found, floats))
        assert bits == shown
        assert all(math.isclose(_cosine(each.embedding, each.embedding), 1, rel_tol=1e-6) for each in found.data)
        with pytest.raises(openai.BadRequestError, match=f"Models for it: '{MODEL}'"):
            client.chat.completions.create(model="embedding", messages=[{"role": "user", "content": "Hi"}])
        assert [each.id for each in client.models.list()] == [MODEL, EMBEDDING_MODEL, "embedding"]


def test_texts_of_other_lengths_have_the_vectors_of_an_independent_implementation(
    encoder_gateway: GatewayProcess,
) -> None:
    """All of one request, the longest first; see record_minilm.py."""
    recorded = json.loads((ROOT / "tests/triton_models/minilm.json").read_text())
    recorded.sort(key=lambda each: -each["tokens"])
    with OpenAI(**_options(encoder_gateway)) as client:
        found = client.embeddings.create(model="embedding", input=[each["text"] for each in recorded])
    assert found.usage.prompt_tokens == sum(each["tokens"] for each in recorded)
    vectors = [each.embedding for each in found.data]
    np.testing.assert_allclose(vectors, [each["vector"] for each in recorded], atol=1e-5, rtol=0)


async def test_the_asynchronous_sdk_and_azures_get_the_same(encoder_gateway: GatewayProcess) -> None:
    async with AsyncOpenAI(**_options(encoder_gateway)) as client:
        found = await client.embeddings.create(model="embedding", input=TEXTS[0])
    azure = AzureOpenAI(azure_endpoint=encoder_gateway.url, api_key="unused", api_version="2026-01-01", max_retries=0)
    with azure as client:
        assert client.embeddings.create(model="embedding", input=TEXTS[0]).data == found.data


def test_langchain_finds_the_closest_text(encoder_gateway: GatewayProcess) -> None:
    options: dict[str, Any] = {"model": "embedding", "base_url": f"{encoder_gateway.url}/v1", "api_key": "unused"}
    embeddings = langchain_openai.OpenAIEmbeddings(check_embedding_ctx_length=False, **options)
    first, other, _ = embeddings.embed_documents(TEXTS)
    asked = embeddings.embed_query("Which port is it?")
    assert _cosine(asked, first) > _cosine(asked, other)


def test_llamaindex_sends_texts_by_the_sdk(encoder_gateway: GatewayProcess) -> None:
    """Its ``OpenAILikeEmbedding`` sends ten texts a request, and those of a query as a list of one."""
    with OpenAI(**_options(encoder_gateway)) as client:
        ten = client.embeddings.create(input=TEXTS * 3 + TEXTS[:1], model="embedding").data
        query = client.embeddings.create(input=[TEXTS[0]], model="embedding").data
    assert [len(each.embedding) for each in ten] == [384] * 10
    assert _cosine(ten[9].embedding, query[0].embedding) == pytest.approx(1, abs=1e-5)


def test_programs_that_write_their_own_requests(encoder_gateway: GatewayProcess) -> None:
    """Open WebUI, with the headers that it forwards, and LiteLLM before the gateway, which sends a null."""
    about = {f"X-OpenWebUI-User-{name}": "someone" for name in ("Name", "Id", "Email", "Role")}
    body: dict[str, Any] = {"input": TEXTS, "model": "embedding"}
    about["Authorization"] = "Bearer unused"
    with httpx.Client(base_url=f"{encoder_gateway.url}/v1", timeout=30) as client:
        of_page = client.post("/embeddings", json=body, headers=about)
        before = client.post("/embeddings", json={**body, "encoding_format": None, "user": None})
    assert (of_page.status_code, "x-ignored-parameters" in of_page.headers) == (200, False)
    assert [len(each["embedding"]) for each in of_page.json()["data"]] == [384] * len(TEXTS)
    assert before.json() == of_page.json()


PAGE = "docs/reference/embeddings.md"


def test_what_the_page_shows_runs(tmp_path: Path) -> None:
    """Its programs and commands as they stand; only addresses and names of the operator's differ."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    with EncoderServer(tmp_path / "encoders", tokenizer, scripted=["several", "cross"]) as server:
        server.forget()
        models = [server.model(row) | {"name": name} for row, name in (("several", "embedding"), ("cross", "reranker"))]
        (tmp_path / "gateway.yaml").write_text(json.dumps({"models": models}))  # which is YAML, too
        with GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(tmp_path / "gateway.yaml")) as gateway:
            of_sdk, of_langchain = (each.replace(ADDRESS, gateway.url) for each in blocks("python", PAGE))
            rerank, check = (each.replace(ADDRESS, gateway.url) for each in blocks("sh", PAGE))
            assert run([sys.executable, "-c", of_sdk]).split()[::2] == ["4", "1"]
            server.forget()
            assert run([sys.executable, "-c", of_langchain]).count("\n") == 1
            texts = [text for each in server.requests("several") for (text,) in each["inputs"]["INPUT_TEXT"][1]]
            assert [text.partition(":")[0] for text in texts] == ["passage"] * 3 + ["query"]
            assert len(json.loads(run(["sh", "-c", rerank]))["results"]) == 1
            folder, address = "/models/multilingual-e5-large", server.url("several")
            for shown, own in ((folder, str(tokenizer)), ("triton:8001", address), (" e5", " several")):
                check = check.replace(shown, own)
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            out = run(["sh", "-c", check], env={**os.environ, "PATH": path})
    assert "task: embed" in out


async def test_commands_take_the_model_that_generates(encoder_gateway: GatewayProcess) -> None:
    assert ChatServer(encoder_gateway.url, None, 20).names() == [MODEL]
    async with open_session(None) as session:
        assert await first_model(session, f"{encoder_gateway.url}/v1/models", 20) == MODEL
        target = await find_target(TargetAddress("A", encoder_gateway.url, None), session, 20)
    assert target.model == MODEL
