"""Responses that go on with a conversation, with sealed reasoning, with items of other responses, or with a summary."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types.conversations import Message
from openai.types.responses import Response, ResponseCompactionItem, ResponseUsage

from gateway.api.openai.responses.compact import PROMPT
from gateway.api.openai.responses.translate import SUMMARY
from gateway.generation import EngineChunk, EngineError, ErrorKind, GenerationRequest
from tests.app.harness import Gateway, gateway, rejected
from tests.app.scripted import MODEL, ByteIds, Step, write_tokenizer
from tests.openai.responses_harness import events_of, post, streamed, whole
from tests.openai.tools_harness import SHOWS_ALL, UNGUIDED

OLD, NEW = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in range(2))
ENCRYPTED = "reasoning.encrypted_content"
UNREAD = "input.reasoning.encrypted_content"
THOUGHT = "Hm, é."
THINKS = f"<think>\n{THOUGHT}\n</think>\n\nSo."
WAYS = pytest.mark.parametrize("way", [whole, streamed])


@pytest.fixture(scope="module")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("sealed"), SHOWS_ALL + "{# <think> #}")


class Says:
    """An engine that says what its test tells it to, or fails behind it."""

    def __init__(self, folder: Path) -> None:
        self.text = THINKS
        self.fails = False
        self._ids = ByteIds(folder)

    def __call__(self, request: GenerationRequest) -> list[Step]:
        steps: list[Step] = [EngineChunk(ids=[each]) for each in self._ids.of(self.text)[: request.max_tokens]]
        return [*steps, EngineError(ErrorKind.INTERNAL, "It failed.") if self.fails else EngineChunk(final=True)]


@pytest.fixture
async def says(thinks: Path) -> Says:
    return Says(thinks)


@pytest.fixture
async def running(thinks: Path, says: Says, tmp_path: Path) -> AsyncIterator[Gateway]:
    state = {"path": tmp_path / "state.sqlite", "keys": [OLD]}
    async with gateway(thinks, says, features=UNGUIDED, max_seq_len=4096, state=state) as started:
        yield started


async def conversation(running: Gateway, *items: dict[str, Any]) -> str:
    made = await running.client.post("/v1/conversations", json={"items": items})
    assert made.status_code == 200, made.text
    found: str = made.json()["id"]
    return found


async def kept(running: Gateway, name: str) -> list[str]:
    """The items of a conversation as words, the oldest first."""
    page = await running.client.get(f"/v1/conversations/{name}/items?order=asc&limit=100")
    return [
        f"{item.get('role', item['type'])}: {item.get('content', [{}])[0].get('text')}" for item in page.json()["data"]
    ]


def shown(running: Gateway) -> str:
    return running.engine.requests[-1].prompt.text


@WAYS
async def test_a_conversation_goes_on(running: Gateway, says: Says, way: Any) -> None:
    says.text = "Yes."
    name = await conversation(running, {"role": "system", "content": "Be kind."})
    first: Response = await way(running, conversation=name, input="One?")
    assert first.conversation is not None
    assert first.conversation.id == name
    await way(running, conversation={"id": name}, input=[{"role": "user", "content": "Two?"}])
    for part in ("Be kind.", "One?", "Yes.", "Two?"):
        assert part in shown(running)
    assert await kept(running, name) == [
        "system: Be kind.", "user: One?", "assistant: Yes.", "user: Two?", "assistant: Yes.",
    ]  # fmt: skip
    stored = (await running.client.get(f"/v1/responses/{first.id}")).json()
    assert (stored["conversation"], stored["output"][0]["id"]) == ({"id": name}, first.output[0].id)
    counted = {"model": MODEL, "conversation": name, "input": "Three?"}
    count = (await running.client.post("/v1/responses/input_tokens", json=counted)).json()["input_tokens"]
    assert count > len("Be kind.One?Yes.Two?Yes.Three?")
    assert len(await kept(running, name)) == 5  # a count is no turn


@WAYS
async def test_a_prewarmed_prompt_leaves_no_trace(running: Gateway, says: Says, way: Any) -> None:
    says.text = "Yes."
    name = await conversation(running, {"role": "user", "content": "One?"})
    prewarm = {"prompt_cache_options": {"prewarm": True}, "input": "Two?"}
    for more in ({}, {"store": True}, {"store": False}):
        warmed: Response = await way(running, conversation=name, **prewarm, **more)
        assert "One?" in shown(running)
        assert (warmed.output, warmed.to_dict()["store"]) == ([], False)
        assert await kept(running, name) == ["user: One?"]
        assert (await running.client.get(f"/v1/responses/{warmed.id}")).status_code == 404
    named = await post(running, store=True, **prewarm)
    assert named.headers["x-ignored-parameters"] == "store"
    rejected(await post(running, background=True, **prewarm), 400, "background", "invalid_value")
    first: Response = await way(running, conversation=name, input="Two?")
    assert first.to_dict()["store"] is True
    assert await kept(running, name) == ["user: One?", "user: Two?", "assistant: Yes."]


async def test_an_answer_that_is_cut_is_a_turn(running: Gateway, says: Says) -> None:
    says.text = "Yes."
    name = await conversation(running)
    assert (await whole(running, conversation=name, max_output_tokens=2)).status == "incomplete"
    assert await kept(running, name) == ["user: Hi", "assistant: Ye"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_fails_is_no_turn(running: Gateway, says: Says, stream: bool) -> None:
    says.fails, says.text = True, "Yes."
    name = await conversation(running)
    answer = await post(running, conversation=name, stream=stream)
    assert answer.status_code == (200 if stream else 500)
    assert not stream or events_of(answer.text)[-1]["type"] == "response.failed"
    assert await kept(running, name) == []


async def test_a_conversation_that_vanishes_makes_the_response_fail(thinks: Path, tmp_path: Path) -> None:
    go = asyncio.Event()
    script: list[Step] = [EngineChunk(ids=[each]) for each in ByteIds(thinks).of("Yes.")]
    state = {"path": tmp_path / "state.sqlite"}
    script += [go, EngineChunk(final=True)]
    async with gateway(thinks, lambda _: script, features=UNGUIDED, state=state) as running:
        for stream in (False, True):
            go.clear()
            running.engine.asked.clear()
            name = await conversation(running)
            asked = asyncio.create_task(post(running, conversation=name, stream=stream))
            await running.engine.asked.wait()
            assert (await running.client.delete(f"/v1/conversations/{name}")).status_code == 200
            go.set()
            answer = await asked
            if stream:
                last = events_of(answer.text)[-1]
                assert last["type"] == "response.failed"
                assert "not found" in last["response"]["error"]["message"]
            else:
                rejected(answer, 404, None, "conversation_not_found")


@contextlib.contextmanager
def failing(path: Path, when: str) -> Iterator[None]:
    """The store fails writes of responses."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(
            f"CREATE TRIGGER fails BEFORE {when} ON documents WHEN NEW.key LIKE 'resp%' AND NEW.version != 2"
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        yield
        other.execute("DROP TRIGGER fails")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_that_cannot_be_kept_is_no_turn(
    running: Gateway, says: Says, tmp_path: Path, stream: bool
) -> None:
    says.text = "Yes."
    name = await conversation(running)
    with failing(tmp_path / "state.sqlite", "INSERT"):
        answer = await post(running, conversation=name, stream=stream)
    assert answer.status_code == (200 if stream else 503)
    assert not stream or events_of(answer.text)[-1]["type"] == "response.failed"
    assert await kept(running, name) == []
    await whole(running, conversation=name)
    assert await kept(running, name) == ["user: Hi", "assistant: Yes."]


