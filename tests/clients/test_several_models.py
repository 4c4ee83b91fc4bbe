"""One gateway, two models on two Tritons, each with a tokenizer and a template of its own; and reloads under load."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.generation import SamplingParams
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer
from gateway.triton.triton_backend import TritonBackend
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.app.scripted import write_tokenizer
from tests.engine_requests import generation_request
from tests.stack import GatewayProcess
from tests.tiny_model import write_tiny_model

TEMPLATE = "{% for m in messages %}({{ m.role }}) {{ m.content }} {% endfor %}(assistant)"
QUESTION = "say the same"
MOST = 24


@pytest.fixture(scope="module")
def other_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights, another tokenizer (bytes, without merges, other ids) and another template."""
    folder = tmp_path_factory.mktemp("other-model")
    write_tiny_model(folder, seed=5)
    (folder / "chat_template.jinja").unlink()
    return write_tokenizer(folder, TEMPLATE)


@pytest.fixture(scope="module")
def other_triton(repository: Path, other_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    log = tmp_path_factory.mktemp("other-triton") / "triton.log"
    with TritonServer(repository, model_dir=other_dir, log_path=log) as server:
        yield server


def write(file: Path, models: list[dict[str, Any]]) -> None:
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump({"server": {"reload_s": 0.1}, "models": models}))
    new.replace(file)


@pytest.fixture(scope="module")
def models(triton: Any, tiny_model_dir: Path, other_triton: TritonServer, other_dir: Path) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "aliases": aliases,
            "triton": {"url": server.grpc_url},
            "tokenizer": str(folder),
            "max_seq_len": 2048,
        }
        for name, aliases, server, folder in (
            ("one", ["first"], triton, tiny_model_dir),
            ("two", [], other_triton, other_dir),
        )
    ]


@pytest.fixture
def gateway(models: list[dict[str, Any]], tmp_path: Path) -> Iterator[GatewayProcess]:
    write(tmp_path / "gateway.yaml", models)
    with GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(tmp_path / "gateway.yaml")) as process:
        yield process


def prompts(tiny: Path, other: Path) -> dict[str, tuple[Tokenizer, str]]:
    return {
        "one": (
            Tokenizer.from_folder(tiny),
            f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
        ),
        "two": (Tokenizer.from_folder(other), f"(user) {QUESTION} (assistant)"),
    }


async def answer_of_the_engine(url: str, tokenizer: Tokenizer, text: str) -> tuple[int, str]:
    """Prompt length and greedy text, asked of the engine itself with token ids."""
    ids = tokenizer.encode(text)
    async with TritonBackend(url, "tensorrt_llm") as backend:
        await backend.wait_ready(20)
        request = generation_request(
            "reference",
            prompt=Prompt(text=text, ids=tuple(ids)),
            max_tokens=MOST,
            params=SamplingParams(temperature=0.0),
            end_ids=tuple(tokenizer.eos_ids),
        )
        said = [index async for chunk in backend.engine.generate(request) for index in chunk.ids]
    return len(ids), tokenizer.decode([index for index in said if index not in tokenizer.eos_ids])


def body(model: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": QUESTION}]
    return {"model": model, "messages": messages, "temperature": 0, "max_tokens": MOST, **more}


async def test_each_model_has_its_own_tokenizer_and_template(
    gateway: GatewayProcess, triton: Any, other_triton: TritonServer, tiny_model_dir: Path, other_dir: Path
) -> None:
    urls = {"one": triton.grpc_url, "two": other_triton.grpc_url}
    expected = {
        name: await answer_of_the_engine(urls[name], tokenizer, text)
        for name, (tokenizer, text) in prompts(tiny_model_dir, other_dir).items()
    }
    assert expected["one"] != expected["two"]
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        listed = (await client.get("/v1/models")).json()["data"]
        assert [entry["id"] for entry in listed] == ["one", "first", "two"]
        names = ["one", "two", "first", "two"] * 4
        answers = await asyncio.gather(*(client.post("/v1/chat/completions", json=body(name)) for name in names))
    for name, answer in zip(names, answers, strict=True):
        own = "two" if name == "two" else "one"
        said = answer.json()
        assert said["model"] == own
        assert (said["usage"]["prompt_tokens"], said["choices"][0]["message"]["content"]) == expected[own]


async def stream(client: httpx.AsyncClient, model: str) -> str:
    """The text of a streamed answer, which must be whole."""
    text = ""
    async with client.stream("POST", "/v1/chat/completions", json=body(model, stream=True)) as answer:
        assert answer.status_code == 200, await answer.aread()
        events = [line.removeprefix("data: ") async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        chunk = json.loads(event)
        assert "error" not in chunk
        text += chunk["choices"][0]["delta"].get("content") or ""
    return text


async def test_a_reload_under_load_loses_no_stream(
    gateway: GatewayProcess, models: list[dict[str, Any]], tmp_path: Path
) -> None:
    over = asyncio.Event()

    async def keep_asking(model: str) -> int:
        count = 0
        while not over.is_set():
            assert await stream(client, model) == texts[model]
            count += 1
        return count

    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        texts = {name: await stream(client, name) for name in ("one", "two")}
        asking = [asyncio.create_task(keep_asking(name)) for name in ("one", "two") * 3]
        for count in range(1, 4):
            write(tmp_path / "gateway.yaml", [{**model, "max_stops": 4 + count} for model in models])
            await reloads(client, "applied", count)
        (tmp_path / "gateway.yaml").write_text("models: nonsense")
        await reloads(client, "refused", 1)
        over.set()
        assert min(await asyncio.gather(*asking)) > 0


async def reloads(client: httpx.AsyncClient, outcome: str, count: int) -> None:
    """Wait until there were so many."""
    line = f'gateway_settings_reloads_total{{outcome="{outcome}"}} {count}.0'
    end = time.monotonic() + 30
    while line not in (await client.get("/metrics")).text.splitlines():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


async def test_a_model_that_is_taken_away_ends_its_streams(
    gateway: GatewayProcess, models: list[dict[str, Any]], tmp_path: Path
) -> None:
    # Greedy on this model with this prompt runs to its limit.
    long = body("one", stream=True, max_tokens=1800) | {"messages": [{"role": "user", "content": "go on"}]}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        async with client.stream("POST", "/v1/chat/completions", json=long) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            write(tmp_path / "gateway.yaml", models[1:])
            await reloads(client, "applied", 1)
            assert (await client.post("/v1/chat/completions", json=body("one"))).status_code == 404
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        end = time.monotonic() + 30
        while not any("the previous version is closed" in line for line in gateway.log_lines()):
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
