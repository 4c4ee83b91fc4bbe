"""Long lists freed item by item: by a thread of their own, whoever had them last, and only what nobody else has."""

from __future__ import annotations

import json
import threading
import weakref
from queue import SimpleQueue
from typing import Any

import orjson
import pytest

from gateway.anthropic.messages.translate import parse_turn as parse_messages_turn
from gateway.bad_request import BadRequestError
from gateway.freed_apart import FreedApart, like
from gateway.openai.chat.messages import conversation
from gateway.openai.chat.protocol import parse_chat_request
from gateway.openai.request_body import as_body, parse_object
from gateway.openai.responses.translate import parse_turn as parse_responses_turn
from gateway.prompt.history import TemplateAbilities, history

Freed = SimpleQueue[tuple[int, int]]


class Item:
    """Tells when it is freed: its number, and by which thread."""

    def __init__(self, number: int, freed: Freed) -> None:
        self._number = number
        self._freed = freed

    def __del__(self) -> None:
        self._freed.put((self._number, threading.get_ident()))


def test_each_item_is_freed_by_another_thread() -> None:
    freed: Freed = SimpleQueue()
    items = FreedApart(Item(number, freed) for number in range(1000))
    del items
    numbers, threads = zip(*(freed.get(timeout=20) for _ in range(1000)), strict=True)
    assert sorted(numbers) == list(range(1000))
    assert threading.get_ident() not in threads


def test_what_an_error_holds_is_freed_there_too() -> None:
    freed: Freed = SimpleQueue()

    def fail() -> None:
        items = FreedApart([Item(0, freed)])
        raise ValueError(len(items))

    with pytest.raises(ValueError, match="1") as caught:
        fail()
    assert freed.empty()
    del caught
    number, thread = freed.get(timeout=20)
    assert number == 0
    assert thread != threading.get_ident()


def test_an_item_that_somebody_has_stays() -> None:
    freed: Freed = SimpleQueue()
    items = FreedApart(Item(number, freed) for number in range(3))
    kept = items[1]
    del items
    assert {freed.get(timeout=20)[0] for _ in range(2)} == {0, 2}
    del kept
    assert freed.get(timeout=20) == (1, threading.get_ident())


def test_the_list_itself_ends_with_its_items() -> None:
    freed: Freed = SimpleQueue()
    lists = [FreedApart([Item(number, freed)]) for number in range(2)]
    first = weakref.ref(lists[0])
    while lists:
        del lists[0]
    assert [freed.get(timeout=20)[0] for _ in range(2)] == [0, 1]
    assert first() is None  # the thread has gone on to the second
    assert freed.empty()


def test_it_is_a_list() -> None:
    items = FreedApart([{"a": 1}, "b"])
    assert items == [{"a": 1}, "b"]
    assert json.loads(json.dumps(items)) == orjson.loads(orjson.dumps(items)) == items


def test_what_is_made_of_it_is_freed_alike() -> None:
    assert type(like(FreedApart([1]), [2])) is FreedApart
    assert type(like([1], [2])) is list


def _body(field: str, count: int, **more: Any) -> bytes:
    message = {"role": "user", "content": "a" * 300}
    return json.dumps({"model": "m", field: [message] * count, **more}).encode()


@pytest.mark.parametrize("count", [500, 1500])  # of which the second body is parsed by another process
def test_the_arrays_of_a_large_body_are_freed_apart(count: int) -> None:
    parsed = parse_object(as_body([_body("messages", count)]))
    assert type(parsed["messages"]) is FreedApart
    assert type(parse_object(_body("messages", 5))["messages"]) is list
    assert type(parse_object(as_body([_body("messages", 250)]))["messages"]) is list


def test_a_long_array_in_a_schema_is_freed_apart() -> None:
    schema = {"anyOf": [{"type": "object", "properties": {f"p{index}": {}}} for index in range(300)], "enum": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    parsed = parse_object(as_body([_body("messages", 300, response_format=form)]))
    found = parsed["response_format"]["json_schema"]["schema"]
    assert found == schema
    assert (type(found["anyOf"]), type(found["enum"])) == (FreedApart, list)


def test_a_conversation_in_a_templates_terms_is_freed_alike() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    for abilities in (TemplateAbilities(), TemplateAbilities(system_in_calls=False, late_systems=False)):
        made = history(FreedApart(messages), abilities)
        assert type(made) is FreedApart
        assert made == history(messages, abilities)
        assert type(history(messages, abilities)) is list


@pytest.mark.parametrize("name", [{}, {"name": None}])
@pytest.mark.parametrize("count", [300, 600])  # of which the second are checked some at a time
def test_messages_of_a_large_request_are_freed_apart(count: int, name: dict[str, None]) -> None:
    message = {"role": "user", "content": "a" * 1000, **name}
    request = parse_chat_request(json.dumps({"model": "m", "messages": [message] * count}).encode())
    assert len(request.messages) == count
    assert type(request.messages) is type(conversation(request.messages)) is FreedApart
    last = weakref.ref(request.messages[-1])
    freed: SimpleQueue[int] = SimpleQueue()
    weakref.finalize(request.messages[0], lambda: freed.put(threading.get_ident()))
    del request
    assert freed.get(timeout=20) != threading.get_ident()
    assert last() is None


def test_those_of_a_translated_request_as_well() -> None:
    responses = parse_responses_turn(_body("input", 500))
    messages = parse_messages_turn(_body("messages", 500, max_tokens=1), ())
    assert type(responses.conversed) is FreedApart
    for turn in (responses, messages):
        assert type(turn.chat.messages) is FreedApart
        assert len(turn.chat.messages) == 500


def test_a_request_that_is_refused_names_the_same_place() -> None:
    body = json.loads(_body("messages", 500))
    body["messages"][400] = {"role": "user"}
    with pytest.raises(BadRequestError) as caught:
        parse_chat_request(json.dumps(body).encode())
    assert caught.value.param == "messages[400].content"
