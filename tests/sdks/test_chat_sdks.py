"""Chat completions in a loop of tools by OpenAI's SDK."""

from __future__ import annotations

import json
from typing import Any

from tests.sdks.conftest import MODEL, QUESTION, SAID, WAYS, Stack, degrees_in
from tests.stack import strict_client

PATH = "/v1/chat/completions"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]


@WAYS
def test_a_loop_of_tools(stack: Stack, streamed: bool) -> None:
    stack.play_loop(thought=False)
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: dict[str, Any] = {"model": MODEL, "messages": messages, "tools": TOOLS}
    numbers, reasons = [], []
    with strict_client(stack.url) as sdk:
        while True:
            if streamed:
                with sdk.chat.completions.stream(**asked) as stream:
                    deltas = [each for each in stream if each.type == "tool_calls.function.arguments.delta"]
                    choice: Any = stream.get_final_completion().choices[0]
            else:
                choice = sdk.chat.completions.create(**asked).choices[0]
            calls = choice.message.tool_calls or []
            assert not streamed or bool(deltas) == bool(calls)
            numbers.append(len(calls))
            reasons.append(choice.finish_reason)
            if not calls:
                break
            functions = [{"id": call.id, "type": "function", "function":
                          {"name": call.function.name, "arguments": call.function.arguments}}
                         for call in calls]  # fmt: skip
            messages.append({"role": "assistant", "content": choice.message.content, "tool_calls": functions})
            messages += [{"role": "tool", "tool_call_id": call.id,
                          "content": degrees_in(**json.loads(call.function.arguments))} for call in calls]  # fmt: skip
    assert (numbers, reasons) == ([1, 2, 0], ["tool_calls", "tool_calls", "stop"])
    assert choice.message.content == SAID
    stack.check_loop(PATH)
