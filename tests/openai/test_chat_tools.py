"""Tools: what the model is shown, of earlier calls too, and how calls come back, in the new form and the old."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from gateway.generation import EngineChunk, GenerationRequest
from tests.app.harness import USER, gateway, says
from tests.app.scripted import MODEL, ByteIds, write_tokenizer
from tests.openai.tools_harness import (
    GUIDED,
    SHOWS_TOOLS,
    TOOLS,
    UNGUIDED,
    accumulated,
    call_text,
    guided_text,
    streamed,
    tool,
    tools_folder,
    whole,
)

ROME = '{"city": "Rome"}'
TWO = f"Let me see. {call_text('weather', ROME)}\n{call_text('time', ROME)}"


async def test_a_stream_without_text_and_calls_ends_with_empty_content(shows: Path) -> None:
    async with gateway(shows, says(shows, ""), features=UNGUIDED, max_seq_len=4096) as running:
        answer = accumulated(await streamed(running, tools=TOOLS))
        assert (answer["content"], answer["calls"]) == ("", [])
        message = {"role": "assistant", "content": answer["content"]}
        await whole(running, messages=[*USER, message, *USER], tools=TOOLS)


@pytest.mark.parametrize(("keepalive_s", "comments"), [(60.0, False), (0.01, True)])
async def test_a_held_call_is_silence_and_not_a_comment_for_each_token(
    shows: Path, keepalive_s: float, *, comments: bool
) -> None:
    ids = ByteIds(shows).of(call_text("weather", ROME) + "\n")
    gates = [asyncio.Event() for _ in range(4)]

    def script(request: GenerationRequest) -> list[Any]:
        steps: list[Any] = [EngineChunk(ids=[index]) for index in ids]
        for gate in gates:  # tokens that come one by one, and silence as long as it may be
            gate.clear()
            asyncio.get_running_loop().call_later(0.02 * (1 + gates.index(gate)), gate.set)
            steps.insert(len(ids) // 2 + 2 * gates.index(gate), gate)
        return [*steps, EngineChunk(final=True)]

    timeouts = {"keepalive_s": keepalive_s}
    async with gateway(shows, script, features=UNGUIDED, max_seq_len=4096, timeouts=timeouts) as running:
        answer = await running.chat(stream=True, max_tokens=500, tools=TOOLS)
        assert (": waiting" in answer.text) is comments
        assert '"finish_reason":"tool_calls"' in answer.text


async def test_ids_of_nine_where_the_template_takes_no_others(tmp_path: Path) -> None:
    template = (
        "{{ tools }}<tool_call>{% for m in messages %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
        "{{ raise_exception('nine!') }}{% endif %}{{ c.id }}{{ c.function }}{% endfor %}"
        "{{ m.content }}[{{ m.tool_call_id }}]{% endfor %}"
    )
    own = write_tokenizer(tmp_path, template)
    call = {"id": "call_aaaaaaaaaaaa", "type": "function", "function": {"name": "time", "arguments": ROME}}
    history = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "content": "x", "tool_call_id": call["id"]},
    ]
    async with gateway(own, says(own, TWO), features=UNGUIDED, max_seq_len=4096, family="hermes") as running:
        message = (await whole(running, tools=TOOLS, messages=history)).choices[0].message
        assert all(len(each.id) == 9 and each.id.isalnum() for each in message.tool_calls or [])
        text = running.engine.requests[0].prompt.text
        short = text[-10:-1]
        assert text.count(short) == 2


async def test_several_choices_and_what_belongs_to_their_tokens(shows: Path) -> None:
    async with gateway(shows, says(shows, TWO), features=UNGUIDED, max_seq_len=4096) as running:
        asked: dict[str, Any] = {"tools": TOOLS, "n": 2, "logprobs": True, "return_token_ids": True}
        answer = await whole(running, **asked)
        ids = {call.id for choice in answer.choices for call in choice.message.tool_calls or []}
        assert len(ids) == 4
        for choice in answer.choices:
            assert choice.logprobs is not None
            entries = choice.logprobs.content or []
            assert b"".join(bytes(entry.bytes or []) for entry in entries) == TWO.encode()
            assert len((choice.model_extra or {})["token_ids"]) == len(TWO)
        chunks = await streamed(running, **asked)
        for index in range(2):
            choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
            streamed_entries = [
                entry for choice in choices if choice.logprobs for entry in choice.logprobs.content or []
            ]
            assert b"".join(bytes(entry.bytes or []) for entry in streamed_entries) == TWO.encode()
            given = [i for choice in choices for i in (choice.model_extra or {}).get("token_ids", [])]
            assert len(given) == len(TWO)
            assert len(accumulated(chunks, index)["calls"]) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_strict_arguments_that_do_not_fit_are_an_error(shows: Path, stream: bool) -> None:
    strict = [tool("weather", strict=True)]
    good, bad = call_text("weather", ROME), call_text("weather", '{"town": 1}')
    async with gateway(shows, says(shows, good), features=GUIDED, max_seq_len=4096) as running:
        assert (await whole(running, tools=strict)).choices[0].finish_reason == "tool_calls"
    async with gateway(shows, says(shows, bad), features=GUIDED, max_seq_len=4096) as running:
        answer = await running.chat(tools=strict, stream=stream, max_tokens=500)
        if not stream:
            assert answer.status_code == 500
            assert answer.headers["x-should-retry"] == "false"
            assert answer.json()["error"]["code"] == "invalid_model_output"
        else:
            assert "[DONE]" not in answer.text
            assert json.loads(answer.text.strip().rpartition("data: ")[2])["error"]["code"] == "invalid_model_output"


NAMED: list[dict[str, Any]] = [
    {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "time"}}, "parallel_tool_calls": True},
    {"functions": [each["function"] for each in TOOLS], "function_call": {"name": "time"}},
]


@pytest.mark.parametrize("asked", NAMED, ids=["tool_choice", "function_call"])
@pytest.mark.parametrize("eager", [False, True], ids=["held", "eager"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_named_function_is_called_once_where_nothing_guides(
    shows: Path, asked: dict[str, Any], *, eager: bool, stream: bool
) -> None:
    call = call_text("time", ROME)
    shown = f"Now.{call}"[
        : len("Now.") + call.index("}}") + (1 if eager else 2)
    ]  # the arguments are whole, or the call
    ids = ByteIds(shows).of(f"Now.{call}\n{call}\nDone.")

    def script(request: GenerationRequest) -> list[Any]:
        """Two calls and more, and no end: only the gateway can end it."""
        return [*(EngineChunk(ids=[index], logprobs=[-0.5]) for index in ids), asyncio.Event()]

    settings: dict[str, Any] = {
        "structured_output_without_guidance": "validate",
        "tool_call_streaming": "eager" if eager else "whole",
        "max_seq_len": 4096,
    }
    async with gateway(shows, script, features=UNGUIDED, **settings) as running:
        body = {**asked, "n": 2, "logprobs": True, "max_tokens": 500, "stream": stream}
        answer = await asyncio.wait_for(
            running.chat(**body, **({"stream_options": {"include_usage": True}} if stream else {})), 60
        )
        assert answer.status_code == 200, answer.text
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        answers = events if stream else [answer.json()]
        assert answers[-1]["usage"]["completion_tokens"] == 2 * len(shown)
        for index in range(2):
            choices = [choice for each in answers for choice in each["choices"] if choice["index"] == index]
            parts = [choice.get("delta") or choice.get("message") or {} for choice in choices]
            functions = [part["function_call"] for part in parts if part.get("function_call")]
            functions += [each["function"] for part in parts for each in part.get("tool_calls") or []]
            assert [each["name"] for each in functions if each.get("name")] == ["time"]
            assert "".join(each["arguments"] for each in functions) == ROME
            assert "".join(part.get("content") or "" for part in parts) == "Now."
            assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
            entries = [each for choice in choices for each in (choice.get("logprobs") or {}).get("content") or []]
            assert "".join(each["token"] for each in entries) == shown
        assert len(running.engine.closed_early) == 2


async def test_a_named_function_that_is_not_called_is_an_error(shows: Path) -> None:
    validate = {"structured_output_without_guidance": "validate", "max_seq_len": 4096}
    async with gateway(shows, says(shows, call_text("weather", ROME)), features=UNGUIDED, **validate) as running:
        answer = await running.chat(max_tokens=500, **NAMED[0])
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "invalid_model_output")


def with_special_markers(path: Path) -> Path:
    """The folder with the tool tags as special tokens, which a decode leaves out."""
    folder = tools_folder(path)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<tool_call>", "</tool_call>", "<|other|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


async def test_special_tokens_are_for_the_parser_and_never_for_the_client(tmp_path: Path) -> None:
    own = with_special_markers(tmp_path)
    text = f"One<|other|> {call_text('weather', ROME)}"
    async with gateway(own, says(own, text), features=UNGUIDED, max_seq_len=4096) as running:
        choice = (await whole(running, tools=TOOLS)).choices[0]
        assert choice.message.content == "One"
        assert [call.function.name for call in choice.message.tool_calls or []] == ["weather"]
        found = accumulated(await streamed(running, tools=TOOLS))
        assert (found["content"], len(found["calls"])) == ("One", 1)
        plain = (await whole(running)).choices[0].message.content
        assert plain == f"One {call_text('weather', ROME)[11:-12]}"


@pytest.mark.parametrize("spelled", [True, False])
async def test_definitions_of_schemas_reach_the_model(tmp_path: Path, spelled: bool) -> None:
    """Also where the template spells out types, and shows no definitions; a guide has the schema as it was sent."""
    shown = "{% for part in tool.function.parameters.properties.values() %}{{ (part.enum or []) | tojson }}{% endfor %}"
    types = "{{ tool.function.name }}" + shown
    template = SHOWS_TOOLS.replace("{{ tool | tojson }}", types) if spelled else SHOWS_TOOLS
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"]}
    schema = {"type": "object", "properties": {"unit": {"$ref": "#/$defs/Unit"}}, "$defs": {"Unit": unit}}
    folder = write_tokenizer(tmp_path, template)
    async with gateway(
        folder, says(folder, guided_text(("weather", {}))), features=GUIDED, max_seq_len=4096
    ) as running:
        await running.chat(tools=[tool("weather", schema)], tool_choice="required", max_tokens=5)
        (request,) = running.engine.requests
        assert '["celsius", "fahrenheit"]' in request.prompt.text
        assert ("$defs" in request.prompt.text) is not spelled
        assert request.params.guide is not None
        assert "#/$defs/" in request.params.guide.text


ILL_FORMED: list[tuple[dict[str, Any], str]] = [
    ({"required": None}, "tools[0].function.parameters.required"),
    ({"properties": {"city": {"type": "string"}, "days": {"type": "any"}}},
     "tools[0].function.parameters.properties.days.type"),
    ({"properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/None"}}},
     "tools[0].function.parameters.properties.days.$ref"),
    ({"properties": {"city": {"type": "string"}, "days": {"$ref": "https://a.example/days"}}},
     "tools[0].function.parameters.properties.days.$ref"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "fault"), ILL_FORMED)
async def test_an_ill_formed_schema_is_left_unguided_where_the_model_may_choose(
    shows: Path, tmp_path: Path, change: dict[str, Any], fault: str
) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, **change}

    def tools(**more: Any) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "weather", "parameters": parameters, **more}}]

    said = call_text("weather", '{"city": "Rome"}')
    for features in (UNGUIDED, GUIDED):
        async with gateway(shows, says(shows, said), features=features, max_seq_len=4096) as running:
            answer = await running.chat(tools=tools())
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-ignored-parameters"] == "tools[0].function.parameters"
            (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
            body = {"model": MODEL, "input": "Hi", "tools": [{"type": "function", **tools()[0]["function"]}]}
            responded = await running.client.post("/v1/responses", json={**body, "store": False})
            assert (responded.status_code, responded.headers["x-ignored-parameters"]) == (200, "tools[0].parameters")
            for rejected in ({"tools": tools(strict=True)}, {"tools": tools(), "tool_choice": "required"}):
                error = (await running.chat(**rejected)).json()["error"]
                assert error["param"] == fault
    lines = "{% for key in tool.function.parameters.required %}{{ key }}{% endfor %}"
    iterates = write_tokenizer(tmp_path, SHOWS_TOOLS.replace("<tool>", "<tool>" + lines))
    async with gateway(iterates, says(iterates, said), features=UNGUIDED, max_seq_len=4096, family="hermes") as running:
        assert (await running.chat(tools=tools())).status_code == 200


CALL = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": '{"city":"Rome"}'}}
LOOP: list[dict[str, Any]] = [
    {"role": "user", "content": "Time?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Noon."},
]
PLAIN = (
    '<|im_start|>assistant\n[{"name": "time", "arguments": {"city":"Rome"}}]<|im_end|>\n'
    "<|im_start|>tool\nResult of time:\nNoon.<|im_end|>\n"
)
WITH_TOOLS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{# <tool_call> #}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if tools %}{% for c in m.tool_calls %}<call>{{ c.function.arguments | tojson }}{{ c.function.name }}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
)


async def test_no_choice_of_tools_hides_earlier_calls(shows: Path, tmp_path: Path) -> None:
    async with gateway(shows, says(shows, "x"), features=UNGUIDED, max_seq_len=4096) as running:
        await whole(running, messages=LOOP, tools=TOOLS, tool_choice="none")
        assert '<call>call_1 {"city": "Rome"}' in running.engine.requests[0].prompt.text
    own = write_tokenizer(tmp_path, WITH_TOOLS)
    async with gateway(own, says(own, "x"), features=UNGUIDED, max_seq_len=4096, family="hermes") as running:
        await whole(running, messages=LOOP, tools=TOOLS)
        assert '<call>{"city": "Rome"}time' in running.engine.requests[0].prompt.text
        await whole(running, messages=LOOP, tools=TOOLS, tool_choice="none")
        assert PLAIN in running.engine.requests[1].prompt.text


async def test_a_template_of_the_request_is_looked_at_too(shows: Path) -> None:
    async with gateway(
        shows, says(shows, "x"), features=UNGUIDED, max_seq_len=4096, allow_request_template=True
    ) as running:
        own = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
        await whole(running, messages=LOOP, chat_template=own)
        assert running.engine.requests[0].prompt.text == (
            'user:Time?;assistant:[{"name": "time", "arguments": {"city":"Rome"}}];tool:Result of time:\nNoon.;'
        )
        answer = await running.chat(messages=LOOP, chat_template=own, tools=TOOLS)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "chat_template"


async def test_a_message_of_parts_is_continued_in_its_last_part(tmp_path: Path) -> None:
    own = write_tokenizer(
        tmp_path, "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p['text'] }}{% endfor %};{% endfor %}"
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [LOOP[0], {"role": "assistant", "content": parts}]
    async with gateway(own, max_seq_len=4096) as running:
        answer = await running.chat(messages=messages, continue_final_message=True)
        assert answer.status_code == 200, answer.text
        assert running.engine.requests[0].prompt.text == "user:Time?;assistant:ab"


async def test_a_part_of_a_result_that_is_no_text_becomes_a_sentence(folder: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}

    def answered(*parts: Any) -> list[Any]:
        return [*LOOP[:2], {"role": "tool", "tool_call_id": "call_1", "content": list(parts)}]

    async with gateway(folder, features=UNGUIDED, max_seq_len=4096) as running:
        seen = {"type": "text", "text": "Seen:"}
        answer = await running.chat(messages=answered(seen, image, {"type": "file", "file": {}}))
        assert (answer.status_code, answer.headers["x-ignored-parameters"]) == (
            200, "messages[2].content[1], messages[2].content[2]",
        )  # fmt: skip
        shown = running.engine.requests[-1].prompt.text
        sentences = [
            {"type": "text", "text": f"[{what} was left out: this model reads text only.]"}
            for what in ("An image", "A part of the type file")
        ]
        await running.chat(messages=answered(seen, *sentences))
        assert running.engine.requests[-1].prompt.text == shown
        rejected = await running.chat(messages=[{"role": "user", "content": [image]}])
        assert rejected.status_code == 400
