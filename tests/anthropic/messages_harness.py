"""What tests of messages share: Anthropic's types, strictly, and the order of a stream's events."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import httpx

from tests.app.harness import Gateway
from tests.app.scripted import MODEL
from tests.lazy_module import LazyModule
from tests.published_types import published

if TYPE_CHECKING:
    from tests.anthropic import message_types
else:
    message_types = LazyModule("tests.anthropic.message_types")

VERSION = {"anthropic-version": "2023-06-01"}
USER = [{"role": "user", "content": "Hi"}]
_OURS = tuple(
    f"{part}{name}" for part in ("", "message.", "delta.") for name in ("usage.estimated", "stop_reason_estimated")
)


async def post(running: Gateway, path: str = "/v1/messages", **body: Any) -> httpx.Response:
    """An answer, whatever the status; a model, a limit and a question are filled in."""
    limit = {} if path.endswith("count_tokens") else {"max_tokens": 500}
    return await running.client.post(path, json={"model": MODEL, "messages": USER, **limit, **body})


def checked(answer: dict[str, Any]) -> message_types.Message:
    """A message, strictly of Anthropic's type."""
    message = published(message_types.Message, answer)
    assert all(re.fullmatch(r"toolu_[A-Za-z0-9_-]{1,58}", call.id) for call in message.calls)
    assert message.stop_reason is not None
    assert message.content
    return message


async def whole(running: Gateway, **body: Any) -> message_types.Message:
    """A whole message."""
    answer = await post(running, **body)
    assert answer.status_code == 200, answer.text
    return checked(answer.json())


async def streamed(running: Gateway, **body: Any) -> message_types.Message:
    """The message that a stream tells, whose events must come in Anthropic's order, strictly of its types."""
    answer = await post(running, stream=True, **body)
    assert answer.status_code == 200, answer.text
    return message_of(answer.text)


async def prompt_of(running: Gateway, **body: Any) -> str:
    """The prompt that a request becomes."""
    await whole(running, **body)
    return running.engine.requests[-1].prompt.text


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each with a line that names it; comments are passed over."""
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            if event["type"] in message_types.EVENTS:
                published(message_types.EVENTS[event["type"]], event, _OURS)
            else:  # of which there are no types
                assert event["type"] in {"ping", "error"}
            events.append(event)
    return events


def message_of(text: str) -> message_types.Message:
    """The message of a whole stream, put together as Anthropic's clients do."""
    start, ping, *events, delta, stop = events_of(text)
    kinds = [event["type"] for event in (start, ping, delta, stop)]
    assert kinds == ["message_start", "ping", "message_delta", "message_stop"]
    begun, ended = start["message"], delta["usage"]
    assert (begun["content"], begun["stop_reason"], begun["stop_sequence"]) == ([], None, None)
    assert begun["usage"]["output_tokens"] == 0
    sums = [usage["input_tokens"] + usage["cache_read_input_tokens"] for usage in (begun["usage"], ended)]
    assert sums[0] == sums[1] > 0
    return checked({**begun, **delta["delta"], "usage": ended, "content": _blocks(events)})


def _blocks(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks, of which one is open at a time."""
    blocks: list[dict[str, Any]] = []
    inside: list[dict[str, Any]] = []
    for event in events:
        assert event["index"] == len(blocks)
        assert bool(inside) == (event["type"] != "content_block_start")
        if event["type"] == "content_block_stop":
            blocks.append(_block(*inside))
            inside = []
        else:
            inside.append(event["content_block" if not inside else "delta"])
    assert not inside
    return blocks


def _block(begun: dict[str, Any], *deltas: dict[str, Any]) -> dict[str, Any]:
    """A block, of which the deltas are all that it has."""
    text, thinking, signature, arguments = (
        "".join(delta.get(name, "") for delta in deltas) for name in ("text", "thinking", "signature", "partial_json")
    )
    kinds = [delta["type"] for delta in deltas]
    if begun["type"] == "text":
        assert (begun, {*kinds} - {"text_delta"}) == ({"type": "text", "text": ""}, set())
        return {**begun, "text": text}
    if begun["type"] == "tool_use":
        assert (begun["input"], {*kinds} - {"input_json_delta"}) == ({}, set())
        return {**begun, "input": json.loads(arguments)}
    assert begun == {"type": "thinking", "thinking": "", "signature": ""}
    assert {*kinds[:-1]} <= {"thinking_delta"}
    assert (kinds[-1], signature != "") == ("signature_delta", True)
    return {**begun, "thinking": thinking, "signature": signature}


def error_of(answer: httpx.Response, status: int, kind: str) -> str:
    """The message of an error in Anthropic's shape."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    if status != 413:  # whose type is in Anthropic's documentation alone
        published(message_types.ErrorResponse, found, ("error.details",))
    assert (found["type"], found["error"]["type"]) == ("error", kind)
    assert found["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"] != ""
    message: str = found["error"]["message"]
    assert message
    return message
