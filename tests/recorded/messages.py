"""Messages: text, blocks, calls, thinking, whole and streamed; what is left out, and what is refused."""

from __future__ import annotations

from typing import Any

from tests.recorded.exchange import Case, post
from tests.recorded.forms import CALL, CITY, ROME, TIME

S: dict[str, Any] = {"stream": True}
TOOLS: list[dict[str, Any]] = [
    {"name": "weather", "description": "Looks out of the window.", "input_schema": CITY},
    {"name": "time", "input_schema": {"type": "object", "properties": {}}},
]
BILLING = "x-anthropic-billing-header: a"
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def said(name: str, say: str = "Hello", /, **body: Any) -> Case:
    """A message whose text is ``say``; a ``body`` with messages has its own."""
    question = [{"role": "user", "content": f"say:<<chunk 6>>{say}"}]
    return post(name, "/v1/messages", **{"model": "chat", "max_tokens": 100, "messages": question, **body})


MESSAGES: list[Case] = [
    said("a text"),
    said("a text, streamed", **S),
    said("a text through the ensemble", model="text"),
    said("a stream through the ensemble, which would lose text", model="text", **S),
    said("a text that is cut, streamed", max_tokens=3, **S),
    said("a stop sequence", stop_sequences=["ll"]),
    said("a limit beyond the context where it is refused", model="strict", max_tokens=128000),
    said("blocks", system=[{"type": "text", "text": BILLING}, {"type": "text", "text": "Be kind."}], messages=[
        {"role": "user", "content": [{"type": "text", "text": "Weather?", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "text", "text": "say:Warm"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": [{"type": "image"}]}]},
    ]),
    said("two calls", f"Look: {CALL}\n{TIME}", tools=[*TOOLS, SEARCH]),
    said("two calls, streamed", f"Look: {CALL}\n{TIME}", tools=TOOLS, **S),
    said("a demanded call, streamed", CALL, tools=TOOLS, tool_choice={"type": "any"}, **S),
    said("thinking, streamed", "<think>\nHm.\n</think>\n\nSo.", model="reasoner", **S),
    said("thinking that is not shown", "<think>\nHm.\n</think>\n\nSo.", model="reasoner",
         thinking={"type": "adaptive", "display": "omitted"}, output_config={"effort": "high"}),
    said("a schema", ROME, output_config={"format": {"type": "json_schema", "schema": CITY}}),
    said("a failure in the middle, streamed", "He<<error Encountered an error>>", **S),
    said("unknown fields", context_management={"edits": []}, metadata={"user_id": "u"}, whatever=1),
    said("an image", messages=[{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}]),
    said("a result without its call", messages=[
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]),
    said("a tool that nobody runs", tools=[SEARCH], tool_choice={"type": "tool", "name": "web_search"}),
    said("a model that is not there", model="claude-x"),
    said("a prompt that is too long", "a" * 2000),
    post("a count of tokens", "/v1/messages/count_tokens", model="chat", tools=TOOLS,
         messages=[{"role": "user", "content": "Hi"}]),
]  # fmt: skip
