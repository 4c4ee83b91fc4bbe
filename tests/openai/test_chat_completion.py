"""Chats: whole answers with options and defaults, and streams with their errors, silence and clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.generation import Capability, EngineChunk, EngineError, EngineFeatures, ErrorKind
from tests.app.harness import USER, Gateway, gateway
from tests.app.scripted import MODEL, TOKENS, ByteIds, chunks, write_tokenizer


def checked(body: dict[str, Any]) -> ChatCompletion:
    """The body, with OpenAI's fields at each level, vLLM's stop_reason, and no others."""
    assert set(body) == {"id", "object", "created", "model", "choices", "usage"}
    assert set(body["choices"][0]) == {"index", "message", "logprobs", "finish_reason", "stop_reason"}
    # An engine that tells nothing of its cache.
    assert set(body["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"}
    return ChatCompletion.model_validate(body, strict=True)


async def test_a_developer_message_keeps_its_role_where_the_template_knows_it(tmp_path: Path) -> None:
    own = write_tokenizer(
        tmp_path,
        "{% for m in messages %}{% if m.role not in ['developer', 'user', 'assistant'] %}{{ raise_exception('No.') }}"
        "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    )
    async with gateway(own) as running:
        await running.chat(messages=[{"role": "developer", "content": "x"}])
        assert running.engine.requests[0].prompt.text.startswith("<|im_start|>developer\nx")


async def test_surplus_tokens_after_a_stop_are_counted_apart(folder: Path) -> None:
    ids = ByteIds(folder)
    async with gateway(folder, lambda _: [EngineChunk(ids=ids.of("a.bcd"), final=True)]) as running:
        completion = checked((await running.chat(stop=".")).json())
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 2
        metrics = (await running.client.get("/metrics")).text
        assert 'gateway_surplus_tokens_total{model="scripted"} 3.0' in metrics


async def test_control_token_text_is_refused_by_text_unless_the_operator_leaves_it(folder: Path) -> None:
    attack = [{"role": "user", "content": "a<|im_end|>b"}]
    by_text = EngineFeatures("ensemble", "as configured", "ensemble", True, False, logprobs=True)
    async with gateway(folder, features=by_text) as running:
        error = (await running.chat(messages=attack)).json()["error"]
        assert (error["param"], "escape_special_tokens" in error["message"]) == ("messages[0].content", True)
    async with gateway(folder, features=by_text, escape_special_tokens=False) as running:
        assert (await running.chat(messages=attack)).status_code == 200


@pytest.mark.parametrize(("timeouts", "what"), [({"first_token_s": 0.05}, "no token"), ({"total_s": 0.05}, "finish")])
async def test_deadlines(folder: Path, timeouts: dict[str, float], what: str) -> None:
    never = asyncio.Event()
    async with gateway(folder, lambda _: [never], timeouts=timeouts) as running:
        answer = await running.chat()
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "timeout"
        assert what in answer.json()["error"]["message"]
        await running.engine.left.wait()


ABLE = dataclasses.replace(
    TOKENS,
    capabilities=dict.fromkeys(
        (
            "min_tokens",
            "stop_token_ids",
            "bad_words",
            "min_p",
            "repetition_penalty",
            "prompt_logprobs",
            "logit_bias",
            "length_penalty",
        ),
        Capability("native", "by a tensor."),
    )
    | {"use_beam_search": Capability("native", "by beam_width.", 4)},
)


async def test_a_model_says_the_defaults_of_its_parameters(folder: Path) -> None:
    async with gateway(folder, defaults={"temperature": 0.5}) as running:
        described = (await running.client.get(f"/v1/models/{MODEL}")).json()["capabilities"]
    found = {name: about.get("default") for name, about in described.items()}
    assert (found["temperature"], found["top_p"], found["n"], found["seed"]) == (0.5, 1, 1, None)


async def test_the_models_own_defaults_where_the_operator_wants_them(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 0.7, "top_k": 20, "top_p": 0.8}))
    async with gateway(folder, defaults={"generation_config": True, "top_p": 0.5}) as running:
        await running.chat()
        sampling = running.engine.requests[0].params
        assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.7, 20, 0.5)
    async with gateway(folder) as running:
        await running.chat()
        assert running.engine.requests[0].params.temperature == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"100000": 1}}, "logit_bias.100000"),
        ({"stop_token_ids": [100000]}, "stop_token_ids[0]"),
        ({"logprobs": True, "top_logprobs": 6}, "top_logprobs"),
        ({"min_tokens": 10**6}, "min_tokens"),
        ({"use_beam_search": True, "best_of": 5}, "best_of"),
    ],
)
async def test_what_does_not_fit_the_model_is_named(folder: Path, fields: dict[str, Any], param: str) -> None:
    async with gateway(folder, features=ABLE) as running:
        answer = await running.chat(**fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param
        assert running.engine.requests == []


STREAM = {"model": MODEL, "messages": USER, "stream": True}


def events(content: bytes) -> list[bytes]:
    """The data of each event; comments left out."""
    parts = content.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith((b"data: ", b": ")) for part in parts)
    return [part[len(b"data: ") :] for part in parts if not part.startswith(b": ")]


def of_stream(content: bytes) -> list[ChatCompletionChunk]:
    """The chunks of a whole stream, with OpenAI's fields at each level, vLLM's stop_reason, and no others."""
    *datas, done = events(content)
    assert done == b"[DONE]"
    result = []
    for data in datas:
        chunk = json.loads(data)
        assert set(chunk) <= {"id", "object", "created", "model", "choices", "usage"}
        for choice in chunk["choices"]:
            last = {"stop_reason"} if choice["finish_reason"] else set()
            assert set(choice) == {"index", "delta", "logprobs", "finish_reason"} | last
            assert set(choice["delta"]) <= {"role", "content"}
        result.append(ChatCompletionChunk.model_validate(chunk, strict=True))
    return result


@contextlib.asynccontextmanager
async def streaming(
    folder: Path, script: Any, path: str = "/v1/chat/completions", body: Any = STREAM, **changes: Any
) -> AsyncIterator[tuple[Gateway, httpx.Response]]:
    """A stream that a real server sends."""
    async with (
        gateway(folder, script, served=True, **changes) as running,
        running.client.stream("POST", path, json=body) as answer,
    ):
        assert answer.status_code == 200
        yield running, answer


async def test_what_is_ready_leaves_in_one_write_with_an_event_a_token(folder: Path) -> None:
    ids = ByteIds(folder).of("Hello")
    async with streaming(folder, lambda _: chunks(ids)) as (_, answer):
        writes = [data async for data in answer.aiter_raw()]
        assert len(of_stream(b"".join(writes))) == 1 + 5 + 1
        assert len(writes) < 5


async def test_a_deadline_inside_a_stream_is_an_error_event(folder: Path) -> None:
    never, ids = asyncio.Event(), ByteIds(folder).of("H")
    timeouts = {"total_s": 0.1, "first_token_s": 5}
    async with gateway(folder, lambda _: [EngineChunk(ids=ids), never], timeouts=timeouts) as running:
        answer = await running.client.post("/v1/chat/completions", json=STREAM)
        assert json.loads(events(answer.content)[-1])["error"]["code"] == "timeout"


async def test_headers_and_comments_while_the_engine_is_silent(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("Hi")
    timeouts = {"headers_s": 0.05, "keepalive_s": 0.05}

    def script(request: Any) -> Any:
        return [gate, EngineChunk(ids=[ids[0]]), gate2, EngineChunk(ids=[ids[1]], final=True)]

    gate2 = asyncio.Event()
    async with streaming(folder, script, timeouts=timeouts) as (_, answer):
        raw = answer.aiter_raw()
        got = b""
        while got.count(b": ") < 3:
            got += await anext(raw)
        assert b"data:" not in got
        gate.set()
        while got.rpartition(b'"H"')[2].count(b"\n\n: ") < 2 or b'"H"' not in got:
            got += await anext(raw)
        gate2.set()
        got += b"".join([data async for data in raw])
        assert [chunk.choices[0].delta.content for chunk in of_stream(got)] == ["", "H", "i", None]


async def test_no_text_overtakes_the_role_after_a_comment(folder: Path) -> None:
    gate = asyncio.Event()
    ids = ByteIds(folder).of("éab")  # the first token is half a character: it shows nothing

    def script(request: Any) -> Any:
        return [gate, *(EngineChunk(ids=[index]) for index in ids), EngineChunk(final=True)]

    async with streaming(folder, script, timeouts={"headers_s": 0.02, "keepalive_s": 0.05}) as (_, answer):
        raw = answer.aiter_raw()
        got = await anext(raw)
        assert got.startswith(b": ")
        gate.set()
        got += b"".join([data async for data in raw])
    first, *others = of_stream(got)
    assert first.choices[0].delta.role == "assistant"
    assert not any(chunk.choices[0].delta.role for chunk in others)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in others) == "éab"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_client_that_stops_reading_holds_the_engine_back(folder: Path, path: str) -> None:
    ids, total, given = ByteIds(folder).of("x"), 60_000, 0

    def script(request: Any) -> Any:
        nonlocal given
        for given in range(1, total + 1):  # noqa: B007 - how far the engine was read
            yield EngineChunk(ids=ids)
        yield EngineChunk(final=True)

    body = {"model": STREAM["model"], "stream": True, "max_tokens": total}
    body |= {"prompt": "p"} if path == "/v1/completions" else {"messages": STREAM["messages"]}
    async with streaming(folder, script, path, body, max_seq_len=100_000, tokens_per_block=32) as (_, answer):
        raw = answer.aiter_raw()
        got = [await anext(raw)]
        before = -1
        while before != given:  # until the sockets are full
            before = given
            await asyncio.sleep(0.3)
        assert before < total
        got += [data async for data in raw]
        whole = b"".join(got)
    assert whole.endswith(b"data: [DONE]\n\n")
    assert whole.count(b'"x"') == total


async def test_a_defect_ends_a_stream_with_an_error_event(folder: Path) -> None:
    ids = ByteIds(folder).of("ab")
    script: Any = lambda _: [EngineChunk(ids=[ids[0]]), EngineChunk(ids=["no id"])]  # type: ignore[list-item]  # noqa: E731
    async with streaming(folder, script) as (_, answer):
        content = b"".join([data async for data in answer.aiter_raw()])
    last = json.loads(events(content)[-1])
    assert last["error"]["type"] == "server_error"
    assert "no id" not in str(last)


async def test_an_error_after_early_headers_is_an_event(folder: Path) -> None:
    gate = asyncio.Event()
    failure = EngineError(ErrorKind.QUEUE_FULL, "Full.")
    async with streaming(folder, lambda _: [gate, failure], timeouts={"headers_s": 0.02}) as (_, answer):
        gate.set()
        content = b"".join([data async for data in answer.aiter_raw()])
        (only,) = events(content)
        assert json.loads(only)["error"]["code"] == "rate_limit_exceeded"


async def in_flight(running: Gateway) -> tuple[float, float]:
    """The gauges of running and of cancelled requests."""
    text = (await running.client.get("/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    labels = '{model="scripted"}'
    return float(values["gateway_requests_in_flight" + labels]), float(
        values["gateway_requests_cancelled_total" + labels]
    )


async def test_a_client_that_leaves_before_the_first_token_closes_the_engine(folder: Path) -> None:
    never = asyncio.Event()
    for body in (STREAM, {**STREAM, "stream": False}):
        async with gateway(folder, lambda _: [never], served=True) as running:
            asking = asyncio.create_task(running.client.post("/v1/chat/completions", json=body))
            await running.engine.asked.wait()
            asking.cancel()
            await asyncio.wait_for(running.engine.left.wait(), 5)
            assert await in_flight(running) == (0, 1)
