"""Answers that the engine gives up in their middle, end to end: no client may take the part for the whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.scripted_engine.replay import ScriptedServer, turn
from tests.stack import GatewayProcess

MODEL = "scripted"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture(scope="module", params=[("tokens", "h2"), ("tokens", "grpcio"), ("ensemble", "h2")], ids=" ".join)
def client(
    request: pytest.FixtureRequest, scripted_triton: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAI]:
    folder = tmp_path_factory.mktemp("given-up")
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    with GatewayProcess.of_model(
        folder / "log",
        MODEL,
        scripted_triton.grpc_url,
        scripted_triton.model_dir,
        8192,
        GATEWAY_TEMPLATE=str(folder / "template.jinja"),
        GATEWAY_PATH=request.param[0],
        GATEWAY_TRANSPORT=request.param[1],
        GATEWAY_BETWEEN_TOKENS_TIMEOUT_S="0.8",
    ) as process:
        yield OpenAI(base_url=f"{process.url}/v1", api_key="unused", max_retries=0, timeout=60)


def test_a_stop_string_before_the_end_makes_the_answer_whole(client: OpenAI, scripted_triton: ScriptedServer) -> None:
    scripted_triton.play(turn("say", text="whole. half", finish="timed_out", chunk=64))
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "say"}], stop=["."]
    ).choices[0]
    assert (answer.message.content, answer.finish_reason) == ("whole", "stop")


@pytest.mark.parametrize("stop", [None, ["ans never goes on"]], ids=["shown", "held back"])
def test_an_engine_that_stalls_in_its_answer_ends_it(
    client: OpenAI, scripted_triton: ScriptedServer, stop: list[str] | None
) -> None:
    scripted_triton.play(turn("say", text="half an ans", hold=True), turn("other", text="well"))
    asked: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "say"}], "stop": stop}
    with pytest.raises(openai.APIStatusError) as status:
        client.chat.completions.create(**asked)
    assert (status.value.status_code, status.value.code) == (504, "timeout")
    stream, choices = client.chat.completions.create(**asked, stream=True), []
    with pytest.raises(openai.APIError) as error:
        choices.extend(chunk.choices[0] for chunk in stream)
    assert "".join(choice.delta.content or "" for choice in choices) == ("half an " if stop else "half an ans")
    assert error.value.code == "timeout"
    other = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "other"}])
    assert other.choices[0].message.content == "well"
