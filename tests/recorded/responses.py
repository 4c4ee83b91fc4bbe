"""Responses: text, items, calls, reasoning, whole and streamed; what is left out, and what is refused."""

from __future__ import annotations

from typing import Any

from tests.recorded.exchange import Case, post
from tests.recorded.forms import CALL, CITY, ROME, TIME
from tests.recorded.gateways import KEY

S: dict[str, Any] = {"stream": True}
GUARDED = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "weather", "description": "Looks out of the window.", "parameters": CITY},
    {"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}}},
]
MORE: list[dict[str, Any]] = [
    {"type": "namespace", "name": "home", "description": "Tools of the house.", "tools": TOOLS},
    {"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
    {"type": "web_search"},
]


def called(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def respond(name: str, say: str = "Hello", /, **body: Any) -> Case:
    """A response whose text is ``say``; a ``body`` with an input has its own."""
    return post(name, "/v1/responses", **{"model": "chat", "input": f"say:<<chunk 6>>{say}", **body})


RESPONSES: list[Case] = [
    respond("a text"),
    respond("a text, streamed", **S),
    respond("a text through the ensemble, streamed", model="text", **S),
    respond("a text that is cut", max_output_tokens=3),
    respond("a text that is cut, streamed", max_output_tokens=3, **S),
    respond("log-probs, streamed", include=["message.output_text.logprobs"], top_logprobs=1, max_output_tokens=2, **S),
    respond("padded", stream_options={"include_obfuscation": True}, **S),
    respond("a limit beyond the context where it is refused", model="strict", max_output_tokens=128000),
    respond("instructions and items", instructions="Be kind.", input=[
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be short."}]},
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": ROME},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "22 degrees"}]},
        {"type": "web_search_call", "id": "ws_1"},
        {"role": "user", "content": "say:Warm"},
    ]),
    respond("two calls", f"Look: {CALL}\n{TIME}", tools=TOOLS),
    respond("two calls, streamed", f"Look: {CALL}\n{TIME}", tools=TOOLS, **S),
    respond("a demanded call, streamed", CALL, tools=TOOLS, tool_choice="required", **S),
    respond("calls of a namespace and a custom tool, streamed",
            called("home__weather", ROME) + called("note", '{"input": "a"}'), tools=MORE, **S),
    respond("reasoning, streamed", "<think>\nHm.\n</think>\n\nSo.", model="reasoner", **S),
    respond("a schema", ROME, text={"format": {"type": "json_schema", "name": "place", "schema": CITY}}),
    respond("a failure in the middle, streamed", "He<<error Encountered an error>>", **S),
    respond("unknown fields", client_metadata={"a": "b"}, whatever=1, include=["reasoning.encrypted_content"]),
    respond("an image", input=[{"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]}]),
    respond("an output without its call", input=[{"type": "function_call_output", "call_id": "x", "output": ""}]),
    respond("a response that was never kept", previous_response_id="resp_1"),
    respond("in the background, streamed", background=True, **S),
    respond("in the background where nothing is to be kept", background=True, store=False),
    Case("showing no response", "/v1/responses/resp_1", method="GET"),
    Case("following no response from a wrong event", "/v1/responses/resp_1?stream=true&starting_after=x", method="GET"),
    Case("deleting no response", "/v1/responses/resp_1", method="DELETE"),
    Case("cancelling no response", "/v1/responses/resp_1/cancel"),
    Case("input items of no response", "/v1/responses/resp_1/input_items", method="GET"),
    respond("a conversation that was never there", conversation="conv_1"),
    respond("two conversations before it", conversation="conv_1", previous_response_id="resp_1"),
    respond("a conversation where nothing is to be kept", conversation="conv_1", store=False),
    respond("reasoning that another server has sealed", input=[
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAAAABo"},
        {"type": "compaction", "encrypted_content": "gAAAAABo"},
        {"role": "user", "content": "say:Warm"},
    ]),
    respond("a tool that nobody runs", tools=MORE, tool_choice={"type": "web_search"}),
    respond("no input", input=None),
    Case("a conversation made shorter", "/v1/responses/compact", {"model": "only", "input": [
        {"role": "developer", "content": "Be short."}, {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "Warm."}, {"role": "user", "content": "say:It was warm."},
    ]}, headers=GUARDED, guarded=True),
    post("a conversation where there is no key", "/v1/responses/compact", model="chat", input="Hi"),
    post("a new conversation", "/v1/conversations", items=[{"role": "user", "content": "Hi"}], metadata={"a": "b"}),
    post("a new conversation of wrong items", "/v1/conversations", items=[{"type": "item_reference", "id": "msg_1"}]),
    Case("items of no conversation", "/v1/conversations/conv_1/items?limit=5", method="GET"),
    Case("a wrong page of no conversation", "/v1/conversations/conv_1/items?limit=500", method="GET"),
    Case("deleting no conversation", "/v1/conversations/conv_1", method="DELETE"),
    post("input tokens", "/v1/responses/input_tokens", model="chat", input="Hi", instructions="Be kind."),
    post("input tokens of a wrong item", "/v1/responses/input_tokens", model="chat", input=[{"role": "robot"}]),
]  # fmt: skip
