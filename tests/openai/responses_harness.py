"""What tests of responses share: answers strictly of the OpenAI SDK's types, and the order of a stream's events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from gateway.generation import EngineChunk, EngineFeatures, GenerationRequest
from tests.app.harness import Gateway, gateway
from tests.app.scripted import MODEL, ByteIds, Step
from tests.published_types import published

_EVENTS: dict[str, type[BaseModel]] = {
    get_args(event.model_fields["type"].annotation)[0]: event for event in get_args(get_args(ResponseStreamEvent)[0])
}
_REPEATED = ("tools", "tool_choice", "text")  # as the client sent it
# What OpenAI answers, or we do, and its SDK does not type: whether a response is kept, the status of a custom call; in
# events a call's name at the end of its arguments, padding, and the bytes of log-probs, which items have.
_OURS = (*_REPEATED, "store", "output.status", "status_estimated", "usage.output_tokens_details.estimated")
_OURS_IN_EVENTS = (
    "name",
    "obfuscation",
    "logprobs.bytes",
    "logprobs.top_logprobs.bytes",
    "item.status",
    *(f"response.{path}" for path in _OURS),
)
_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}


async def post(running: Gateway, **body: Any) -> httpx.Response:
    """An answer, whatever the status."""
    return await running.client.post("/v1/responses", json={"model": MODEL, "input": "Hi", **body})


async def whole(running: Gateway, **body: Any) -> Response:
    """A whole response, strictly of OpenAI's type."""
    answer = await post(running, **body)
    assert answer.status_code == 200, answer.text
    return checked(answer.json())


async def streamed(running: Gateway, **body: Any) -> Response:
    """The response of a stream's last event; its events must come in order, strictly of OpenAI's types."""
    answer = await post(running, stream=True, **body)
    assert answer.status_code == 200, answer.text
    return last_of(answer.text)


def checked(response: dict[str, Any]) -> Response:
    """A response, strictly of OpenAI's type, whose items have ended."""
    made = published(Response, response, _OURS)
    assert made.usage is None or made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens
    assert (made.status == "failed") == (made.error is not None)
    assert (made.status == "incomplete") == (made.incomplete_details is not None)
    assert (made.status == "completed") == (made.completed_at is not None)
    return made


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each named as its type says and numbered from 0."""
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def last_of(text: str) -> Response:
    """The response at the end of a stream whose events come in the order that OpenAI's have."""
    events = events_of(text)
    for event in events:
        published(_EVENTS[event["type"]], event, _OURS_IN_EVENTS)
    opening, closing = events[:2], events[-1]
    assert [event["type"] for event in opening] == ["response.created", "response.in_progress"]
    for event in opening:
        assert (event["response"]["status"], event["response"]["output"]) == ("in_progress", [])
    response = closing["response"]
    assert closing["type"] == _ENDS[response["status"]]
    assert {key for key in response if response[key] != opening[0]["response"].get(key)} <= {
        "status", "status_estimated", "output", "usage", "completed_at", "error", "incomplete_details",
    }  # fmt: skip
    items = _items(events[2:-1])
    if response["status"] != "failed":
        assert response["output"] == items
    else:
        assert response["output"][: len(items)] == items
        assert [item["status"] for item in response["output"][len(items) :]] in ([], ["incomplete"])
    return checked(response)


def _items(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that ended, of which one is open at a time."""
    done: list[dict[str, Any]] = []
    pattern = re.compile(r"(added )(content_part.added )?((?:delta )*)(done )(content_part.done )?(item.done )")
    names = {"response.output_item.added": "added", "response.output_item.done": "item.done"}
    open_events: list[dict[str, Any]] = []
    for event in events:
        open_events.append(event)
        assert event["output_index"] == len(done)
        if event["type"] == "response.output_item.done":
            kinds = [names.get(each["type"]) or each["type"].removeprefix("response.") for each in open_events]
            short = " ".join(kind if kind in {"added", "item.done"} or "part" in kind else kind.split(".")[-1]
                             for kind in kinds)  # fmt: skip
            assert pattern.fullmatch(f"{short} "), short
            done.append(_item(open_events))
            open_events = []
    return done


def _item(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One item: what its events say is what it has."""
    begun, ended = events[0]["item"], events[-1]["item"]
    assert {key for key in ended if ended[key] != begun.get(key)} <= {
        "status", "content", "arguments", "input", "encrypted_content",
    }  # fmt: skip
    assert begun["status"] == "in_progress"
    assert all(event["item_id"] == ended["id"] for event in events[1:-1])
    deltas = [event for event in events if event["type"].endswith(".delta")]
    text = "".join(event["delta"] for event in deltas)
    (whole,) = (event for event in events if event["type"].endswith(".done") and "part" not in event["type"]
                and "output_item" not in event["type"])  # fmt: skip
    if ended["type"] in {"message", "reasoning"}:
        (part,) = ended["content"]
        assert (begun["content"], part["text"], whole["text"]) == ([], text, text)
        assert all(event["content_index"] == 0 for event in events[1:-1])
        assert events[1]["part"] == {**part, "text": "", **({"logprobs": []} if "logprobs" in part else {})}
        assert events[-2]["part"] == part
        if ended["type"] == "message":
            assert whole["logprobs"] == part["logprobs"] == [entry for event in deltas for entry in event["logprobs"]]
    else:
        name = "arguments" if ended["type"] == "function_call" else "input"
        assert (begun[name], ended[name], whole[name]) == ("", text, text)
    return dict(ended)


class Engine:
    """A running gateway whose engine says what a test tells it to, in chunks of given sizes."""

    def __init__(self, folder: Path) -> None:
        self._ids = ByteIds(folder)
        self._text = ""
        self._sizes = [1]
        self.loop = asyncio.new_event_loop()

    def say(self, text: str, sizes: list[int]) -> None:
        self._text, self._sizes = text, sizes

    def script(self, request: GenerationRequest) -> list[Step]:
        ids = self._ids.of(self._text)[: request.max_tokens]
        steps: list[Step] = []
        place = 0
        while ids:
            size = self._sizes[place % len(self._sizes)]
            given, best = ids[:size], range(request.params.top_logprobs)
            logprobs = [-0.5] * len(given) if request.params.logprobs else None
            others = [[(index + rank, -0.5 - rank) for rank in best] for index in given]
            steps.append(EngineChunk(ids=given, logprobs=logprobs, top_logprobs=others))
            ids, place = ids[size:], place + 1
        return [*steps, EngineChunk(final=True)]


@contextlib.contextmanager
def running(folder: Path, features: EngineFeatures, max_seq_len: int = 4096) -> Iterator[tuple[Engine, Gateway]]:
    engine = Engine(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(engine.loop.close)
        context = gateway(folder, engine.script, features=features, max_seq_len=max_seq_len)
        started = engine.loop.run_until_complete(context.__aenter__())
        stack.callback(lambda: engine.loop.run_until_complete(context.__aexit__(None, None, None)))
        yield engine, started
