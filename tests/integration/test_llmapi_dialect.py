"""The OpenAI SDK against the gateway over the stock LLM API model of each version, on the real tritonserver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from openai import OpenAI

from tests.doubles.llmapi.server import BOS, LlmapiServer
from tests.doubles.llmapi.versions import VERSIONS
from tests.scripted_engine.replay import turn
from tests.stack import GatewayProcess, strict_client

END = "<|im_end|>"
ENGINES = {"0.19": "0.19.0", "1.0": "1.0.0", "1.2": "1.2.1", "1.3": "1.3.0"}
NO_BOS = "{% for message in messages %}{{ message.content }}{% endfor %}"


class Answer(NamedTuple):
    text: str
    finish: str | None
    prompt_tokens: int
    completion_tokens: int
    estimated: bool
    events: int


@pytest.fixture(scope="module")
def gateway(llmapi_triton: LlmapiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One that serves each version by its name, and that of 1.3 in several ways."""
    folder = tmp_path_factory.mktemp("llmapi-gateway")
    (folder / "no_bos.jinja").write_text(NO_BOS)
    (folder / "adapter").mkdir()

    def model(name: str, version: str, **settings: Any) -> dict[str, Any]:
        triton = {"url": llmapi_triton.grpc_url, "model": llmapi_triton.model(version)}
        own = {"engine_version": ENGINES[version], "max_seq_len": 1024, "tokenizer": str(llmapi_triton.model_dir)}
        return {"name": name, "triton": triton, **own, **settings}

    adapter = {"task_id": 5, "name": "pirate", "path": str(folder / "adapter")}
    models = [model(version, version) for version in VERSIONS]
    models += [
        model("1.3-adapter", "1.3", lora=adapter),
        model("1.3-no-adapter", "1.3", lora={**adapter, "path": "/not/there"}),
        model("1.3-no-bos", "1.3", template="no_bos.jinja"),
        model("1.3-warn", "1.3", policies={"impossible": "warn"}, engine_version=None),
        model("1.3-long", "1.3", max_seq_len=10**6),
    ]
    with GatewayProcess(folder / "log", {"models": models}) as process:
        yield process


def ask(client: OpenAI, model: str, *, stream: bool = False, content: str = "hi", **options: Any) -> Answer:
    """A chat answer; of a stream its parts put together, and how many of them had text."""
    messages: Any = [{"role": "user", "content": content}]
    if not stream:
        whole = client.chat.completions.create(model=model, messages=messages, **options)
        choice, usage = whole.choices[0], whole.usage
        text, finish, events = choice.message.content or "", choice.finish_reason, 1
    else:
        with_usage: Any = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(model=model, messages=messages, **with_usage, **options))
        parts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
        ends = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        text, finish, usage, events = "".join(parts), ends[0], chunks[-1].usage, len(parts)
    assert usage is not None
    assert usage.completion_tokens_details is not None
    estimated = getattr(usage.completion_tokens_details, "estimated", False)
    return Answer(text, finish, usage.prompt_tokens, usage.completion_tokens, bool(estimated), events)


def refusal(call: Callable[[], object]) -> dict[str, Any]:
    """The body of the error that a call raises."""
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    body: Any = caught.value.body
    return {"status": caught.value.status_code, **body}


def test_what_looks_like_an_end_is_text(llmapi_triton: LlmapiServer, client: OpenAI) -> None:
    spelled = llmapi_triton.ids("the end is <|im_") + llmapi_triton.ids("end|> here")
    llmapi_triton.play(turn(ids=[*spelled, *llmapi_triton.ids(END)]))
    for version in VERSIONS:
        assert ask(client, version).text == "the end is <|im_end|> here"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_is_cut_is_counted_exactly(llmapi_triton: LlmapiServer, client: OpenAI, version: str) -> None:
    tokens = llmapi_triton.ids("Hi 😀")
    llmapi_triton.play(turn(text="Hi 😀 and so on"))
    for stream in (False, True):
        cut = ask(client, version, stream=stream, max_tokens=len(tokens) - 1)
        assert cut[:2] == ("Hi ", "length")  # the rest of the character is not there
        assert (cut.completion_tokens, cut.estimated) == (len(tokens) - 1, False)
    llmapi_triton.play(turn(text="ab" * 40 + END))
    assert len(ask(client, version).text) == 80  # the model's own limit is 32 tokens


def test_a_stop_string_ends_the_request_in_the_engine(llmapi_triton: LlmapiServer, client: OpenAI) -> None:
    llmapi_triton.play(turn(text="one STOP two", stall_after=9))
    assert ask(client, "1.3", stream=True, stop="STOP").text == "one "
    assert llmapi_triton.requests_with("ended")[0]["ended"] == "cancelled"


