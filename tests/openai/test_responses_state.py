"""Responses that are kept: read again, continued, listed and deleted; by their owner only."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.api.openai.responses import previous
from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import Gateway, gateway
from tests.app.scripted import ByteIds, Step
from tests.openai.responses_harness import checked, events_of, last_of, post, streamed, whole

OTHER = "resp_" + "0" * 32


def error_of(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    """Status, param and code."""
    error = answer.json()["error"]
    return answer.status_code, error["param"], error["code"]


async def shown(running: Gateway, response_id: str, **query: Any) -> httpx.Response:
    return await running.client.get(f"/v1/responses/{response_id}", params=query)


async def listed(running: Gateway, response_id: str, **query: Any) -> Any:
    answer = await running.client.get(f"/v1/responses/{response_id}/input_items", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
async def kept(folder: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(folder, max_seq_len=4096, state={"path": tmp_path / "state"}) as running:
        yield running


@pytest.mark.parametrize("way", [whole, streamed])
async def test_a_response_is_read_again(kept: Gateway, way: Any) -> None:
    answer = await way(kept, metadata={"a": "b"}, max_output_tokens=3)
    assert (answer.to_dict()["store"], answer.status) == (True, "incomplete")
    found = await shown(kept, answer.id)
    assert checked(found.json()) == answer
    assert answer.output_text == "Hel"


async def test_what_is_not_to_be_kept_is_not(kept: Gateway) -> None:
    answer = await whole(kept, store=False)
    assert answer.to_dict()["store"] is False
    assert error_of(await shown(kept, answer.id)) == (404, None, "response_not_found")
    rejected = await post(kept, previous_response_id=answer.id)
    assert error_of(rejected) == (400, "previous_response_id", "previous_response_not_found")


async def test_a_gateway_without_a_store_says_so(folder: Path) -> None:
    async with gateway(folder, state={"store": "none"}) as running:
        answer = await post(running, store=True)
        assert answer.json()["store"] is False
        assert answer.headers["x-ignored-parameters"] == "store"
        answer = await post(running)
        assert (answer.json()["store"], answer.headers.get("x-ignored-parameters")) == (False, None)
        assert (await shown(running, answer.json()["id"])).status_code == 404
        rejected = await post(running, background=True)
        assert error_of(rejected) == (400, "background", "unsupported_parameter")
        rejected = await post(running, previous_response_id=answer.json()["id"])
        assert error_of(rejected) == (400, "previous_response_id", "previous_response_not_found")


async def test_two_answers_to_one_response_are_two_branches(kept: Gateway) -> None:
    first = await whole(kept, input="One", instructions="Be terse.")
    second = await streamed(kept, input=[{"role": "user", "content": "Two"}], previous_response_id=first.id)
    assert second.to_dict()["previous_response_id"] == first.id
    other = await whole(kept, input="Else", previous_response_id=first.id)
    assert other.usage is not None
    counted = await kept.client.post(
        "/v1/responses/input_tokens", json={"model": "scripted", "input": "Else", "previous_response_id": first.id}
    )
    assert counted.json()["input_tokens"] == other.usage.input_tokens


async def test_input_items_are_listed_as_openai_lists_them(kept: Gateway) -> None:
    answer = await whole(kept, input=[{"role": "user", "content": text, "id": f"msg_{text}"} for text in "abcde"])
    page = await listed(kept, answer.id, limit=2)
    assert [item["id"] for item in page["data"]] == ["msg_e", "msg_d"]
    assert (page["object"], page["first_id"], page["last_id"], page["has_more"]) == ("list", "msg_e", "msg_d", True)
    page = await listed(kept, answer.id, order="asc", after="msg_c")
    assert [item["content"] for item in page["data"]] == [
        [{"type": "input_text", "text": "d"}], [{"type": "input_text", "text": "e"}],
    ]  # fmt: skip
    assert page["has_more"] is False
    (item,) = (await listed(kept, (await whole(kept, previous_response_id=answer.id)).id))["data"]
    assert (item["role"], item["content"]) == ("user", [{"type": "input_text", "text": "Hi"}])
    for query in ({"limit": "0"}, {"limit": "x"}, {"order": "up"}, {"after": "msg_z\u2028"}):
        rejected = await kept.client.get(f"/v1/responses/{answer.id}/input_items", params=query)
        assert error_of(rejected)[:2] == (400, next(iter(query)))


@pytest.mark.parametrize("of", ["responses/{}/input_items", "conversations/{}/items"])
async def test_before_is_refused_by_name(kept: Gateway, of: str) -> None:
    name = (await whole(kept)).id
    if of.startswith("conv"):
        name = (await kept.client.post("/v1/conversations", json={})).json()["id"]
    rejected = await kept.client.get("/v1/" + of.format(name), params={"before": "msg_1"})
    assert error_of(rejected) == (400, "before", "unsupported_parameter")


async def test_numbers_come_back_as_they_were_sent(kept: Gateway) -> None:
    large, small = 2**80 + 1, -(2**70) - 1
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": large, "minimum": small}}}
    tool = {"type": "function", "name": "later", "parameters": schema}
    item = {"role": "user", "content": "Hi", "mark": large}
    tools = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    answer = await whole(kept, input=[tools, item], tools=[tool], tool_choice="none")
    items = (await listed(kept, answer.id, order="asc"))["data"]
    assert (items[0]["tools"], items[1]["mark"]) == ([tool], large)
    found = (await shown(kept, answer.id)).json()
    assert found["tools"] == [tool]
    made = (await kept.client.post("/v1/conversations", json={"items": [item]})).json()["id"]
    for _ in range(2):  # also when another turn was put behind it
        page = await kept.client.get(f"/v1/conversations/{made}/items", params={"order": "asc"})
        assert page.json()["data"][0]["mark"] == large
        await whole(kept, conversation=made)
    background = (await post(kept, background=True, tools=[tool], tool_choice="none")).json()
    cancelled = await kept.client.post(f"/v1/responses/{background['id']}/cancel")
    assert cancelled.status_code in (200, 400)
    assert (await shown(kept, background["id"])).json()["tools"] == [tool]


@pytest.mark.parametrize("kind", ["reasoning", "compaction", "web_search_call", ""])
async def test_ids_and_states_that_are_none_are_replaced(kept: Gateway, kind: str) -> None:
    odd = [{"role": "user", "content": "Hi", "status": "odd"}, {"type": kind, "id": ["odd"], "summary": []}]
    answer = await whole(kept, input=odd)
    items = (await listed(kept, answer.id, order="asc"))["data"]
    assert items[0]["status"] == "completed"
    assert all(isinstance(item["id"], str) for item in items)
    made = (await kept.client.post("/v1/conversations", json={"items": odd})).json()["id"]
    items = (await kept.client.get(f"/v1/conversations/{made}/items")).json()["data"]
    assert items[-1]["status"] == "completed"


async def test_deleting_ends_the_chain(kept: Gateway) -> None:
    first = await whole(kept)
    second = await whole(kept, previous_response_id=first.id)
    gone = await kept.client.delete(f"/v1/responses/{first.id}")
    assert gone.json() == {"id": first.id, "object": "response", "deleted": True}
    assert (await kept.client.delete(f"/v1/responses/{first.id}")).status_code == 404
    assert (await shown(kept, first.id)).status_code == 404
    assert (await shown(kept, second.id)).status_code == 200
    rejected = await post(kept, previous_response_id=second.id)
    assert error_of(rejected) == (400, "previous_response_id", "previous_response_not_found")
    assert first.id in rejected.json()["error"]["message"]
    assert second.id in rejected.json()["error"]["message"]


async def test_responses_are_their_owners(folder: Path, tmp_path: Path) -> None:
    server = {"api_keys": "mine,yours"}
    async with gateway(folder, server=server, state={"path": tmp_path / "state"}) as running:
        running.client.headers["authorization"] = "Bearer mine"
        answer = await whole(running)
        path = f"/v1/responses/{answer.id}"
        for headers in ({"authorization": "Bearer yours"}, {"authorization": "", "x-api-key": "yours"}):
            running.client.headers.update(headers)
            assert (await running.client.get(path)).status_code == 404
            assert (await running.client.get(f"{path}/input_items")).status_code == 404
            assert (await running.client.post(f"{path}/cancel")).status_code == 404
            assert (await running.client.delete(path)).status_code == 404
            rejected = await post(running, previous_response_id=answer.id)
            assert error_of(rejected) == (400, "previous_response_id", "previous_response_not_found")
        running.client.headers["x-api-key"] = "mine"
        assert checked((await running.client.get(path)).json()) == answer


async def test_expired_responses_are_gone(folder: Path, tmp_path: Path) -> None:
    async with gateway(folder, state={"path": tmp_path / "state", "max_age_s": 0.001}) as running:
        answer = await whole(running)
        assert (await shown(running, answer.id)).status_code == 404
        assert (await post(running, previous_response_id=answer.id)).status_code == 400


@pytest.mark.parametrize(
    "hostile",
    ["x", "resp_", OTHER, OTHER.upper(), OTHER + "%0a", "run_" + OTHER, "conv_" + "0" * 32, "%00", "é", "a" * 4000,
     "..%2f" + OTHER, "'; DROP TABLE documents", OTHER[:-1] + "%d9%a3"],
)  # fmt: skip
async def test_ids_of_nothing(kept: Gateway, hostile: str) -> None:
    for method, end in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
        answer = await kept.client.request(method, f"/v1/responses/{hostile}{end}")
        assert answer.status_code == 404, answer.text
    rejected = await post(kept, previous_response_id=hostile)
    assert error_of(rejected) == (400, "previous_response_id", "previous_response_not_found")


async def test_queries_of_nothing(kept: Gateway) -> None:
    answer = await whole(kept)
    for query in ({"stream": "yes"}, {"stream": "true"}, {"starting_after": "-1"}, {"starting_after": "9" * 5000},
                  {"starting_after": "٣"}):  # fmt: skip
        assert error_of(await shown(kept, answer.id, **query))[:2] == (400, next(iter(query)))
    named = await shown(kept, answer.id, include=["web_search_call.results", "message.output_text.logprobs"])
    assert named.headers["x-ignored-parameters"] == "include.web_search_call.results"
    named = await shown(kept, answer.id, starting_after="0")
    assert named.headers["x-ignored-parameters"] == "starting_after"
    rejected = await kept.client.post(f"/v1/responses/{answer.id}/cancel")
    assert error_of(rejected) == (400, None, None)


async def test_a_chain_has_bounds(kept: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [(await whole(kept)).id]
    for _ in range(3):
        ids.append((await whole(kept, previous_response_id=ids[-1])).id)
    monkeypatch.setattr(previous, "MOST_TURNS", 3)
    assert (await post(kept, previous_response_id=ids[2])).status_code == 200
    rejected = await post(kept, previous_response_id=ids[3])
    assert error_of(rejected) == (400, "previous_response_id", "previous_responses_too_long")
    monkeypatch.setattr(previous, "MOST_TURNS", 100)
    monkeypatch.setattr(previous, "MOST_BYTES", 1000)
    assert (await post(kept, previous_response_id=ids[0])).status_code == 200
    assert error_of(await post(kept, previous_response_id=ids[3]))[2] == "previous_responses_too_long"


async def test_tools_that_each_response_repeats_are_not_what_a_chain_says(
    kept: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = [{"type": "function", "name": "f", "description": "x" * 3000, "parameters": {}}]
    more: dict[str, Any] = {"tools": tools, "tool_choice": "none"}
    monkeypatch.setattr(previous, "MOST_BYTES", 3000)
    last = (await whole(kept, **more)).id
    for _ in range(3):
        last = (await whole(kept, previous_response_id=last, **more)).id
    assert (await shown(kept, last)).json()["tools"] == tools
    monkeypatch.setattr(previous, "MOST_REPEATED", 9000)
    assert error_of(await post(kept, previous_response_id=last))[2] == "previous_responses_too_long"


async def test_broken_streams_are_kept_as_they_ended(folder: Path, tmp_path: Path) -> None:
    def script(_: GenerationRequest) -> list[Step]:
        given: list[Step] = [EngineChunk(ids=[index]) for index in ByteIds(folder).of("Hel")]
        return [*given, EngineError(ErrorKind.INTERNAL, "The engine failed.")]

    async with gateway(folder, script, state={"path": tmp_path / "state"}) as running:
        answer = last_of((await post(running, stream=True)).text)
        assert answer.status == "failed"
        assert checked((await shown(running, answer.id)).json()) == answer
        rejected = await post(running, previous_response_id=answer.id)
        assert error_of(rejected) == (400, "previous_response_id", "previous_response_failed")


async def test_a_client_that_leaves_a_stream_cancels_the_response(folder: Path, tmp_path: Path) -> None:
    goes_on = asyncio.Event()

    def script(_: GenerationRequest) -> list[Step]:
        first, *rest = ByteIds(folder).of("Hello")
        return [
            EngineChunk(ids=[first]),
            goes_on,
            *(EngineChunk(ids=[index]) for index in rest),
            EngineChunk(final=True),
        ]

    state = {"path": tmp_path / "state"}
    async with gateway(folder, script, served=True, state=state) as running:
        body = {"model": "scripted", "input": "Hi", "stream": True}
        text = ""
        async with running.client.stream("POST", "/v1/responses", json=body) as answer:
            async for line in answer.aiter_lines():
                text += f"{line}\n"
                if '"delta"' in line:
                    break
        response_id = events_of(text)[0]["response"]["id"]
        await running.engine.left.wait()
        found = await shown(running, response_id)
        while found.status_code == 404:  # it is written when the client has left
            found = await shown(running, response_id)
        response = found.json()
        assert response["status"] == "cancelled"
        assert [(item["status"], item["content"][0]["text"]) for item in response["output"]] == [("incomplete", "H")]
        goes_on.set()
        assert (await post(running, previous_response_id=response_id)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_cannot_be_kept_is_no_success(folder: Path, tmp_path: Path, stream: bool) -> None:
    large = [{"type": "web_search", "note": "b" * 2**21}]
    async with gateway(folder, state={"path": tmp_path / "state", "max_bytes": 2**20}) as running:
        answer = await post(running, stream=stream, tools=large)
        if stream:
            failed = last_of(answer.text)
            assert failed.error is not None
            assert (failed.status, failed.error.code, failed.output_text) == ("failed", "server_error", "Hello")
        else:
            assert error_of(answer) == (503, None, "store_full")
        assert (await post(running, stream=stream, store=False, tools=large)).status_code == 200


async def test_a_full_disk_costs_the_engine_one_response(folder: Path, tmp_path: Path) -> None:
    large = [{"type": "web_search", "note": "b" * 2**18}]
    async with gateway(folder, state={"path": tmp_path / "state"}) as running:
        first = (await post(running)).json()["id"]
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # as a full disk: no file can grow beyond
        try:
            generated = len(running.engine.requests)
            answer = await post(running, tools=large)
            assert error_of(answer) == (503, None, "store_unavailable")
            assert "generated and is not stored" in answer.json()["error"]["message"]
            assert answer.headers["x-should-retry"] == "false"
            for _ in range(3):
                answer = await post(running, tools=large)
                assert error_of(answer) == (503, None, "store_unavailable")
                assert "generated" not in answer.json()["error"]["message"]
            for more in ({"stream": True}, {"background": True}):
                assert error_of(await post(running, **more)) == (503, None, "store_unavailable")
            assert len(running.engine.requests) == generated + 1
            assert (await shown(running, first)).status_code == 200
            assert (await post(running, store=False)).status_code == 200
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        again = await post(running, tools=large)
        assert again.status_code == 200
        assert (await shown(running, again.json()["id"])).status_code == 200
