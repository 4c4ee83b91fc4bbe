"""Answers to Messages requests: blocks, stop reasons, usage, events, and errors of every layer, HTTP's too."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.app import unread_answer
from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from gateway.http.http_protocol import HttpLimits, http_protocol
from tests.anthropic.messages_harness import (
    USER,
    VERSION,
    checked,
    error_of,
    events_of,
    message_of,
    message_types,
    post,
    streamed,
    whole,
)
from tests.app.harness import gateway, says
from tests.app.scripted import MODEL, ByteIds, Step
from tests.openai.responses_harness import running
from tests.openai.test_answer_fields import TEXT
from tests.openai.test_responses import bodies
from tests.openai.tools_harness import CITY, GUIDED, UNGUIDED, call_text
from tests.published_types import published
from tests.rings import examples
from tests.web.served import answer_to, served

BOTH = pytest.mark.parametrize("ask", [whole, streamed])
TOOLS = [{"name": name, "input_schema": CITY} for name in ("weather", "time")]
ROME = call_text("weather", '{"city": "Rome"}')


@BOTH
async def test_a_limit_and_a_stop_sequence_are_told(folder: Path, ask: Any) -> None:
    async with gateway(folder) as running:
        cut = await ask(running, max_tokens=3)
        assert (cut.text, cut.stop_reason, cut.stop_sequence) == ("Hel", "max_tokens", None)
        for stops in (["x", "ll"], [*"xyzw", "ll"], [*map(chr, range(0x4E00, 0x4E3F)), "ll"]):
            stopped = await ask(running, stop_sequences=stops)
            assert (stopped.text, stopped.stop_reason, stopped.stop_sequence) == ("He", "stop_sequence", "ll")


async def test_the_operators_number_of_stop_sequences_holds(folder: Path) -> None:
    async with gateway(folder, max_stops=4) as running:
        message = error_of(await post(running, stop_sequences=[*"abcde"]), 400, "invalid_request_error")
        assert message == "stop_sequences: At most 4 stop strings are supported, but 5 were given."


@BOTH
async def test_an_empty_answer_has_one_empty_block(folder: Path, thinks: Path, ask: Any) -> None:
    for path in (folder, thinks):
        async with gateway(path, says(path, "")) as running:
            message = await ask(running)
            assert [block.to_dict() for block in message.content] == [{"type": "text", "text": ""}]
            assert message.stop_reason == "end_turn"
            assert message.usage.output_tokens == 0


async def test_a_call_that_is_cut_has_what_there_is_of_its_input(folder: Path) -> None:
    async with gateway(folder, says(folder, ROME), features=UNGUIDED, max_seq_len=4096) as running:
        message = await whole(running, tools=TOOLS, max_tokens=len(ROME) - 22)
        assert message.stop_reason == "max_tokens"
        events = events_of((await post(running, stream=True, tools=TOOLS, max_tokens=len(ROME) - 22)).text)
        assert events[-2]["delta"]["stop_reason"] == "max_tokens"


@BOTH
async def test_an_eager_call_that_is_cut_behind_its_name_has_an_empty_input(folder: Path, ask: Any) -> None:
    eager = {"features": UNGUIDED, "max_seq_len": 4096, "tool_call_streaming": "eager"}
    async with gateway(folder, says(folder, ROME), **eager) as running:
        assert (await ask(running, tools=TOOLS, max_tokens=ROME.index("arguments"))).calls[0].input == {}


@BOTH
async def test_thinking_is_a_block_with_one_signature(thinks: Path, ask: Any) -> None:
    script = says(thinks, f"<think>\nHm.\n</think>\n\nSo.\n{ROME}")
    async with gateway(thinks, script, features=UNGUIDED, max_seq_len=4096) as running:
        shown = await ask(running, tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
        assert [block.type for block in shown.content] == ["thinking", "text", "tool_use"]
        assert (shown.thinking, shown.text.strip(), shown.stop_reason) == ("Hm.", "So.", "tool_use")
        hidden = await ask(running, tools=TOOLS, thinking={"type": "adaptive", "display": "omitted"})
        assert [block.type for block in hidden.content] == ["thinking", "text", "tool_use"]
        assert hidden.thinking == ""
        for message in (shown, hidden):
            said = [message.content[0].to_dict(), {"type": "text", "text": "So."}]
            back = [*USER, {"role": "assistant", "content": said}, *USER]
            await whole(running, messages=back)
            assert "So.Hm.<|im_end|>" in running.engine.requests[-1].prompt.text


@BOTH
async def test_tokens_from_the_cache_are_told_apart(folder: Path, ask: Any) -> None:
    ids = ByteIds(folder).of("Hi")

    def script(request: GenerationRequest) -> list[Step]:
        del request
        return [EngineChunk(ids=ids), EngineChunk(final=True, cached_tokens=16)]

    async with gateway(folder, script) as running:
        usage = (await ask(running)).usage
        prompt = len(running.engine.requests[-1].prompt.ids)
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (
            prompt - 16,
            16,
            0,
        )


@BOTH
@pytest.mark.parametrize(("most", "reason"), [(5, "max_tokens"), (6, "end_turn")])
async def test_what_is_estimated_says_so(folder: Path, ask: Any, most: int, reason: str) -> None:
    async with gateway(folder, lambda _: [EngineChunk(text="Hello", final=True)], features=TEXT) as running:
        message = await ask(running, max_tokens=most)
        assert (message.stop_reason, message.stop_reason_estimated) == (reason, True)
        assert (message.usage.output_tokens, message.usage.estimated) == (5, True)
    async with gateway(folder) as running:
        message = await ask(running)
        assert (message.stop_reason_estimated, message.usage.estimated) == (None, None)


BROKEN: list[tuple[ErrorKind, int, str]] = [
    (ErrorKind.QUEUE_FULL, 429, "rate_limit_error"),
    (ErrorKind.UNAVAILABLE, 529, "overloaded_error"),
    (ErrorKind.TIMEOUT, 504, "timeout_error"),
    (ErrorKind.INTERNAL, 500, "api_error"),
    (ErrorKind.INVALID_REQUEST, 400, "invalid_request_error"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "status", "name"), BROKEN)
async def test_failures_of_the_engine_have_anthropic_s_types(
    folder: Path, kind: ErrorKind, status: int, name: str, stream: bool
) -> None:
    async with gateway(folder, lambda _: [EngineError(kind, "It broke.", "of the backend")]) as running:
        answer = await post(running, stream=stream)
        assert error_of(answer, status, name).endswith("It broke.")
        assert ("retry-after" in answer.headers) == (status in {429, 529})


async def test_a_failure_in_mid_stream_is_the_last_event(folder: Path, thinks: Path) -> None:
    for path in (folder, thinks):
        ids = ByteIds(path).of("So")
        steps: list[Step] = [*(EngineChunk(ids=[index]) for index in ids), EngineError(ErrorKind.UNAVAILABLE, "Gone.")]
        async with gateway(path, lambda _, steps=steps: steps, served=True) as running:
            answer = await post(running, stream=True)
            assert answer.status_code == 200
            events = events_of(answer.text)
            assert [events[index]["type"] for index in (0, 1, -1)] == ["message_start", "ping", "error"]
            assert events[-1] == {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "Gone."},
                "request_id": answer.headers["request-id"],
            }
            assert "message_stop" not in answer.text


async def test_a_demand_that_nothing_guarantees_is_checked(folder: Path) -> None:
    settings = {"structured_output_without_guidance": "validate"}
    async with gateway(folder, features=UNGUIDED, max_seq_len=4096, **settings) as running:
        body = {"tools": TOOLS, "tool_choice": {"type": "any"}}
        assert "no tool call" in error_of(await post(running, **body), 500, "api_error")
        events = events_of((await post(running, stream=True, **body)).text)
        assert events[-1]["type"] == "error"


KEYS = {"server": {"api_keys": ["key-1", "key-2"]}}


async def test_every_layer_answers_in_anthropic_s_shape(folder: Path) -> None:
    limits = {"limits": {"max_body_bytes": 2000}}
    async with gateway(folder, served=True, **KEYS, **limits) as running:
        body = {"model": MODEL, "max_tokens": 5, "messages": USER}

        async def ask(method: str, path: str, key: str | None = "key-1", **more: Any) -> httpx.Response:
            headers = {} if key is None else {"x-api-key": key}
            return await running.client.request(method, path, headers=headers | more.pop("headers", {}), **more)

        for path in ("/v1/messages", "/v1/messages?beta=true", "/v1/messages/", "/v1/messages/count_tokens"):
            error_of(await ask("POST", path, None, json=body), 401, "authentication_error")
            error_of(await ask("POST", path, "wrong", json=body), 401, "authentication_error")
            assert (await ask("POST", path, json=body)).status_code == 200
            error_of(await ask("POST", path, json={**body, "model": "none"}), 404, "not_found_error")
            error_of(await ask("GET", path), 405, "invalid_request_error")
            error_of(await ask("POST", path, content=b"x" * 3000), 413, "request_too_large")
            error_of(await ask("POST", path, content=iter_of(b"x" * 3000)), 413, "request_too_large")
            error_of(await ask("POST", path, content=b"{"), 400, "invalid_request_error")
            error_of(await ask("POST", path, content=b""), 400, "invalid_request_error")
            error_of(await ask("POST", path, content=b"[]"), 400, "invalid_request_error")
            plain = {"headers": {"content-type": "text/plain"}}
            error_of(await ask("POST", path, content=b"{}", **plain), 415, "invalid_request_error")
        error_of(await ask("POST", "/v1/messages/batches", json=body), 404, "not_found_error")
        bearer = {"headers": {"authorization": "Bearer key-2"}}
        assert (await ask("POST", "/v1/messages", None, json=body, **bearer)).status_code == 200
        assert (await ask("POST", "/v1/messages", "wrong", json=body, **bearer)).status_code == 200
        wrong = {"headers": {"authorization": "Basic key-2"}}
        error_of(await ask("POST", "/v1/messages", None, json=body, **wrong), 401, "authentication_error")
        other = await ask("POST", "/v1/chat/completions", "wrong", json=body)
        assert (other.status_code, set(other.json())) == (401, {"error"})
        assert "request-id" not in other.headers


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
async def test_a_thread_is_refused_in_the_way_that_sdks_go_on_from(folder: Path, thread: dict[str, str]) -> None:
    """They send only what is new after a thread was begun: to serve it as if nothing had been said is no answer."""
    async with gateway(folder) as running:
        answer = await post(running, thread=thread)
        assert "'thread' is not supported" in error_of(answer, 400, "invalid_request_error")
        assert answer.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}
        assert (await post(running, thread=None)).status_code == 200
        other = await post(running, max_tokens=0)
        assert "details" not in other.json()["error"]


async def iter_of(data: bytes) -> Any:
    yield data


async def test_other_hosts_are_refused_in_anthropic_s_shape(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await running.client.post("/v1/messages", json={}, headers={"host": "evil.example"})
        error_of(answer, 403, "permission_error")


async def test_models_are_listed_for_anthropic_s_clients(folder: Path) -> None:
    async with gateway(folder, aliases=["claude-x"]) as running:
        answer = await running.client.get("/v1/models?limit=1000", headers=VERSION)
        listed = answer.json()
        assert [each["id"] for each in listed["data"]] == [MODEL, "claude-x"]
        assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, MODEL, "claude-x")
        for each in listed["data"]:
            published(message_types.ModelInfo, each)
        assert {(each["type"], each["lifecycle"]) for each in listed["data"]} == {("model", "active")}
        one = await running.client.get("/v1/models/claude-x", headers=VERSION)
        assert one.json() == listed["data"][1]
        assert (await whole(running, model="claude-x")).model == MODEL
        error_of(await running.client.get("/v1/models/none", headers=VERSION), 404, "not_found_error")
        assert (await running.client.get("/v1/models")).json()["object"] == "list"
        assert (await running.client.get(f"/v1/models/{MODEL}")).json()["object"] == "model"
        assert (await running.client.head("/v1/models", headers=VERSION)).status_code == 200


SHORT = HttpLimits(head_s=0.2, body_s=0.2, silence_s=0.2)
LONG = HttpLimits(head_s=60, body_s=60, silence_s=60)  # for what is refused by what it says
POST = b"POST /v1/messages?beta=true HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads a whole request."""
    with contextlib.suppress(ClientDisconnect):
        await Request(scope, receive).body()
        await Response(b"read")(scope, receive, send)