async def test_a_background_response_is_one_turn_however_often_its_end_is_written(
    running: Gateway, says: Says, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    says.text = "Yes."
    name = await conversation(running)
    with failing(tmp_path / "state.sqlite", "UPDATE"):
        begun = (await post(running, conversation=name, background=True)).json()["id"]
        while "the store cannot be used" not in caplog.text:
            found = (await running.client.get(f"/v1/responses/{begun}")).json()
            assert found["status"] in ("queued", "in_progress")
        assert await kept(running, name) == []
    while found["status"] != "completed":
        found = (await running.client.get(f"/v1/responses/{begun}")).json()
    assert await kept(running, name) == ["user: Hi", "assistant: Yes."]


@pytest.mark.parametrize("by", ["previous_response_id", "conversation"])
async def test_items_that_are_sent_again_stand_once_in_the_prompt(running: Gateway, by: str) -> None:
    name = await conversation(running)
    ask = {"id": "msg_mine", "role": "user", "content": "One?"}
    first = await whole(running, input=[ask], **({"conversation": name} if by == "conversation" else {}))
    more = {by: name if by == "conversation" else first.id}
    output: list[dict[str, Any]] = [item.to_dict() for item in first.output]
    bare: list[dict[str, Any]] = [
        {**output[0], "content": None},
        {key: output[1][key] for key in ("id", "type", "role", "content")},
    ]
    again = [ask, *bare, {"role": "user", "content": "One?"}, {"role": "user", "content": "Two?"}]
    second = await post(running, input=again, **more)
    assert second.headers["x-ignored-parameters"] == "input.duplicate"
    assert [shown(running).count(text) for text in ("One?", THOUGHT, "So.", "Two?")] == [2, 1, 1, 1]
    listed = await running.client.get(f"/v1/responses/{second.json()['id']}/input_items?order=asc")
    assert [item["content"][0]["text"] for item in listed.json()["data"]] == ["One?", "Two?"]
    third = [{"role": "user", "content": "Three?"}, {**ask, "content": "Else?"}]
    rejected(await post(running, input=third, **more), 400, "input[1].id", "duplicate_item")


async def test_turns_at_the_same_time_are_all_kept(running: Gateway, says: Says) -> None:
    says.text = "Yes."
    name = await conversation(running)
    await asyncio.gather(*(whole(running, conversation=name, input=str(number)) for number in range(8)))
    items = await kept(running, name)
    assert sorted(items[::2]) == [f"user: {number}" for number in range(8)]
    assert items[1::2] == ["assistant: Yes."] * 8


async def test_conversations_that_cannot_go_on(running: Gateway, thinks: Path) -> None:
    name = await conversation(running)
    before = (await whole(running)).id
    rejected(await post(running, conversation="conv_" + "0" * 32), 404, "conversation", "conversation_not_found")
    rejected(await post(running, conversation=before), 404, "conversation", "conversation_not_found")
    rejected(await post(running, conversation={}), 400, "conversation.id", "missing_required_parameter")
    rejected(await post(running, conversation=7), 400, "conversation", "invalid_type")
    both = {"conversation": name, "previous_response_id": before}
    rejected(await post(running, **both), 400, None, "mutually_exclusive_parameters")
    rejected(await post(running, conversation=name, store=False), 400, "conversation", "invalid_value")
    inside = (await whole(running, conversation=name)).id
    alone = await post(running, previous_response_id=inside)
    rejected(alone, 400, "previous_response_id", "previous_response_in_conversation")
    assert name in alone.json()["error"]["message"]
    broken = await conversation(running, {"type": "function_call_output", "call_id": "x", "output": "y"})
    rejected(await post(running, conversation=broken), 400, "conversation.call_id", "invalid_value")
    full = await conversation(running, *[{"role": "user", "content": ""}] * 4096)
    rejected(await post(running, conversation=full), 400, "conversation", "conversation_too_large")
    async with gateway(thinks, state={"store": "none"}) as bare:
        rejected(await post(bare, conversation=name), 400, "conversation", "unsupported_parameter")


async def test_anothers_conversation_does_not_go_on(thinks: Path, says: Says, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"state": {"path": tmp_path / "s"}, "server": {"api_keys": ["one", "two"]}}
    async with gateway(thinks, says, features=UNGUIDED, **settings) as running:
        running.client.headers["x-api-key"] = "one"
        name = await conversation(running)
        item = (await whole(running)).output[-1].id
        running.client.headers["x-api-key"] = "two"
        rejected(await post(running, conversation=name), 404, "conversation", "conversation_not_found")
        referring = [{"type": "item_reference", "id": item}]
        rejected(await post(running, input=referring), 400, "input[0].id", "item_not_found")


@WAYS
async def test_sealed_reasoning_comes_back(running: Gateway, thinks: Path, way: Any) -> None:
    answer: Response = await way(running, include=[ENCRYPTED], store=False)
    reasoning = answer.output[0].to_dict()
    assert str(reasoning["encrypted_content"]).startswith("sealed1.")
    assert reasoning["content"] == [{"type": "reasoning_text", "text": THOUGHT}]
    assert "encrypted_content" not in (await way(running)).output[0].to_dict()
    user, said = {"role": "user", "content": "And?"}, {"role": "assistant", "content": "So."}
    async with gateway(
        thinks, features=UNGUIDED, max_seq_len=4096, state={"keys": [NEW, OLD], "store": "none"}
    ) as second:
        only = {"type": "reasoning", "summary": [], "encrypted_content": reasoning["encrypted_content"]}
        for bare in ({**reasoning, "content": None}, {**reasoning, "content": []}, only):
            again = await post(second, input=[user, bare, said, user], store=False)
            assert again.status_code == 200, again.text
            assert "x-ignored-parameters" not in again.headers
            assert THOUGHT in shown(second)


async def test_sealed_reasoning_that_nobody_can_open_is_named(running: Gateway, thinks: Path) -> None:
    sealed = str((await whole(running, include=[ENCRYPTED])).output[0].to_dict()["encrypted_content"])
    user, said = {"role": "user", "content": "And?"}, {"role": "assistant", "content": "So."}
    foreign = ["", "x", "gAAAAABo" + "A" * 64, sealed[:-5], sealed[:40], "sealed1.", "sealed2." + sealed[8:],
               sealed + "é", sealed.replace("A", "B"), "sealed1." + "A" * 8_000_000, 7, [], {"a": sealed}]  # fmt: skip
    async with gateway(thinks, features=UNGUIDED, max_seq_len=4096, state={"keys": [OLD], "store": "none"},
                       server={"api_keys": ["other"]}) as second:  # fmt: skip
        second.client.headers["x-api-key"] = "other"
        for content in [sealed, *foreign]:
            item: dict[str, Any] = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Short."}]}
            item |= {"content": None, "encrypted_content": content}
            answer = await post(second, input=[user, item, said, user], store=False)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-ignored-parameters"] == UNREAD
            assert THOUGHT not in shown(second)
            assert "Short." in shown(second)


async def test_items_of_other_responses(running: Gateway, says: Says) -> None:
    first = await whole(running, input="One?")
    says.text = "Two."
    names = [item.id for item in first.output]
    user = {"role": "user", "content": "And?"}
    referring = [user, *({"type": "item_reference", "id": name} for name in [*names, *names]), user]
    second = await post(running, input=referring)
    assert second.status_code == 200, second.text
    assert "x-ignored-parameters" not in second.headers
    assert (shown(running).count(THOUGHT), shown(running).count("So.")) == (1, 1)
    listed = await running.client.get(f"/v1/responses/{second.json()['id']}/input_items?order=asc")
    assert [item["id"] for item in listed.json()["data"]][1:3] == names
    third = await whole(running, previous_response_id=second.json()["id"], input=referring[1:3])
    assert third.output_text == "Two."
    assert shown(running).count("So.") == 1  # what is there already is not said again


async def test_items_that_are_not_there(running: Gateway) -> None:
    gone = await whole(running)
    await running.client.delete(f"/v1/responses/{gone.id}")
    unkept = await whole(running, store=False)
    for name in (gone.output[-1].id, unkept.output[-1].id, "msg_1", "msg_" + "0" * 36, "msg_" + "0" * 3000, "\ufffe"):
        rejected(
            await post(running, input=[{"type": "item_reference", "id": name}]), 400, "input[0].id", "item_not_found"
        )
    many = [{"type": "item_reference", "id": f"msg_{number:032x}0000"} for number in range(1025)]
    rejected(await post(running, input=many), 400, "input", "item_references_too_many")
    user = {"role": "user", "content": "Hi"}
    passed = await post(running, input=[{"type": "item_reference", "id": "rs_" + "0" * 36}, user])
    assert passed.headers["x-ignored-parameters"] == "input.item_reference"


LONG = [
    {"role": "developer", "content": "Be terse."},
    {"role": "user", "content": "Weather in Rome?"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Look."}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "22 degrees"},
    {"role": "assistant", "content": "Warm."},
    {"role": "user", "content": "And Oslo?"},
]


async def test_a_conversation_is_compacted(running: Gateway, says: Says) -> None:
    says.text = "<think>\nHm.\n</think>\n\nRome is warm; Oslo is open."
    body = {"model": MODEL, "input": LONG, "instructions": "Be kind.", "colour": "red", "service_tier": "auto"}
    answer = await running.client.post("/v1/responses/compact", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ignored-parameters"] == "colour"
    made = answer.json()
    usage = ResponseUsage.model_validate(made["usage"], strict=True)
    assert (made["object"], made["id"][:5], usage.output_tokens) == ("response.compaction", "resp_", len(says.text))
    for part in ("Be kind.", "22 degrees", "Warm.", PROMPT):
        assert part in shown(running)
    *stay, summary = answer.json()["output"]
    ResponseCompactionItem.model_validate(summary, strict=True)
    assert [Message.model_validate(item, strict=True).role for item in stay] == ["developer", "user", "user"]
    assert [item["content"][0]["text"] for item in stay] == ["Be terse.", "Weather in Rome?", "And Oslo?"]
    assert (summary["type"], "Rome" in summary["encrypted_content"]) == ("compaction", False)
    says.text = "So."
    again = await post(running, input=[*stay, summary, {"role": "user", "content": "Well?"}], store=False)
    assert (again.status_code, again.headers.get("x-ignored-parameters")) == (200, None)
    assert f"{SUMMARY}\n\nRome is warm; Oslo is open." in shown(running)
    assert "22 degrees" not in shown(running)
    smuggled = {"type": "reasoning", "summary": [], "encrypted_content": summary["encrypted_content"]}
    passed = await post(running, input=[smuggled, {"role": "user", "content": "Well?"}])
    assert passed.headers["x-ignored-parameters"] == UNREAD


async def test_a_kept_conversation_is_compacted(running: Gateway, says: Says) -> None:
    first = await whole(running, input="One?")
    answer = await running.client.post("/v1/responses/compact", json={"model": MODEL, "previous_response_id": first.id})
    assert answer.status_code == 200, answer.text
    assert [item["type"] for item in answer.json()["output"]] == ["message", "compaction"]
    more = {"model": MODEL, "previous_response_id": first.id, "input": [answer.json()["output"][-1]]}
    assert (await running.client.post("/v1/responses/compact", json=more)).status_code == 200


async def test_what_cannot_be_compacted(running: Gateway, says: Says) -> None:
    async def compact(**body: Any) -> httpx.Response:
        return await running.client.post("/v1/responses/compact", json={"model": MODEL, **body})

    rejected(await compact(), 400, "input", "missing_required_parameter")
    rejected(await compact(input=[]), 400, "input", "missing_required_parameter")
    rejected(await compact(input=[{"role": "robot"}]), 400, "input[0].role", "invalid_value")
    rejected(await compact(previous_response_id="x"), 400, "previous_response_id", "previous_response_not_found")
    rejected(await compact(model="other", input="Hi"), 404, "model", "model_not_found")
    others = {"stream": True, "background": True, "conversation": 7, "temperature": "x", "tools": 1, "store": True}
    named = await compact(input="Hi", **others)
    assert (named.status_code, set(named.headers["x-ignored-parameters"].split(", "))) == (200, set(others))
    rejected(await compact(input="Hi", instructions=7), 400, "instructions", "invalid_type")
    says.text = "endless " * 1000
    rejected(await compact(input="Hi"), 400, "input", "context_length_exceeded")
    says.text = " "
    rejected(await compact(input="Hi"), 500, None, "invalid_model_output")
    says.fails = True
    assert (await compact(input="Hi")).status_code == 500
