"""Keys with names: who is let in, what each may use, and how much of it, by every endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from gateway.app import create_app
from gateway.generation import EngineChunk
from gateway.settings import ConfigError, SettingsSource
from tests.app.harness import USER, Gateway, gateway, says
from tests.app.scripted import MAX_SEQ_LEN, MODEL, TOKENS, ByteIds, Script, ScriptedBackend, ScriptedEngine
from tests.waiting import until

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
PROMPT_TOKENS = len(PROMPT) - len("<|im_start|>") * 2 - len("<|im_end|>") + 3
MESSAGES = {"model": MODEL, "max_tokens": 9, "messages": USER}


def digest(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def named(name: str, key: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "hash": digest(key), **fields}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def running(
    folder: Path, *keys: dict[str, Any], script: Script | None = None, served: bool = False, **changes: Any
) -> contextlib.AbstractAsyncContextManager[Gateway]:
    changes.setdefault("auth", {"keys": list(keys)})
    return gateway(folder, script, served=served, **changes)


def chat(gateway: Gateway, key: str, **body: Any) -> Any:
    body = {"model": MODEL, "messages": USER, **body}
    return gateway.client.post("/v1/chat/completions", json=body, headers=bearer(key))


async def test_keys_open_by_either_header_and_others_do_not(folder: Path) -> None:
    flat = "flat-key"
    auth = {"keys": [named("alice", ALICE), named("old", BOB, expires="2020-01-01")]}
    async with running(folder, auth=auth, server={"api_keys": [flat]}) as one:
        for headers in (bearer(ALICE), {"x-api-key": ALICE}, bearer(flat)):
            assert (await one.client.get("/v1/models", headers=headers)).status_code == 200
        for key, message in ((ALICE + "x", "Incorrect API key provided."), (BOB, "The API key has expired.")):
            rejected = await one.client.get("/v1/models", headers=bearer(key))
            assert (rejected.status_code, rejected.headers["www-authenticate"]) == (401, "Bearer")
            assert rejected.json()["error"] == {
                "message": message, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"
            }  # fmt: skip
            rejected = await one.client.post("/v1/messages", json=MESSAGES, headers={"x-api-key": key})
            assert rejected.status_code == 401
            assert rejected.json()["error"] == {"type": "authentication_error", "message": message}
        assert (await one.client.get("/v1/models")).status_code == 401
        # A hash that was stolen from the file opens nothing.
        assert (await one.client.get("/v1/models", headers=bearer(digest(ALICE)))).status_code == 401


async def test_a_model_that_a_key_may_not_use_is_not_there(folder: Path) -> None:
    keys = named("alice", ALICE, models=["other"]), named("bob", BOB, models=[MODEL])
    large = [{"role": "user", "content": "x" * 600_000}]  # read by a thread of its own
    async with running(folder, *keys, aliases=["second"]) as one:
        for name in (MODEL, "second"):
            for path, body in (
                ("chat/completions", {"messages": USER}),
                ("chat/completions", {"messages": large}),
                ("completions", {"prompt": "a"}),
                ("responses", {"input": "a"}),
                ("messages", {"messages": USER, "max_tokens": 1}),
                ("messages/count_tokens", {"messages": USER}),
            ):
                hidden, missing = [
                    await one.client.post(f"/v1/{path}", json={"model": asked, **body}, headers=bearer(key))
                    for asked, key in ((name, ALICE), ("none", BOB))
                ]
                assert hidden.status_code == missing.status_code == 404, (path, hidden.text)
                assert _without_id(hidden) == _without_id(missing).replace("none", name)
            gone, absent = [await one.client.get(f"/v1/models/{n}", headers=bearer(ALICE)) for n in (name, "none")]
            assert gone.status_code == 404
            assert gone.text == absent.text.replace("none", name)
            assert (await chat(one, BOB, model=name)).status_code == 200
        assert (await one.client.post("/tokenize", json={"prompt": "a"}, headers=bearer(ALICE))).status_code == 404
        assert (await one.client.post("/tokenize", json={"prompt": "a"}, headers=bearer(BOB))).status_code == 200
        for headers in ({}, {"anthropic-version": "1"}):
            listed = [
                [
                    entry["id"]
                    for entry in (await one.client.get("/v1/models", headers=bearer(key) | headers)).json()["data"]
                ]
                for key in (ALICE, BOB)
            ]
            assert listed == [[], [MODEL, "second"]]


async def answered(ask: Callable[[], Awaitable[Any]], status: int) -> Any:
    """Ask until the answer has a status."""
    end = time.monotonic() + 20
    while (answer := await ask()).status_code != status:
        assert time.monotonic() < end, answer.text
        await asyncio.sleep(0)
    return answer


def _without_id(answer: httpx.Response) -> str:
    return re.sub(r'"request_id":"\w+"', "", answer.text)


async def test_requests_a_minute(folder: Path) -> None:
    limited = named("alice", ALICE, limits={"requests_per_minute": 3})
    async with running(folder, limited, named("bob", BOB)) as one:
        first = await chat(one, ALICE)
        assert first.headers["x-ratelimit-limit-requests"] == "3"
        assert first.headers["x-ratelimit-remaining-requests"] == "2"
        assert 19 < _seconds(first.headers["x-ratelimit-reset-requests"]) <= 20
        assert "x-ratelimit-limit-tokens" not in first.headers
        streamed = await chat(one, ALICE, stream=True)
        assert streamed.headers["x-ratelimit-remaining-requests"] == "1"
        # What is refused for another reason is a request, too; a list of models is none that a limit counts.
        assert (await chat(one, ALICE, temperature=9)).headers["x-ratelimit-remaining-requests"] == "0"
        assert (await one.client.get("/v1/models", headers=bearer(ALICE))).status_code == 200
        rejected = await chat(one, ALICE)
        assert rejected.status_code == 429
        error = rejected.json()["error"]
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
        assert "3 requests per minute of 'alice'" in error["message"]
        wait = int(rejected.headers["retry-after-ms"])
        assert 19_000 < wait <= 20_000
        assert rejected.headers["retry-after"] == "20"
        assert rejected.headers["x-ratelimit-remaining-requests"] == "0"
        assert (await one.client.post("/v1/conversations", json={}, headers=bearer(ALICE))).status_code == 429
        other = await one.client.post("/v1/messages", json=MESSAGES, headers={"x-api-key": ALICE})
        assert other.status_code == 429
        assert other.json()["error"]["type"] == "rate_limit_error"
        assert other.headers["retry-after"] == "20"
        assert (await chat(one, BOB)).status_code == 200
        text = (await one.client.get("/metrics")).text
        assert 'gateway_key_requests_total{key="alice"} 6.0' in text
        assert 'gateway_key_limited_total{key="alice",limit="requests_per_minute"} 3.0' in text
        assert ALICE not in text


def _seconds(duration: str) -> float:
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?|([\d.]+)ms", duration)
    assert found is not None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _left(answer: httpx.Response) -> int:
    return int(answer.headers["x-ratelimit-remaining-tokens"])


async def test_tokens_are_reserved_and_settled(folder: Path) -> None:
    limited = named("alice", ALICE, limits={"tokens_per_minute": 200})
    async with running(folder, limited) as one:
        used = PROMPT_TOKENS + 5  # "Hello"
        first = await chat(one, ALICE, max_tokens=100)
        assert first.json()["usage"]["total_tokens"] == used
        assert _left(first) == 200 - PROMPT_TOKENS - 100  # reserved
        second = await chat(one, ALICE, max_tokens=9, stream=True)
        assert abs(_left(second) - (200 - used - PROMPT_TOKENS - 9)) <= 1  # the first one has used less
        rejected = await chat(one, ALICE, max_tokens=150)
        assert rejected.status_code == 429
        assert rejected.json()["error"]["type"] == "tokens"
        assert 0 < int(rejected.headers["retry-after-ms"]) < 60_000
        for path, body in (
            ("chat/completions", {"messages": USER, "max_tokens": 200}),
            ("completions", {"prompt": ["a", "b"], "max_tokens": 200}),
            ("responses", {"input": "Hi", "max_output_tokens": 200, "stream": True}),
            ("messages", {"messages": USER, "max_tokens": 200}),
        ):
            never = await one.client.post(f"/v1/{path}", json={"model": MODEL, **body}, headers=bearer(ALICE))
            assert never.status_code == 429, path
            assert never.headers["x-should-retry"] == "false"
            assert "retry-after" not in never.headers
            assert never.json()["error"]["type"] == ("rate_limit_error" if path == "messages" else "tokens")
        text = (await one.client.get("/metrics")).text
        assert f'gateway_key_tokens_total{{key="alice",kind="prompt"}} {2 * PROMPT_TOKENS}.0' in text
        assert 'gateway_key_tokens_total{key="alice",kind="completion"} 10.0' in text


async def test_every_endpoint_reserves_and_settles(folder: Path) -> None:
    limited = named("alice", ALICE, limits={"tokens_per_minute": 100_000})
    asked: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", {"messages": USER, "max_tokens": 3, "n": 2}),
        ("chat/completions", {"messages": USER, "max_tokens": 3, "stream": True}),
        ("completions", {"prompt": ["ab", "cd"], "max_tokens": 3}),
        ("responses", {"input": "Hi", "max_output_tokens": 3}),
        ("responses", {"input": "Hi", "max_output_tokens": 3, "stream": True}),
        ("messages", {"messages": USER, "max_tokens": 3}),
        ("messages", {"messages": USER, "max_tokens": 3, "stream": True}),
    ]
    costs = [PROMPT_TOKENS + 6, PROMPT_TOKENS + 3, 2 * (2 + 3), *(PROMPT_TOKENS + 3,) * 4]
    async with running(folder, limited) as one:
        spent = 0
        for (path, body), cost in zip(asked, costs, strict=True):
            answer = await one.client.post(f"/v1/{path}", json={"model": MODEL, **body}, headers=bearer(ALICE))
            assert answer.status_code == 200, answer.text
            # It answers up to max_tokens: what was reserved is what is used.
            spent += cost
            refill = 100_000 / 60 * 20
            assert 100_000 - spent <= _left(answer) < 100_000 - spent + refill
        found = re.findall(r'gateway_key_tokens_total\{key="alice".*\} (\d+)', (await one.client.get("/metrics")).text)
        assert sum(map(int, found)) == spent


async def test_an_answer_without_a_limit_of_its_own_reserves_what_is_assumed(folder: Path) -> None:
    auth = {
        "keys": [
            named("alice", ALICE, limits={"tokens_per_minute": 1000}),
            named("bob", BOB, limits={"tokens_per_minute": PROMPT_TOKENS + 10}),
        ],
        "assumed_max_tokens": 50,
    }
    async with running(folder, auth=auth) as one:
        assert _left(await chat(one, ALICE)) == 1000 - PROMPT_TOKENS - 50
        assert _left(await chat(one, BOB)) == 0  # no more than there is


async def test_a_stream_that_breaks_off_gives_back_what_it_has_not_used(folder: Path) -> None:
    gate = asyncio.Event()

    def script(_: object) -> list[Any]:
        return [EngineChunk(ids=ByteIds(folder).of("ab")), gate, EngineChunk(final=True)]

    limits = {"tokens_per_minute": 400, "in_flight": 1}
    async with running(folder, named("alice", ALICE, limits=limits), script=script, served=True) as one:
        body = {"model": MODEL, "messages": USER, "max_tokens": 200, "stream": True}
        async with one.client.stream("POST", "/v1/chat/completions", json=body, headers=bearer(ALICE)) as stream:
            async for line in stream.aiter_lines():
                if line:
                    break
            second = await chat(one, ALICE, max_tokens=1)
            assert second.status_code == 429
            assert second.json()["error"]["type"] == "requests"
            assert "1 concurrent requests" in second.json()["error"]["message"]
        gate.set()
        again = await answered(lambda: chat(one, ALICE, max_tokens=2), 200)
        assert _left(again) >= 400 - (PROMPT_TOKENS + 2) - (PROMPT_TOKENS + 2)


async def test_in_flight_ends_with_the_last_byte(folder: Path) -> None:
    limited = named("alice", ALICE, limits={"in_flight": 1})
    async with running(folder, limited, served=True) as one:
        for stream in (True, False) * 20:  # each is sent as soon as the one before has ended
            assert (await chat(one, ALICE, stream=stream)).status_code == 200


async def test_a_background_response_is_in_flight_until_it_has_ended(folder: Path, tmp_path: Path) -> None:
    gate = asyncio.Event()

    def script(_: object) -> list[Any]:
        return [EngineChunk(ids=ByteIds(folder).of("ab")), gate, EngineChunk(final=True)]

    limited = named("alice", ALICE, limits={"in_flight": 1, "tokens_per_minute": 1000})
    state = {"path": tmp_path / "state.sqlite"}
    async with running(folder, limited, script=script, state=state) as one:
        body = {"model": MODEL, "input": "Hi", "background": True, "max_output_tokens": 300}
        begun = await one.client.post("/v1/responses", json=body, headers=bearer(ALICE))
        assert begun.status_code == 200
        assert (await chat(one, ALICE, max_tokens=1)).status_code == 429
        gate.set()
        after = await answered(lambda: chat(one, ALICE, max_tokens=2), 200)
        assert _left(after) >= 1000 - (PROMPT_TOKENS + 2) - (PROMPT_TOKENS + 2)


async def test_max_tokens_of_a_key(folder: Path) -> None:
    limited = named("alice", ALICE, limits={"max_tokens": 4})
    async with running(folder, limited, script=says(folder, "Hello there")) as one:
        clamped = (await chat(one, ALICE)).json()["choices"][0]
        assert (clamped["message"]["content"], clamped["finish_reason"]) == ("Hell", "length")
        for path, body, param in (
            ("chat/completions", {"messages": USER, "max_tokens": 5}, "max_tokens"),
            ("chat/completions", {"messages": USER, "max_completion_tokens": 5}, "max_completion_tokens"),
            ("completions", {"prompt": "a", "max_tokens": 5}, "max_tokens"),
            ("responses", {"input": "a", "max_output_tokens": 16}, "max_output_tokens"),
        ):
            rejected = await one.client.post(f"/v1/{path}", json={"model": MODEL, **body}, headers=bearer(ALICE))
            assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, param), rejected.text
        rejected = await one.client.post("/v1/messages", json=MESSAGES, headers=bearer(ALICE))
        assert rejected.status_code == 400
        assert "max_tokens" in rejected.json()["error"]["message"]
        assert "at most 4 tokens" in rejected.json()["error"]["message"]
    defaults = {"defaults": {"max_tokens": 8}, "max_tokens_policy": "reject"}
    async with running(folder, limited, script=says(folder, "Hello there"), **defaults) as one:
        assert (await chat(one, ALICE)).json()["choices"][0]["message"][
            "content"
        ] == "Hell"  # the operator's own is more


async def test_the_log_has_the_name_and_never_the_key(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    keys = named("alice", ALICE), named("old", BOB, expires="2020-01-01T00:00:00Z")
    async with running(folder, *keys, server={"api_keys": ["flat"]}) as one:
        await chat(one, ALICE)
        await chat(one, BOB)
        await chat(one, "flat")
        await chat(one, "sk-wrong")
    lines = [line for line in caplog.records if line.name == "gateway.access"]
    assert [getattr(line, "key", None) for line in lines] == ["alice", "old", None, None]
    written = json.dumps([{k: str(v) for k, v in vars(line).items()} for line in caplog.records])
    for secret in (ALICE, BOB, digest(ALICE).partition(":")[2], "sk-wrong"):
        assert secret not in written


async def test_a_changed_file_of_keys_is_in_force_at_once(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys.yaml"

    def write(*keys: dict[str, Any]) -> None:
        new = file.with_suffix(".new")
        new.write_text(yaml.safe_dump({"keys": list(keys)}))
        new.replace(file)

    async def becomes(key: str, status: int) -> None:
        await answered(lambda: one.client.get("/v1/models", headers=bearer(key)), status)

    write(named("alice", ALICE, limits={"requests_per_minute": 2}))
    async with running(folder, auth={"keys_file": file}, server={"reload_s": 0.02}) as one:
        for _ in range(2):
            assert (await chat(one, ALICE)).status_code == 200
        write(named("alice", ALICE, limits={"requests_per_minute": 2}), named("bob", BOB))
        await becomes(BOB, 200)
        assert (await chat(one, ALICE)).status_code == 429  # what was used stays used
        file.write_text("keys: [{name: alice}]")  # what cannot be used leaves the former ones in force
        await until(lambda: "keys[0].hash: is required" in caplog.text)
        assert (await one.client.get("/v1/models", headers=bearer(BOB))).status_code == 200
        write(named("bob", BOB))
        await becomes(ALICE, 401)  # revoked


async def test_keys_of_the_settings_follow_them(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "gateway.yaml"
    model = {"name": MODEL, "triton": {"url": "h:1"}, "tokenizer": str(folder), "max_seq_len": MAX_SEQ_LEN}

    def write(*keys: dict[str, Any], **auth: Any) -> None:
        sections = {"server": {"reload_s": 0.02}, "models": [model], "auth": {"keys": list(keys), **auth}}
        file.with_suffix(".new").write_text(yaml.safe_dump(sections))
        file.with_suffix(".new").replace(file)

    write(named("alice", ALICE))
    source = SettingsSource.find(file, {})
    engine = ScriptedEngine(says(folder, "Hello"), TOKENS)
    app = create_app(source.load(), lambda _: ScriptedBackend(engine), source)
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:

        async def becomes(key: str, status: int) -> None:
            await answered(lambda: client.get("/v1/models", headers=bearer(key)), status)

        await becomes(ALICE, 200)
        write(named("bob", BOB))
        await becomes(BOB, 200)
        await becomes(ALICE, 401)
        write(named("alice", ALICE), keys_file="none.yaml")  # not to be had: all stays
        await until(lambda: "none.yaml: the key file cannot be read" in caplog.text)
        await becomes(BOB, 200)
        write(named("alice", ALICE), gateways=3)
        await becomes(ALICE, 200)
        assert "auth.gateways has changed in the settings: it needs a restart" in caplog.text


async def test_a_file_of_keys_that_cannot_be_used_ends_the_start(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for text, says_ in (
        ('{"keys": [{"name": "a", "hash": "sk-123"}]}', f"{file}:1: keys[0].hash: must be sha256:"),
        ('{"keys": [{"name": "a b", "hash": "x"}]}', "keys[0].name: must consist of"),
        (json.dumps({"keys": [named("a", ALICE), named("a", BOB)]}), "two keys have the name of 'a'"),
        (json.dumps({"keys": [named("a", ALICE), named("b", ALICE)]}), "two keys have the hash of 'b'"),
        (json.dumps({"keys": [named("a", ALICE, limit=3)]}), "Did you mean 'limits'?"),
        ("[]", "must contain a mapping"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            async with running(folder, auth={"keys_file": file}):
                pass
        assert says_ in str(caught.value)
        assert "sk-123" not in str(caught.value)


async def test_openais_client_waits_as_long_as_it_is_told(folder: Path) -> None:
    limited = named("alice", ALICE, limits={"requests_per_minute": 600})
    async with running(folder, limited, served=True) as one:
        for _ in range(600):
            await one.client.post("/tokenize", content=b"{}", headers=bearer(ALICE) | {"content-type": "text/plain"})
        client = openai.AsyncOpenAI(base_url=f"{one.client.base_url}/v1", api_key=ALICE, max_retries=3)
        async with client:
            answers = await asyncio.gather(
                *(client.chat.completions.create(model=MODEL, messages=USER) for _ in range(3))  # type: ignore[arg-type]
            )
        assert {answer.choices[0].message.content for answer in answers} == {"Hello"}


async def test_what_is_kept_belongs_to_the_name(folder: Path, tmp_path: Path) -> None:
    state = {"path": tmp_path / "state.sqlite"}
    async with running(folder, named("alice", ALICE), state=state) as one:
        made = await one.client.post("/v1/responses", json={"model": MODEL, "input": "Hi"}, headers=bearer(ALICE))
        kept = made.json()["id"]
    async with running(folder, named("alice", BOB), named("bob", ALICE), state=state) as one:
        found = [
            (await one.client.get(f"/v1/responses/{kept}", headers=bearer(key))).status_code for key in (BOB, ALICE)
        ]
    assert found == [200, 404]  # a new key of the same name, and the old one under another name