async def answered(sent: bytes, bounds: HttpLimits = LONG) -> tuple[int, dict[str, str], dict[str, object]]:
    """Status, headers and JSON of all that comes until the server closes the connection."""
    async with served(app, http_protocol(unread_answer, bounds), timeout_keep_alive=30) as port:
        told = await answer_to(port, sent)
    head, _, body = told.rpartition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert int(headers["content-length"]) == len(body)
    return int(status.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize(
    ("sent", "status", "kind"),
    [
        (POST, 408, "invalid_request_error"),
        (POST + b"content-length: 9\r\n\r\n", 408, "invalid_request_error"),
        (POST + b"x: %b\r\n\r\n" % (b"y" * 2**16), 431, "invalid_request_error"),
        (POST + b"x: %b" % (b"y" * 2**18), 431, "invalid_request_error"),
        (CHUNKED + b"no number\r\n", 400, "invalid_request_error"),
        (POST + b"host: x\r\n\r\n", 400, "invalid_request_error"),
        (POST.replace(b"messages", b"messages/count_tokens"), 408, "invalid_request_error"),
        (b"GET /v1/models HTTP/1.1\r\nhost: x\r\nanthropic-version: 1\r\nx: y\r\n", 408, "invalid_request_error"),
    ],
    ids=["head", "body", "large head", "endless head", "chunk", "hosts", "count_tokens", "version"],
)
async def test_it_has_their_shape(sent: bytes, status: int, kind: str) -> None:
    got, headers, body = await answered(sent, SHORT if status == 408 else LONG)
    assert (got, body["type"], headers["connection"]) == (status, "error", "close")
    assert body["error"] == {"type": kind, "message": body["error"]["message"]}  # type: ignore[index]
    assert headers["request-id"] == headers["x-request-id"] == body["request_id"] != ""


async def test_too_many_connections_are_overload() -> None:
    sent = POST + b"content-length: 0\r\n\r\n"
    status, headers, body = await answered(sent, HttpLimits(connections=0))
    assert (status, headers["retry-after"], body["error"]["type"]) == (529, "1", "overloaded_error")  # type: ignore[index]
    assert headers["request-id"] == body["request_id"]
    status, headers, body = await answered(sent.replace(b"messages", b"responses"), HttpLimits(connections=0))
    assert (status, headers["retry-after"], set(body)) == (503, "1", {"error"})
    assert "request-id" not in headers


@pytest.mark.parametrize("sent", [b"GARBAGE\r\n\r\n", b"POST /v1/responses HTTP/1.1\r\nhost: x\r\n", b"POST /v1/mess"])
async def test_other_paths_keep_openais(sent: bytes) -> None:
    _, headers, body = await answered(sent, SHORT)
    assert set(body) == {"error"}
    assert "x-request-id" in headers


async def test_what_follows_a_whole_request_has_no_path_yet() -> None:
    whole = POST + b"content-length: 0\r\n\r\n"
    _, headers, body = await answered(whole + b"GARBAGE\r\n\r\n")
    assert "request-id" not in headers
    assert set(body) == {"error"}


# As an agent sends them: all kinds of blocks and tools, and fields that other servers do not know.
AGENT: dict[str, Any] = {
    "model": MODEL,
    "max_tokens": 60,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: a"},
        {"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "List the files."}]},
        {"role": "system", "content": "It is Sunday."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "opaque"},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "text", "text": "So.", "citations": None},
            {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"city": "x"}},
            {"type": "tool_use", "id": "call_2.x", "name": "mcp__a", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [
                {"type": "text", "text": "done"}, {"type": "image", "source": {"type": "base64", "data": "AA=="}}]},
            {"type": "tool_result", "tool_use_id": "call_2.x", "content": "done"},
            {"type": "document", "title": "T", "source": {"type": "text", "data": "d"}},
            {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
    ],
    "tools": [
        {"name": "ls", "description": "Lists.", "input_schema": CITY},
        {"type": "custom", "name": "mcp__a", "strict": True, "input_schema": CITY, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "enabled", "budget_tokens": 31999, "display": "omitted"},
    "output_config": {"effort": "high"},
    "stop_sequences": ["never"],
    "temperature": 1.0,
    "top_p": 0.9,
    "top_k": 40,
    "metadata": {"user_id": "u"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "betas": ["nobody-knows"],
}  # fmt: skip
OF_CHAT = (
    "response_format", ".function", "max_completion_tokens", "tool_call", "reasoning_effort", "continue_final", "[",
    "parallel_tool_calls", "'stop'",
)  # fmt: skip


@pytest.mark.parametrize("features", [UNGUIDED, GUIDED], ids=["unguided", "guided"])
def test_a_body_that_went_wrong(folder: Path, features: Any) -> None:
    with running(folder, features) as (engine, asked):
        engine.say("Sure. " + call_text("ls", '{"city": "x"}'), [3])

        @settings(max_examples=examples(180, long=1500))
        @given(body=bodies(AGENT), stream=st.booleans(), path=st.sampled_from(["", "?beta=true", "/count_tokens"]))
        def check(body: dict[str, Any], stream: bool, path: str) -> None:
            body["stream"] = stream
            answer = engine.loop.run_until_complete(asked.client.post(f"/v1/messages{path}", json=body))
            if answer.status_code == 404:
                error_of(answer, 404, "not_found_error")
            elif answer.status_code != 200:
                message = error_of(answer, 400, "invalid_request_error")
                assert [word for word in OF_CHAT if word in message] == []
            elif path == "/count_tokens":
                assert answer.json()["input_tokens"] > 0
            else:
                message_of(answer.text) if stream else checked(answer.json())

        check()
