"""docker compose --profile cpu up, as a user meets it."""

from __future__ import annotations

import json

from compose_project import GATEWAY, Project

_ASK = '[{"role": "user", "content": "What is the capital of France?"}]'
_SDK = f"""
from openai import OpenAI
client = OpenAI(base_url="{GATEWAY}/v1", api_key="unused", max_retries=0, timeout=50)
ask = dict(model="smollm2-135m-instruct", messages={_ASK}, temperature=0, max_tokens=12)
whole = client.chat.completions.create(**ask)
parts = [c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True) if c.choices]
import json
print(json.dumps([whole.choices[0].message.content, "".join(parts), len(parts), whole.usage.completion_tokens]))
"""
_LANGCHAIN = f"""
from langchain_openai import ChatOpenAI
llm = ChatOpenAI(model="smollm2-135m-instruct", base_url="{GATEWAY}/v1", api_key="unused", temperature=0, max_tokens=12)
print(llm.invoke("What is the capital of France?").content)
"""


def test_it_becomes_healthy_and_serves_the_embedded_model(up: Project) -> None:
    assert up.inspect("triton-cpu")["State"]["Health"]["Status"] == "healthy"
    assert up.inspect("gateway")["State"]["Health"]["Status"] == "healthy"
    status, body = up.get("/v1/models")
    assert (status, [model["id"] for model in json.loads(body)["data"]]) == (200, ["smollm2-135m-instruct"])


def test_the_openai_sdk_chats_streaming_and_not(up: Project) -> None:
    whole, streamed, parts, tokens = json.loads(up.python(_SDK))
    assert "Paris" in whole
    assert whole == streamed
    assert parts > 3
    assert 0 < tokens <= 12


def test_langchain_invokes(up: Project) -> None:
    assert "Paris" in up.python(_LANGCHAIN)
