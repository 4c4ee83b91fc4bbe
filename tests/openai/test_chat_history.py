"""Earlier calls, results, names and parts of a conversation: in the prompt of every model, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.app.harness import gateway, says
from tests.app.scripted import write_tokenizer
from tests.openai.tools_harness import TOOLS, UNGUIDED, whole

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