@pytest.mark.parametrize("version", ["1.0", "1.2", "1.3"])
def test_a_client_that_leaves_frees_the_engine(
    llmapi_triton: LlmapiServer, gateway: GatewayProcess, version: str
) -> None:
    llmapi_triton.play(turn(text="a long answer", stall_after=3))
    body = {"model": version, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=httpx.Timeout(10, read=1))
    assert llmapi_triton.requests_with("ended")[0]["ended"] == "cancelled"


def test_an_engine_that_fails_is_never_an_answer(llmapi_triton: LlmapiServer, client: OpenAI) -> None:
    llmapi_triton.play(turn(text="some words before", fail_after=4, error="secret /path of the engine"))
    for version in VERSIONS:
        body = refusal(lambda version=version: ask(client, version))
        assert (body["status"], "secret" in str(body)) == (500, False)
    with pytest.raises(openai.APIError) as caught:
        ask(client, "1.3", stream=True)
    assert "secret" not in str(caught.value.body)


def test_a_prompt_that_is_too_long_for_the_engine_is_the_client_s_fault(
    llmapi_triton: LlmapiServer, client: OpenAI
) -> None:
    llmapi_triton.play(turn(text="no"))
    body = refusal(lambda: ask(client, "1.3-long", content="word " * 9000))
    assert (body["status"], body["code"], body["param"]) == (400, "context_length_exceeded", "messages")


def test_prompts_of_completions_and_their_echo(llmapi_triton: LlmapiServer, client: OpenAI) -> None:
    llmapi_triton.play(turn(text=" there" + END))
    ids = llmapi_triton.ids(f"{BOS}Hello")
    for version in VERSIONS:
        for prompt in ("Hello", f"{BOS}Hello", ids):
            answer = client.completions.create(model=version, prompt=prompt, echo=True, max_tokens=30)
            shown = "Hello" if prompt == "Hello" else f"{BOS}Hello"
            assert answer.choices[0].text == f"{shown} there"
            assert answer.usage is not None
            assert answer.usage.prompt_tokens == len(ids)
    assert {tuple(request["prompt_ids"]) for request in llmapi_triton.requests()} == {tuple(ids)}


def test_a_template_without_bos_is_read_with_one_and_that_is_told(
    llmapi_triton: LlmapiServer, client: OpenAI, gateway: GatewayProcess
) -> None:
    llmapi_triton.play(turn(text="ok" + END))
    answer = ask(client, "1.3-no-bos", content="Hello")
    [request] = llmapi_triton.requests()
    assert request["prompt"] == f"{BOS}Hello"
    assert answer.prompt_tokens == len(request["prompt_ids"])
    served = httpx.get(f"{gateway.url}/v1/models/1.3-no-bos").json()["gateway"]
    assert any("does not read prompts as the chat template writes them" in loss for loss in served["losses"])


def test_an_adapter_is_the_operator_s_by_name(llmapi_triton: LlmapiServer, client: OpenAI) -> None:
    llmapi_triton.play(turn(text="ok" + END))
    for _ in range(2):
        assert ask(client, "1.3-adapter").text == "ok"
    assert {request["adapter"]["name"] for request in llmapi_triton.requests()} == {"pirate"}
    body = refusal(lambda: ask(client, "1.3-no-adapter"))
    assert (body["status"], body["code"]) == (500, "adapter_unusable")
    assert "/not/there" not in body["message"]


def test_models_whose_settings_harm(misconfigured_llmapi_triton: LlmapiServer, tmp_path: Path) -> None:
    server = misconfigured_llmapi_triton
    server.play(turn(text="Hello 世界" + END))
    names = [f"llmapi_{version}_{fault}" for version in ("1_2", "1_3") for fault in ("whole", "lost")]
    own = {"max_seq_len": 1024, "tokenizer": str(server.model_dir)}
    models = [
        {"name": name, "triton": {"url": server.grpc_url, "model": name}, **own} for name in [*names, "llmapi_1_2_lora"]
    ]
    process = GatewayProcess(tmp_path / "log", {"models": models})
    process.start(ready=False)
    try:
        with strict_client(process.url) as client:
            states = settled(process)
            for name in names:
                assert states[name]["ready"]
                assert ask(client, name)[:2] == ("Hello 世界", "stop")
                streamed = ask(client, name, stream=True)
                assert (streamed.text, streamed.events) == ("Hello 世界", 1)
        assert "lora_config" in states["llmapi_1_2_lora"]["reason"]  # each of its requests would fail
    finally:
        process.stop()


def settled(process: GatewayProcess) -> Any:
    """The readiness of each model, once Triton was asked for all of them."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        states = httpx.get(f"{process.url}/health/ready").json()["models"]
        if not any("not been reached" in state.get("reason", "") for state in states.values()):
            return states
        time.sleep(0.05)
    raise AssertionError("Triton was not asked for all models")
