"""What a model is shown of each part of a Messages request, and what the request is served without."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.api.anthropic.messages import signatures
from gateway.api.anthropic.messages.protocol import InputMessage
from gateway.api.anthropic.messages.serving import folded
from gateway.api.anthropic.messages.tools import client_call_id, own_call_id
from gateway.api.anthropic.messages.translate import ChatMessages
from gateway.api.openai.chat.protocol import chat_request
from tests.anthropic.messages_harness import USER, error_of, post, prompt_of, whole
from tests.app.harness import Gateway, gateway
from tests.app.scripted import MODEL, TEMPLATE, write_tokenizer
from tests.openai.responses_harness import Engine, running
from tests.openai.tools_harness import GUIDED, UNGUIDED

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 524288},
        "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
    },
    "required": ["path"],
    "additionalProperties": False,
}
BASH = {"name": "Bash", "description": "Runs it.", "input_schema": SCHEMA}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
LEFT_OUT = "[An image was left out: this model reads text only.]"


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def use(call_id: str = "toolu_1", name: str = "Bash", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str = "toolu_1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **more}


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


CALL = '<call>toolu_1 {"path": "a"}'
ASKED = [*USER, assistant(use(path="a"))]
CALLED = turn("user", "Hi") + turn("assistant", CALL)


def answered(said: str) -> str:
    return turn("tool", f"{said}<result toolu_1 Bash>")


HI = turn("user", "Hi")
UNSEEN = signatures.signature_of("Hm.", has_text=False)
OPEN = "<|im_start|>assistant\n"

ROWS: dict[str, tuple[Any, ...]] = {
    "system as blocks": ({"system": [text("a"), text("b")]}, turn("system", "a\n\nb") + HI),
    "no line of billing": (
        {"system": [text("x-anthropic-billing-header: cc_version=2.1; cch=1;"), text("a")]},
        turn("system", "a") + HI, "system.x-anthropic-billing-header"),
    "an empty system": ({"system": ""}, HI),
    "a system turn that leads": (
        {"system": "a", "messages": [{"role": "system", "content": "b"}, *USER]},
        turn("system", "a\n\nb") + HI),
    "a system turn behind the user's stays there": (
        {"messages": [*USER, {"role": "system", "content": [text("s")]}]},
        HI + turn("system", "s")),
    "a system turn never parts a call and its result": (
        {"messages": [*ASKED, {"role": "system", "content": "s"}, user(result(content="x"), text("Go on"))]},
        CALLED + answered("x") + turn("system", "s") + turn("user", "Go on")),
    "a system turn behind a result": (
        {"messages": [*ASKED, user(result(content="x")), {"role": "system", "content": "s"}]},
        CALLED + answered("x") + turn("system", "s")),
    "an answer as a string": (
        {"messages": [*USER, {"role": "assistant", "content": "So."}, *USER]},
        HI + turn("assistant", "So.") + HI),
    "results go before the text of their turn": (
        {"messages": [*ASKED, user(text("now"), result(content="x"))]},
        CALLED + answered("x") + turn("user", "now")),
    "a result as blocks": ({"messages": [*ASKED, user(result(content=[text("x"), text("y")]))]},
                           CALLED + answered("x\ny")),
    "a result without content": ({"messages": [*ASKED, user(result())]}, CALLED + answered("")),
    "a result that is an error": (
        {"messages": [*ASKED, user(result(content="no", is_error=True))]}, CALLED + answered("Error: no")),
    "an error without content": (
        {"messages": [*ASKED, user(result(is_error=True))]}, CALLED + answered("Error")),
    "a result that is no error": (
        {"messages": [*ASKED, user(result(content="x", is_error=False))]}, CALLED + answered("x")),
    "an image in a result": (
        {"messages": [*ASKED, user(result(content=[IMAGE]))]}, CALLED + answered(LEFT_OUT), "content.image"),
    "a tool that was found": (
        {"messages": [*ASKED, user(result(content=[{"type": "tool_reference", "tool_name": "Read"}]))]},
        CALLED + answered("[The tool Read can be called.]")),
    "text, thinking and calls are one message": (
        {"messages": [*USER, assistant({"type": "thinking", "thinking": "Hm.", "signature": "of another"},
                                       text("So."), use(path="a")), user(result(content="x"))]},
        HI + turn("assistant", f"So.{CALL}Hm.") + answered("x")),
    "thinking that the client did not see": (
        {"messages": [*USER, assistant({"type": "thinking", "thinking": "", "signature": UNSEEN}, text("So.")), *USER]},
        HI + turn("assistant", "So.Hm.") + HI),
    "redacted thinking": (
        {"messages": [*USER, assistant({"type": "redacted_thinking", "data": "x"}, text("So.")), *USER]},
        HI + turn("assistant", "So.") + HI, "content.redacted_thinking"),
    "blocks of servers": (
        {"messages": [*USER, assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                                       {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
                                       text("So.")), *USER]},
        HI + turn("assistant", "So.") + HI, "content.server_tool_use, content.web_search_tool_result"),
    "a document of text": (
        {"messages": [user({"type": "document", "title": "T",
                            "source": {"type": "text", "media_type": "text/plain", "data": "d"}}, text("?"))]},
        turn("user", "T\nd\n?")),
    "a document of another kind": (
        {"messages": [user({"type": "document", "source": {"type": "base64", "data": "JVBE"}}, text("?"))]},
        turn("user", "[A part of the type document was left out: this model reads text only.]\n?"), "content.document"),
    "a search result": (
        {"messages": [user({"type": "search_result", "source": "u", "title": "T", "content": [text("r")]})]},
        turn("user", "T\nr")),
    "an input that was no JSON": (
        {"messages": [*USER, assistant({**use(), "input": {"__unparsedToolInput": {"raw": '{"a": l', "len": 7}}}),
                      user(result(content="x"))]},
        HI + turn("assistant", '<call>toolu_1 "{\\"a\\": l"') + answered("x")),
    "several calls and their results": (
        {"messages": [*USER, assistant(use(path="a"), use("call_abc-123.x", "Read")),
                      user(result("call_abc-123.x", content="two"), result(content="one"))]},
        HI + turn("assistant", f"{CALL}<call>call_abc-123.x {{}}") + answered("one")
        + turn("tool", "two<result call_abc-123.x Read>")),
    "cache_control anywhere": (
        {"cache_control": {"type": "ephemeral"}, "system": [text("a", cache_control={"type": "ephemeral"})],
         "messages": [user(text("Hi", cache_control={"type": "ephemeral", "ttl": "1h"}))]},
        turn("system", "a") + HI, "cache_control"),
    "an annotation of blocks": ({"messages": [user(text("Hi", citations=[]))]}, HI, "text.citations"),
    "nulls": ({"messages": [user(text("Hi", citations=None, cache_control=None))], "system": None, "top_k": None},
              HI),
    "metadata": ({"metadata": {"user_id": '{"device_id":"0"}', "x": 1}}, HI, "metadata.x"),
    "fields of other servers": (
        {"service_tier": "auto", "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
         "betas": ["nobody-knows-2099-01-01"], "container": None, "mcp_servers": [], "frobnicate": {"a": [1]}},
        HI, "context_management, betas, mcp_servers, frobnicate"),
    "an effort that the template does not read": ({"output_config": {"effort": "high"}}, HI, "output_config.effort"),
    "an effort that nobody knows": ({"output_config": {"effort": "heroic"}}, HI, "output_config.effort"),
    "thinking of a model that does not think": (
        {"thinking": {"type": "adaptive", "display": "omitted"}}, HI, "thinking"),
    "no thinking of a model that does not think": ({"thinking": {"type": "disabled"}}, HI),
}  # fmt: skip


Shared = tuple[Engine, Gateway]


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Shared]:
    """A gateway that all rows ask."""
    with running(folder, UNGUIDED) as started:
        started[0].say("Hello", [1])
        yield started


@pytest.mark.parametrize("row", ROWS)
def test_each_part_is_shown_in_its_place(shared: Shared, row: str) -> None:
    engine, asked = shared
    body, shown, *named = ROWS[row]
    for stream in (False, True):
        answer = engine.loop.run_until_complete(post(asked, **{**body, "stream": stream}))
        assert answer.status_code == 200, answer.text
        assert asked.engine.requests[-1].prompt.text == shown + OPEN
        assert answer.headers.get_list("x-ignored-parameters") == named


@pytest.mark.parametrize(
    ("late", "shown"),
    [
        (["u:a", "s:b"], turn("user", "a\nb")),
        (["u:a", "s:b", "s:c", "a:d", "u:e"], turn("user", "a\nb\nc") + turn("assistant", "d") + turn("user", "e")),
        (["u:a", "a:b", "s:c", "u:d"], turn("user", "a") + turn("assistant", "b") + turn("user", "c\nd")),
        (["u:a", "a:b", "s:c"], turn("user", "a") + turn("assistant", "b") + turn("user", "c")),
    ],
)
async def test_a_template_without_late_system_turns_has_them_in_the_users(
    tmp_path: Path, late: list[str], shown: str
) -> None:
    rejects = TEMPLATE.replace(
        "{% for message in messages %}",
        "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
        "{{ raise_exception('Only the first message may be of the system.') }}{% endif %}",
        1,
    )
    roles = {"u": "user", "a": "assistant", "s": "system"}
    messages = [{"role": roles[each[0]], "content": each[2:]} for each in late]
    async with gateway(write_tokenizer(tmp_path, rejects)) as running:
        assert (
            await prompt_of(running, messages=messages, system="s", max_tokens=5) == turn("system", "s") + shown + OPEN
        )
        at_fault = [*messages, {"role": "user", "content": [IMAGE]}]
        last = len(messages)
        assert f"messages.{last}.content.0" in error_of(
            await post(running, messages=at_fault), 400, "invalid_request_error"
        )


async def test_a_last_turn_of_the_assistant_is_continued(folder: Path) -> None:
    async with gateway(folder) as running:
        messages = [*USER, assistant(text("The answer is ("))]
        assert await prompt_of(running, messages=messages) == HI + "<|im_start|>assistant\nThe answer is ("
        for empty in (assistant(), assistant(text("")), {"role": "assistant", "content": ""}):
            assert await prompt_of(running, messages=[*USER, empty]) == await prompt_of(running, messages=USER)
            assert await prompt_of(running, messages=[*messages, empty, empty]) == await prompt_of(
                running, messages=messages
            )
        message = error_of(await post(running, messages=ASKED), 400, "invalid_request_error")
        assert message.startswith("'messages.1' calls tools")
        assert error_of(await post(running, messages=[*ASKED, empty]), 400, "invalid_request_error") == message


@pytest.mark.parametrize(
    ("thinking", "shown", "named"),
    [
        (None, "", None),
        ({"type": "adaptive"}, "[on]", None),
        ({"type": "enabled", "budget_tokens": 31999, "display": "omitted"}, "[on]", None),
        ({"type": "adaptive", "budget_tokens": 31999}, "[on]", "thinking.budget_tokens"),
        ({"type": "disabled"}, "[off]", None),
    ],
)
async def test_the_switch_of_a_template_follows_thinking(
    thinks: Path, thinking: dict[str, Any] | None, shown: str, named: str | None
) -> None:
    async with gateway(thinks) as running:
        answer = await post(running, thinking=thinking)
        assert running.engine.requests[-1].prompt.text == HI + OPEN + shown
        assert answer.headers.get("x-ignored-parameters") == named
        own_word = {"chat_template_kwargs": {"enable_thinking": False}}
        if thinking is not None:
            assert await prompt_of(running, thinking=thinking, **own_word) == HI + OPEN + "[off]"


async def test_an_effort_reaches_a_template_that_reads_it(tmp_path: Path) -> None:
    async with gateway(write_tokenizer(tmp_path, TEMPLATE + "{{ reasoning_effort }}")) as running:
        answer = await post(running, output_config={"effort": "high"})
        assert running.engine.requests[-1].prompt.text == HI + OPEN + "high"
        assert "x-ignored-parameters" not in answer.headers


async def test_limits_and_sampling_reach_the_engine(folder: Path) -> None:
    async with gateway(folder) as running:
        await whole(running, max_tokens=7, temperature=0.5, top_p=0.9, top_k=40, stop_sequences=["X"], seed=3)
        request = running.engine.requests[-1]
        params = request.params
        assert (request.max_tokens, params.temperature, params.top_p, params.top_k) == (7, 0.5, 0.9, 40)
        assert (list(params.stop), request.seed) == (["X"], 3)
        await whole(running, max_tokens=2**70)  # as many as there is room for
        request = running.engine.requests[-1]
        assert request.max_tokens == 256 - len(request.prompt.ids)


async def test_an_error_names_both_parameters_as_messages_do(folder: Path) -> None:
    async with gateway(folder) as running:
        answer = await post(running, max_tokens=4, min_tokens=5)
        assert error_of(answer, 400, "invalid_request_error") == "'min_tokens' must be at most 'max_tokens'."


async def test_counting_names_a_speed_as_messages_do(folder: Path) -> None:
    async with gateway(folder) as running:
        body = {"model": MODEL, "messages": USER, "speed": "fast"}
        for path, more in (("/v1/messages", {"max_tokens": 5}), ("/v1/messages/count_tokens", {})):
            answer = await running.client.post(path, json=body | more)
            assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, "speed")


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


async def test_tools_are_shown_and_those_of_servers_are_left_out(folder: Path) -> None:
    async with gateway(folder, features=UNGUIDED, max_seq_len=4096) as running:
        plain = await prompt_of(running, tools=[BASH])
        assert plain.startswith('<tool>{"type": "function", "function": {"name": "Bash", "description": "Runs it.",')
        assert '"maximum": 9007199254740991' in plain
        answer = await post(running, tools=[SEARCH, {**BASH, "type": "custom", "defer_loading": True},
                                            {"type": "bash_20250124", "name": "bash"}])  # fmt: skip
        assert running.engine.requests[-1].prompt.text == plain
        named = "tools.web_search_20250305, tools.defer_loading, tools.bash_20250124"
        assert answer.headers["x-ignored-parameters"] == named
        assert await prompt_of(running, tools=[SEARCH]) == HI + OPEN
        assert await prompt_of(running, tools=[SEARCH], tool_choice={"type": "auto"}) == HI + OPEN
        assert await prompt_of(running, tools=[BASH], tool_choice={"type": "none"}) == HI + OPEN


async def test_hundreds_of_deep_tools_are_taken(folder: Path) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(16):
        deep = {"type": "object", "properties": {"a": deep, "b": {"type": "array", "items": {"type": "integer"}}}}
    tools = [{"name": f"mcp__server__tool_{index}", "input_schema": deep} for index in range(300)]
    features = dataclasses.replace(UNGUIDED, max_seq_len=1_000_000)
    async with gateway(folder, features=features, max_seq_len=1_000_000) as running:
        await whole(running, tools=tools)
        large = [{**tool, "description": "long" * 1000} for tool in tools]
        message = error_of(await post(running, tools=large), 400, "invalid_request_error")
        assert "'tools': must be at most" in message


async def test_names_that_no_function_can_have_come_back_as_they_were(folder: Path) -> None:
    name = "mcp__" + "long" * 20 + ".get"
    async with gateway(folder, features=UNGUIDED, max_seq_len=4096) as running:
        prompt = await prompt_of(running, tools=[{"name": name, "input_schema": {"type": "object"}}])
        shown = prompt.split('"name": "')[1].split('"')[0]
        assert len(shown) == 64


CHOICES = [
    ({"type": "auto"}, "auto", None),
    ({"type": "any"}, "required", None),
    ({"type": "tool", "name": "Bash"}, "required", None),
    ({"type": "any", "disable_parallel_tool_use": True}, "required", 1),
]


@pytest.mark.parametrize(("choice", "kind", "most"), CHOICES)
async def test_choices_are_guided_as_chat_s_are(
    folder: Path, choice: dict[str, Any], kind: str, most: int | None
) -> None:
    async with gateway(folder, features=GUIDED, max_seq_len=4096) as running:
        await post(running, tools=[BASH], tool_choice=choice)
        guide = running.engine.requests[-1].params.guide
        assert (guide is not None) == (kind == "required")
        if guide is not None:
            assert ('"maxItems":1' in guide.text.replace(" ", "")) == (most == 1 or choice["type"] == "tool")


REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, "web_search_20250305"),
    ({"tools": [BASH], "tool_choice": {"type": "tool", "name": "Read"}}, "tool_choice.name"),
    ({"tools": [BASH], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": [BASH], "tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [BASH, BASH]}, "tools.1.name"),
    ({"tools": [{"name": "a"}]}, "tools.0.input_schema"),
    ({"tools": [{"name": "a", "input_schema": {"type": "array"}}]}, "tools.0.input_schema.type"),
    ({"tools": [{"name": "a", "input_schema": {"properties": 3}, "strict": True}]}, "tools.0.input_schema.properties"),
    ({"tools": [3]}, "tools.0"),
    ({"messages": [user(IMAGE)]}, "messages.0.content.0"),
    ({"messages": [user(text("a"), {"type": "text"})]}, "messages.0.content.1.text"),
    ({"messages": [user({"text": "a"})]}, "messages.0.content.0"),
    ({"messages": [user("a")]}, "messages.0.content.0"),
    ({"messages": [user(use())]}, "messages.0.content.0"),
    ({"messages": [*USER, assistant(result()), *USER]}, "messages.1.content.0"),
    ({"messages": [*ASKED, user(result("other"))]}, "messages.2.content.0"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": [*USER, assistant(use(input="x") | {"input": "x"})]}, "messages.1.content.0.input"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"temperature": 3.0}, "temperature"),
    ({"stop_sequences": ["a"] * 65}, "stop_sequences"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, "output_config.format"),
    ({"output_format": {"type": "json_schema", "schema": {"type": "object"}}}, "output_format"),
    ({"system": [IMAGE]}, "system.0"),
    ({"thinking": "yes"}, "thinking"),
]


@pytest.mark.parametrize(("body", "named"), REJECTED)
def test_what_is_wrong_is_named_by_its_path(shared: Shared, body: dict[str, Any], named: str) -> None:
    engine, asked = shared
    before = len(asked.engine.requests)
    for stream in (False, True):
        answer = engine.loop.run_until_complete(post(asked, **body, stream=stream))
        assert named in error_of(answer, 400, "invalid_request_error")
    assert len(asked.engine.requests) == before


async def test_tokens_are_counted_as_the_prompt_has_them(folder: Path) -> None:
    async with gateway(folder, features=UNGUIDED, max_seq_len=4096) as running:
        body = {"system": "s", "tools": [BASH], "messages": [*ASKED, user(result(content="x"))]}
        message = await whole(running, **body)
        counted = await post(running, "/v1/messages/count_tokens", **body)
        assert counted.json() == {"input_tokens": message.usage.input_tokens}
        assert len(running.engine.requests) == 1
        far = await post(running, "/v1/messages/count_tokens", messages=[user(text("a" * 5000))], tools=[])
        assert far.json()["input_tokens"] > 5000
        wrong = await post(running, "/v1/messages/count_tokens", messages=[user(IMAGE)])
        assert "messages.0.content.0" in error_of(wrong, 400, "invalid_request_error")


async def test_a_prompt_that_is_too_long_says_so_as_anthropic_does(folder: Path) -> None:
    async with gateway(folder) as running:
        frame = (await whole(running)).usage.input_tokens - len("Hi")
        for size in (240, 300, 5000):
            message = error_of(await post(running, messages=[user(text("a" * size))]), 400, "invalid_request_error")
            if size < 1000:  # what is far too long is not counted to its end
                assert message == f"prompt is too long: {frame + size} tokens > 255 maximum"
            else:
                assert re.fullmatch(r"prompt is too long: \d+ tokens > 255 maximum", message)


@pytest.mark.parametrize(
    "call_id", ["call_Ab3", "abc123XYZ", "functions.get:0", f"functions.{'f' * 64}:0", "é", "x" * 58]
)
def test_ids_of_calls_come_back(call_id: str) -> None:
    shown = client_call_id(call_id)
    assert shown.isascii()
    assert set(shown) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    if not call_id.startswith(("call_", "x")):
        assert own_call_id(shown) == call_id


def test_signatures_of_others_and_broken_ones_are_left_alone() -> None:
    made = signatures.signature_of("Hm.", has_text=False)
    assert signatures.reasoning_of(made) == "Hm."
    for other in (None, 3, "", "EqoB", "gateway-1.", "gateway-1.!!", made[:-8], "gateway-1.AAAA"):
        assert "Hm.".startswith(signatures.reasoning_of(other) or "")


async def test_betas_that_are_not_served_are_named_and_never_refused(folder: Path) -> None:
    async with gateway(folder) as running:
        body = {"model": MODEL, "max_tokens": 5, "messages": USER}
        named = "anthropic-beta.context-1m-2025-08-07, anthropic-beta.%C3%A9%20x"
        given = [
            ("anthropic-beta", "structured-outputs-2025-11-13, context-1m-2025-08-07,, \xe9 x".encode("latin-1")),
            ("anthropic-beta", b"context-1m-2025-08-07,token-counting-2024-11-01"),
        ]
        counted = {"model": MODEL, "messages": USER}
        asks = {"/v1/messages": body, "/v1/messages?beta=true": body, "/v1/messages/count_tokens": counted}
        for path, asked in asks.items():
            answer = await running.client.post(path, json=asked, headers=given)
            assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (200, named)
            answer = await running.client.post(path, json=asked, headers={"anthropic-beta": "tools-2024-04-04"})
            assert "x-ignored-parameters" not in answer.headers
        many = {"anthropic-beta": ",".join(f"b{number}" for number in range(1000))}
        answer = await running.client.post("/v1/messages", json=body | {"unknown": 1}, headers=many)
        told = answer.headers["x-ignored-parameters"].split(", ")
        assert (answer.status_code, told[0], told[-1], len(told)) == (200, "unknown", "...", 33)


def test_signatures_bring_back_no_more_than_one_string_may_have() -> None:
    """A few kilobytes of signatures unpack to gigabytes."""
    sealed = signatures.signature_of("Hm." * 20, has_text=False)
    block = {"type": "thinking", "thinking": "", "signature": sealed}
    conversation = ChatMessages(_room=100)
    conversation.add(InputMessage.model_validate({"role": "assistant", "content": [block, block]}), "messages[0]")
    assert conversation.close()[0]["reasoning_content"] == "Hm." * 20
    assert conversation.left_out == ["thinking.signature"]


@pytest.mark.parametrize("count", [3, 2000])
def test_many_system_turns_are_one_text_in_their_order(count: int) -> None:
    """To copy what there is for each further one takes a minute."""
    words = [f"w{number}" for number in range(count)]
    systems = [{"role": "system", "content": word} for word in words]
    leading = ChatMessages()
    for place, turn in enumerate([*systems, *USER]):
        leading.add(InputMessage.model_validate(turn), f"messages[{place}]")
    messages = leading.close()
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[0]["content"] == "\n\n".join(words)
    turns = [*USER, *systems, {"role": "assistant", "content": "So."}, *systems]
    late = chat_request({"model": MODEL, "messages": turns}).messages
    made, places = folded(late)
    assert [message.role for message in made] == ["user", "assistant", "user"]
    texts = [[part.text for part in message.content] for message in (made[0], made[2])]
    assert texts == [["Hi", *words], words]
    assert places == [0, count + 1, count + 2]
