"""Conversations: kept with their items, listed by pages, changed by several at once, and nobody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItem, ConversationItemList
from pydantic import TypeAdapter

from gateway.api.openai.conversations.contents import MOST_BYTES, MOST_ITEMS
from tests.app.harness import Gateway, gateway, rejected

ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
USER = {"role": "user", "content": "Hi"}
MANY: list[dict[str, Any]] = [
    USER,
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes?"}]},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "22"},
    {"type": "reasoning", "id": "rs_own", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "note", "input": "a"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "b"},
]
KEYS = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}


async def new(running: Gateway, **body: Any) -> str:
    answer = await running.client.post("/v1/conversations", json=body)
    assert answer.status_code == 200, answer.text
    return Conversation.model_validate(answer.json(), strict=True).id


async def listed(running: Gateway, conversation: str, **query: Any) -> dict[str, Any]:
    answer = await running.client.get(f"/v1/conversations/{conversation}/items", params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    for item in page["data"]:
        ITEM.validate_python(item, strict=True)
    return page


async def test_from_its_beginning_to_its_end(folder: Path) -> None:
    async with gateway(folder) as running:
        made = await new(running, metadata={"topic": "demo"}, items=[USER])
        path = f"/v1/conversations/{made}"
        assert (await running.client.get(path)).json()["metadata"] == {"topic": "demo"}
        updated = await running.client.post(path, json={"metadata": {"topic": "other"}})
        assert Conversation.model_validate(updated.json(), strict=True).metadata == {"topic": "other"}
        assert (await running.client.post(path, json={"metadata": None})).json()["metadata"] == {}
        added = await running.client.post(f"{path}/items", json={"items": MANY})
        page = ConversationItemList.model_validate(added.json(), strict=True)
        assert (len(page.data), page.has_more, page.first_id) == (7, False, page.data[0].id)
        item = page.data[2].id
        shown = (await running.client.get(f"{path}/items/{item}")).json()
        assert ITEM.validate_python(shown, strict=True) == page.data[2]
        assert (await running.client.delete(f"{path}/items/{item}")).json()["id"] == made
        rejected(await running.client.get(f"{path}/items/{item}"), 404, None, "item_not_found")
        rejected(await running.client.delete(f"{path}/items/{item}"), 404, None, "item_not_found")
        assert len((await listed(running, made))["data"]) == 7
        gone = await running.client.delete(path)
        assert ConversationDeletedResource.model_validate(gone.json(), strict=True).deleted
        for method, below in [("GET", ""), ("DELETE", ""), ("GET", "/items"), ("DELETE", "/items/x")]:
            rejected(await running.client.request(method, path + below), 404, None, "conversation_not_found")
        rejected(await running.client.post(path, json={"metadata": {}}), 404, None, "conversation_not_found")


async def test_items_are_listed_as_openai_lists_them(folder: Path) -> None:
    async with gateway(folder) as running:
        made = await new(running, items=MANY)
        items = (await listed(running, made, order="asc"))["data"]
        kinds = ["msg", "msg", "fc", "fco", "rs", "ctc", "ctco"]
        assert [item["id"].partition("_")[0] for item in items] == kinds
        assert items[0] | {"id": ""} == {
            "id": "", "type": "message", "status": "completed", "role": "user",
            "content": [{"type": "input_text", "text": "Hi"}],
        }  # fmt: skip
        assert items[1]["content"] == [{"type": "output_text", "text": "Yes?", "annotations": [], "logprobs": []}]
        assert items[4]["id"] == "rs_own"
        again = await running.client.post(f"/v1/conversations/{made}/items", json={"items": [MANY[4]]})
        assert again.json()["data"][0]["id"] != "rs_own"  # which is taken


async def test_pages(folder: Path) -> None:
    async with gateway(folder) as running:
        made = await new(running, items=[{"role": "user", "content": str(number)} for number in range(25)])
        first = await listed(running, made)
        assert (len(first["data"]), first["has_more"]) == (20, True)
        assert first["data"][0]["content"][0]["text"] == "24"
        rest = await listed(running, made, after=first["last_id"])
        assert [item["content"][0]["text"] for item in rest["data"]] == ["4", "3", "2", "1", "0"]
        assert not rest["has_more"]
        oldest = await listed(running, made, order="asc", limit=1)
        assert (oldest["first_id"], oldest["last_id"]) == (rest["last_id"], rest["last_id"])
        end = await listed(running, made, after=rest["last_id"])
        assert (end["data"], end["first_id"], end["last_id"], end["has_more"]) == ([], None, None, False)


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=-1", "limit"), ("limit=", "limit"),
     ("limit=%EF%BC%91", "limit"),
     ("limit=1e1", "limit"), (f"limit={'9' * 5000}", "limit"), ("order=up", "order"), ("after=x", "after"),
     ("after=%00", "after"), (f"after={'x' * 9000}", "after"), ("after=conv_x", "after")],
)  # fmt: skip
async def test_wrong_pages(folder: Path, query: str, param: str) -> None:
    async with gateway(folder) as running:
        made = await new(running, items=[USER])
        rejected(await running.client.get(f"/v1/conversations/{made}/items?{query}"), 400, param, "invalid_value")


@pytest.mark.parametrize(
    "name",
    ["x", "conv_", "conv_" + "0" * 32, "conv_" + "A" * 32, "resp_" + "0" * 32, "%00", "..%2Fx", "é", "x" * 9000,
     "conv_" + "0" * 32 + "%0A"],
)  # fmt: skip
async def test_ids_that_are_none(folder: Path, name: str) -> None:
    async with gateway(folder) as running:
        for method, below, body in [("GET", "", None), ("POST", "", {"metadata": {}}), ("DELETE", "", None),
                                    ("GET", "/items", None), ("POST", "/items", {"items": [USER]}),
                                    ("GET", "/items/x", None), ("DELETE", "/items/x", None)]:  # fmt: skip
            answer = await running.client.request(method, f"/v1/conversations/{name}{below}", json=body)
            assert answer.status_code == 404, (method, below, answer.text)


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"items": "x"}, "items", "invalid_type"),
        ({"items": [1]}, "items[0]", "invalid_value"),
        ({"items": [{"role": "robot", "content": ""}]}, "items[0].role", "invalid_value"),
        ({"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0]", "invalid_value"),
        ({"items": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]},
         "items[0].content[0]", "unsupported_content_part"),
        ({"items": [USER] * (MOST_ITEMS + 1)}, "items", "array_above_max_length"),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a", "string_above_max_length"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata", "object_above_max_properties"),
    ],
)  # fmt: skip
async def test_wrong_bodies(folder: Path, body: dict[str, Any], param: str, code: str) -> None:
    async with gateway(folder) as running:
        rejected(await running.client.post("/v1/conversations", json=body), 400, param, code)


async def test_fields_that_must_be_there(folder: Path) -> None:
    async with gateway(folder) as running:
        path = f"/v1/conversations/{await new(running)}"
        rejected(await running.client.post(path, json={}), 400, "metadata", "missing_required_parameter")
        rejected(await running.client.post(f"{path}/items", json={}), 400, "items", "missing_required_parameter")
        rejected(await running.client.post(f"{path}/items", json={"items": []}), 400, "items", "empty_array")
        made = await running.client.post("/v1/conversations", json={"metadata": None, "items": None, "colour": 1})
        assert (made.status_code, made.headers["x-ignored-parameters"]) == (200, "colour")


async def test_one_that_is_full_takes_no_more(folder: Path) -> None:
    async with gateway(folder) as running:
        made = await new(running, items=[{"role": "user", "content": "x" * (MOST_BYTES - 2000)}])
        many = await new(running, items=[USER] * (MOST_ITEMS - 1))
        for content, most in (([{"role": "user", "content": "y" * 2000}], made), ([USER, USER], many)):
            full = await running.client.post(f"/v1/conversations/{most}/items", json={"items": content})
            rejected(full, 400, "items", "conversation_too_large")
        assert (await running.client.post(f"/v1/conversations/{many}/items", json={"items": [USER]})).status_code == 200


async def test_two_writers_never_lose_an_item(folder: Path, tmp_path: Path) -> None:
    state = {"path": tmp_path / "state.sqlite"}
    async with gateway(folder, state=state) as one, gateway(folder, state=state) as two:
        made = await new(one)
        path = f"/v1/conversations/{made}/items"

        async def write(running: Gateway, number: int) -> None:
            for part in range(2):
                item = {"role": "user", "content": f"{number}.{part}"}
                assert (await running.client.post(path, json={"items": [item]})).status_code == 200

        await asyncio.gather(*(write(running, number) for number, running in enumerate([one, two] * 12)))
        items = [item["content"][0]["text"] for item in (await listed(two, made, limit=100, order="asc"))["data"]]
        assert sorted(items) == sorted(f"{number}.{part}" for number in range(24) for part in range(2))


async def test_anothers_is_not_there(folder: Path) -> None:
    async with gateway(folder, server={"api_keys": ["one", "two"]}) as running:
        made = (await running.client.post("/v1/conversations", json={"items": [USER]}, headers=KEYS[0])).json()["id"]
        path = f"/v1/conversations/{made}"
        for method, below, body in [("GET", "", None), ("DELETE", "", None), ("POST", "", {"metadata": {}}),
                                    ("GET", "/items", None), ("POST", "/items", {"items": [USER]})]:  # fmt: skip
            answer = await running.client.request(method, path + below, json=body, headers=KEYS[1])
            rejected(answer, 404, None, "conversation_not_found")
        by_other_header = await running.client.get(path, headers={"x-api-key": "one"})
        assert by_other_header.status_code == 200


async def test_without_a_store_it_says_so(folder: Path) -> None:
    async with gateway(folder, state={"store": "none"}) as running:
        rejected(await running.client.post("/v1/conversations", json={}), 404, None, "state_not_kept")


async def test_sealed_reasoning_is_shown_where_it_is_asked_for(folder: Path) -> None:
    wanted = {"include[]": ["reasoning.encrypted_content", "web_search_call.results"]}
    async with gateway(folder, state={"keys": [Fernet.generate_key().decode()]}) as running:
        made = await new(running, items=[MANY[4]])
        assert "encrypted_content" not in (await listed(running, made))["data"][0]
        answer = await running.client.get(f"/v1/conversations/{made}/items", params=wanted)
        assert answer.json()["data"][0]["encrypted_content"].startswith("sealed1.")
        assert answer.headers["x-ignored-parameters"] == "include.web_search_call.results"
    async with gateway(folder) as running:
        answer = await running.client.get(f"/v1/conversations/{made}/items", params=wanted)
        assert "encrypted_content" not in answer.json()["data"][0]
        assert answer.headers["x-ignored-parameters"].startswith("include.reasoning.encrypted_content, include.web")
