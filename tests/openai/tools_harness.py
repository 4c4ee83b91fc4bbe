"""What tests of tools, structures and reasoning share: a template that shows tools, schemas, engines with guides."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.generation import Capability
from tests.app.harness import Gateway
from tests.app.scripted import TOKENS, write_tokenizer

SHOWS_TOOLS = (
    "{% for tool in tools or [] %}<tool>{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}<call>{{ call.id }} {{ call.function.arguments | tojson }}{% endfor %}"
    "{% if message.tool_call_id is defined %}<result {{ message.tool_call_id }} {{ message.name }}>{% endif %}"
    "{{ message.reasoning_content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# <tool_call> #}"
)
ALL_KINDS = frozenset({"json", "json_schema", "regex", "ebnf_grammar", "structural_tag"})
STOCK_KINDS = ALL_KINDS - {"structural_tag"}
_GUIDABLE = ("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
             "json_schema", "regex", "ebnf", "grammar", "tool_choice", "function_call")  # fmt: skip
GUIDED = dataclasses.replace(
    TOKENS,
    guide_types=STOCK_KINDS,
    max_seq_len=4096,
    capabilities=dict.fromkeys(_GUIDABLE, Capability("native", "by guided decoding.")),
)
UNGUIDED = dataclasses.replace(TOKENS, max_seq_len=4096)

SHOWS_ALL = (
    "{% for tool in tools or [] %}<tool>{{ tool.function.name }}{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}"
    "{% for call in message.tool_calls %}<call>{{ call.id }} {{ call.function.name }} "
    "{{ call.function.arguments | tojson }}{% endfor %}"
    "{% if message.tool_call_id is defined %}<result {{ message.tool_call_id }}>{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{# <tool_call> <think> #}"
)

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def tool(name: str, parameters: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A tool as requests have it."""
    return {"type": "function", "function": {"name": name, "parameters": parameters or CITY, **more}}


TOOLS = [tool("weather", description="Looks out of the window."), tool("time")]


def call_text(name: str, arguments: str) -> str:
    """A call as the family hermes writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def guided_text(*calls: tuple[str, Any]) -> str:
    """Calls as a guide has them written."""
    return json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])


def tools_folder(path: Path) -> Path:
    """A tokenizer of bytes whose template shows tools."""
    return write_tokenizer(path / "shows-tools", SHOWS_TOOLS)


async def whole(running: Gateway, **body: Any) -> ChatCompletion:
    """A whole answer, strictly of OpenAI's type."""
    answer = await running.chat(max_tokens=body.pop("max_tokens", 500), **body)
    assert answer.status_code == 200, answer.text
    return ChatCompletion.model_validate(answer.json(), strict=True)


async def streamed(running: Gateway, **body: Any) -> list[ChatCompletionChunk]:
    """The chunks of a stream, strictly of OpenAI's type; the stream must end with ``[DONE]``."""
    answer = await running.chat(stream=True, max_tokens=body.pop("max_tokens", 500), **body)
    assert answer.status_code == 200, answer.text
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]", answer.text
    return [ChatCompletionChunk.model_validate(json.loads(event), strict=True) for event in events]


def accumulated(chunks: list[ChatCompletionChunk], index: int = 0) -> dict[str, Any]:
    """Content, calls and finish reason of one choice, put together as OpenAI's documentation says."""
    content: str | None = None
    calls: list[dict[str, Any]] = []
    finish: list[str] = []
    reasoning = ""
    for choice in (choice for chunk in chunks for choice in chunk.choices if choice.index == index):
        if choice.delta.content is not None:
            content = (content or "") + choice.delta.content
        reasoning += (choice.delta.model_extra or {}).get("reasoning_content") or ""
        for part in choice.delta.tool_calls or []:
            assert part.function is not None
            if part.id is not None:  # the first of a call
                assert part.index == len(calls)
                assert (part.type, part.function.arguments) == ("function", "")
                calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
            else:
                assert part.function.name is None
                calls[part.index]["arguments"] += part.function.arguments or ""
        finish += [choice.finish_reason] if choice.finish_reason else []
    assert len(finish) == 1
    return {"content": content, "calls": calls, "finish_reason": finish[0], "reasoning": reasoning}
