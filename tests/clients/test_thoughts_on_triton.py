"""Thoughts on the real Triton: budgets that end them, and guides that hold what follows; by all three endpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.anthropic.messages_harness import Message, message_of
from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess
from tests.tiny_model import VOCAB_SIZE, write_tiny_model

MODEL = "thinker"
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Qwen3's form; its prompts have opened the thought.
TEMPLATE = """\
{%- for tool in tools or [] -%}<tools>{{ tool | tojson }}</tools>{% endfor -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
<think>
{% endif -%}
{#- <tool_call> -#}
"""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
STRICT = {"name": "forecast", "parameters": SCHEMA, "strict": True}


def check(text: str) -> None:
    found = json.loads(text)
    assert found["city"] in ("Rome", "Oslo")
    assert 1 <= found["days"] <= 9
    assert len(found) == 2


def serve(folder: Path, model_dir: Path, url: str) -> GatewayProcess:
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return GatewayProcess(
        folder / "log",
        GATEWAY_MODEL=MODEL,
        GATEWAY_TRITON_URL=url,
        GATEWAY_TOKENIZER=str(model_dir),
        GATEWAY_TEMPLATE=str(folder / "template.jinja"),
        GATEWAY_MAX_SEQ_LEN="2048",
    )


@pytest.fixture(scope="module")
def thinker_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with the markers of Qwen3, which it writes by chance."""
    folder = tmp_path_factory.mktemp("thinker-model")
    write_tiny_model(folder, vocab=VOCAB_SIZE + len(MARKERS))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(list(MARKERS))
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def thinker(thinker_dir: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("thinker")
    triton = TritonServer(repository, model_dir=thinker_dir, log_path=folder / "triton.log")
    triton.start()
    try:
        triton.wait_ready()
        with serve(folder, thinker_dir, triton.grpc_url) as process:
            yield process
    finally:
        triton.stop()


@pytest.fixture(scope="module")
def sdk(thinker: GatewayProcess) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{thinker.url}/v1", api_key="unused", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        yield client


USER: list[Any] = [{"role": "user", "content": "How is it?"}]
Said = tuple[str, str, list[str]]
"""Reasoning, content, and the arguments of calls."""


def by_chat(sdk: OpenAI, *, stream: bool, json_schema: bool, extra: dict[str, Any]) -> Said:
    form = {"type": "json_schema", "json_schema": {"name": "forecast", "schema": SCHEMA, "strict": True}}
    tools = {"tools": [{"type": "function", "function": STRICT}], "tool_choice": "required"}
    body: Any = {"response_format": form} if json_schema else {**tools, "parallel_tool_calls": False}
    if not stream:
        answer = sdk.chat.completions.create(model=MODEL, messages=USER, max_tokens=400, extra_body=extra, **body)
        message = answer.choices[0].message
        calls = [call.function.arguments for call in message.tool_calls or [] if call.type == "function"]
        return (message.model_extra or {})["reasoning_content"] or "", message.content or "", calls
    thought, content, arguments = "", "", ""
    for chunk in sdk.chat.completions.create(
        model=MODEL, messages=USER, max_tokens=400, extra_body=extra, stream=True, **body
    ):
        delta = chunk.choices[0].delta
        thought += (delta.model_extra or {}).get("reasoning_content") or ""
        content += delta.content or ""
        for call in delta.tool_calls or []:
            arguments += (call.function and call.function.arguments) or ""
    return thought, content, [arguments] * bool(arguments)


def by_responses(sdk: OpenAI, *, stream: bool, json_schema: bool, extra: dict[str, Any]) -> Said:
    form = {"format": {"type": "json_schema", "name": "forecast", "schema": SCHEMA, "strict": True}}
    tools = {"tools": [{"type": "function", **STRICT}], "tool_choice": "required", "parallel_tool_calls": False}
    body: Any = {"text": form} if json_schema else tools
    if stream:
        with sdk.responses.stream(
            model=MODEL, input="How is it?", max_output_tokens=400, extra_body=extra, **body
        ) as events:
            response = events.get_final_response()
    else:
        response = sdk.responses.create(
            model=MODEL, input="How is it?", max_output_tokens=400, extra_body=extra, **body
        )
    items: list[dict[str, Any]] = [item.to_dict() for item in response.output]
    thoughts = [item["content"][0]["text"] for item in items if item["type"] == "reasoning"]
    return (
        "".join(thoughts),
        response.output_text,
        [item["arguments"] for item in items if item["type"] == "function_call"],
    )


def by_messages(url: str, *, stream: bool, json_schema: bool, extra: dict[str, Any]) -> Said:
    budget = extra.get("thinking_token_budget")
    body: dict[str, Any] = {name: value for name, value in extra.items() if name != "thinking_token_budget"}
    if budget is not None:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if json_schema:
        body["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
    else:
        body["tools"] = [{"name": "forecast", "input_schema": SCHEMA, "strict": True}]
        body["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
    body |= {"model": MODEL, "messages": USER, "max_tokens": 400, "stream": stream}
    answer = httpx.post(f"{url}/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"}, timeout=60)
    assert answer.status_code == 200, answer.text
    message = message_of(answer.text) if stream else Message.model_validate(answer.json())
    return message.thinking, message.text, [json.dumps(call.input) for call in message.calls]


Ask = Callable[..., Said]


@pytest.fixture(params=["chat", "responses", "messages"])
def ask(request: pytest.FixtureRequest, sdk: OpenAI, thinker: GatewayProcess) -> Ask:
    ways: dict[str, Ask] = {
        "chat": lambda **more: by_chat(sdk, **more),
        "responses": lambda **more: by_responses(sdk, **more),
        "messages": lambda **more: by_messages(thinker.url, **more),
    }
    return ways[request.param]


@pytest.mark.parametrize("json_schema", [True, False], ids=["json", "call"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_answer_is_held_to_its_schema_behind_a_free_thought(
    ask: Ask, thinker_dir: Path, stream: bool, json_schema: bool
) -> None:
    close = Tokenizer.from_file(str(thinker_dir / "tokenizer.json")).token_to_id("</think>")
    by_itself = {"logit_bias": {str(close): 7}, "seed": 0}  # so that it ends its thought now and then
    by_budget = {"thinking_token_budget": 12, "temperature": 0, "logit_bias": {str(close): -100}}
    for extra in (by_itself, by_budget):
        thought, content, calls = ask(stream=stream, json_schema=json_schema, extra=extra)
        assert thought.strip(), extra
        assert "</think>" not in thought + content
        (text,) = [content] if json_schema else calls
        check(text)
        assert not (content and calls)


def test_the_thought_is_the_beginning_of_the_one_without_a_budget(sdk: OpenAI) -> None:
    def thought(**extra: Any) -> tuple[str, Any]:
        answer = sdk.chat.completions.create(
            model=MODEL, messages=USER, max_tokens=60, temperature=0, extra_body={"return_token_ids": True, **extra}
        )
        return ((answer.choices[0].model_extra or {})["token_ids"]), answer.usage

    free, _ = thought()
    ids, usage = thought(thinking_token_budget=15)
    assert ids[:15] == free[:15]
    assert ids[15:] != free[15:]
    assert usage.completion_tokens == len(ids) <= 60
    assert usage.completion_tokens_details.reasoning_tokens <= 15
    again, _ = thought(thinking_token_budget=15)
    assert again == ids


def test_a_strict_tool_that_the_model_is_free_to_call(sdk: OpenAI, thinker_dir: Path) -> None:
    opening = Tokenizer.from_file(str(thinker_dir / "tokenizer.json")).token_to_id("<tool_call>")
    custom: Any = {
        "type": "custom",
        "custom": {
            "name": "date",
            "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": r"20\d\d-(0[1-9]|1[0-2])"}},
        },
    }
    raw = sdk.chat.completions.with_raw_response.create(
        model=MODEL, messages=USER, max_tokens=200, tools=[custom], parallel_tool_calls=False, seed=1,
        extra_body={"thinking_token_budget": 0, "logit_bias": {str(opening): 100}},
    )  # fmt: skip
    assert "x-ignored-parameters" not in raw.headers
    (call,) = raw.parse().choices[0].message.tool_calls or []
    assert call.type == "custom"
    assert call.custom.name == "date"
    year, _, month = call.custom.input.partition("-")
    assert 2000 <= int(year) <= 2099
    assert 1 <= int(month) <= 12


def test_a_strict_tool_behind_a_thought_that_the_model_ended(sdk: OpenAI, thinker_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(thinker_dir / "tokenizer.json"))
    likely = {str(tokenizer.token_to_id(marker)): 6 for marker in ("</think>", "<tool_call>")}
    tools: list[Any] = [{"type": "function", "function": STRICT}]
    for seed in range(20):  # until the model ends its thought, and calls behind it
        answer = sdk.chat.completions.create(
            model=MODEL, messages=USER, max_tokens=400, tools=tools, tool_choice="auto", parallel_tool_calls=False,
            seed=seed, logit_bias=likely,
        )  # fmt: skip
        message = answer.choices[0].message
        thought = (message.model_extra or {})["reasoning_content"] or ""
        assert "</think>" not in thought + (message.content or "")
        if thought.strip() and message.tool_calls:
            break
    assert message.tool_calls
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.name == "forecast"
    check(call.function.arguments)


def test_a_thought_that_would_never_end_is_ended(
    scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The engine would think for ever: only a cancel frees it."""
    scripted_triton.play(
        turn("go round", text="round and round and round and round", hold=True),
        turn("</think>\n\n$", text="It is sunny.<|im_end|>"),
        chunk=3,
    )
    folder = tmp_path_factory.mktemp("endless")
    with (
        serve(folder, scripted_triton.model_dir, scripted_triton.grpc_url) as process,
        OpenAI(
            base_url=f"{process.url}/v1", api_key="unused", max_retries=0, timeout=60, _strict_response_validation=True
        ) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "go round"}]
        for _ in range(2):
            answer = client.chat.completions.create(
                model=MODEL, messages=messages, extra_body={"thinking_token_budget": 7}
            )
            assert answer.choices[0].message.content == "It is sunny."
            assert answer.usage is not None
            details = answer.usage.completion_tokens_details
            assert details is not None
            assert details.reasoning_tokens == 7
    first, second = scripted_triton.requests()[:2]
    begun = first["prompt_ids"]
    assert second["prompt_ids"][: len(begun)] == begun
    tokenizer = Tokenizer.from_file(str(scripted_triton.model_dir / "tokenizer.json"))
    ended = tokenizer.encode("</think>\n\n", add_special_tokens=False).ids
    assert second["prompt_ids"][len(begun) + 7 :] == ended
    assert second["max_tokens"] == first["max_tokens"] - 7 - len(ended)
