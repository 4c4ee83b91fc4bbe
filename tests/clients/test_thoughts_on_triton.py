"""Thoughts on the real Triton: budgets that end them, and guides that hold what follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer
from tests.stack import GatewayProcess, strict_client
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
    return GatewayProcess.of_model(
        folder / "log", MODEL, url, model_dir, 2048, GATEWAY_TEMPLATE=str(folder / "template.jinja")
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
def thinker(
    thinker_dir: Path, chat_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("thinker")
    triton = TritonServer(chat_repository, model_dir=thinker_dir, log_path=folder / "triton.log")
    triton.start()
    try:
        triton.wait_ready()
        with serve(folder, thinker_dir, triton.grpc_url) as process:
            yield process
    finally:
        triton.stop()


@pytest.fixture(scope="module")
def sdk(thinker: GatewayProcess) -> Iterator[OpenAI]:
    with strict_client(thinker.url) as client:
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


@pytest.mark.parametrize("json_schema", [True, False], ids=["json", "call"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_answer_is_held_to_its_schema_behind_a_free_thought(
    sdk: OpenAI, thinker_dir: Path, stream: bool, json_schema: bool
) -> None:
    close = Tokenizer.from_file(str(thinker_dir / "tokenizer.json")).token_to_id("</think>")
    by_itself = {"logit_bias": {str(close): 7}, "seed": 0}  # so that it ends its thought now and then
    by_budget = {"thinking_token_budget": 12, "temperature": 0, "logit_bias": {str(close): -100}}
    for extra in (by_itself, by_budget):
        thought, content, calls = by_chat(sdk, stream=stream, json_schema=json_schema, extra=extra)
        assert thought.strip(), extra
        assert "</think>" not in thought + content
        (text,) = [content] if json_schema else calls
        check(text)
        assert not (content and calls)
