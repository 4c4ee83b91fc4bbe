"""The OpenAI SDK against the gateway over doubles of Triton's vLLM backend, on the real tritonserver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from gateway_ops.check.endpoint import describe_triton
from gateway_ops.check.findings import Severity
from tests.doubles.text.text_server import ADAPTER, MAX_MODEL_LEN, TextServer, vllm_model
from tests.doubles.text.vllm_sampling import VERSIONS, drawn_logprob
from tests.scripted_engine.replay import turn
from tests.stack import GatewayProcess

NEWEST = "26.01"
OLDEST = "24.11"


@pytest.fixture(scope="module")
def gateway(text_triton: TextServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One that serves each version by its name, by both transports, and the newest in several ways."""
    folder = tmp_path_factory.mktemp("vllm-gateway")

    def model(name: str, version: str, transport: str = "h2", **settings: Any) -> dict[str, Any]:
        triton = {"url": text_triton.grpc_url, "model": vllm_model(version), "transport": transport}
        own = {"max_seq_len": MAX_MODEL_LEN, "tokenizer": str(text_triton.model_dir)}
        return {"name": name, "triton": triton, **own, **settings}

    models = [model(version, version) for version in VERSIONS]
    models += [
        model("grpcio", NEWEST, "grpcio"),
        model("adapter", NEWEST, lora={"task_id": 0, "name": ADAPTER}),
        model("no-adapter", NEWEST, lora={"task_id": 0, "name": "nobody"}),
        model("long", NEWEST, max_seq_len=10**6),
        model("warn", NEWEST, policies={"impossible": "warn"}),
    ]
    with GatewayProcess(folder / "log", {"models": models}) as process:
        yield process


def whole(client: OpenAI, model: str, content: str = "hi", **options: Any) -> Any:
    messages: Any = [{"role": "user", "content": content}]
    return client.chat.completions.create(model=model, messages=messages, **options)


def streamed(client: OpenAI, model: str, content: str = "hi", **options: Any) -> tuple[list[str], str, Any]:
    """Pieces of text, finish reason and usage."""
    with_usage: Any = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(whole(client, model, content, **with_usage, **options))
    parts = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    [finish] = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    return parts, finish, chunks[-1].usage


def refusal(call: Any) -> tuple[int, Any]:
    """Status and body of the error that a call raises."""
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    return caught.value.status_code, caught.value.body


@pytest.mark.parametrize("model", [NEWEST, "grpcio", OLDEST])
def test_a_stop_string_ends_the_request_in_the_engine(text_triton: TextServer, client: OpenAI, model: str) -> None:
    text_triton.play(turn(text="alpha beta gamma delta", pause=0.02))
    parts, finish, _ = streamed(client, model, temperature=0, stop=["a ga"])
    assert ("".join(parts), finish) == ("alpha bet", "stop")
    [request] = text_triton.requests_with("ended")
    assert request["ended"] == "cancelled"
    assert request["tokens"] < request["generated"]
    assert "stop" not in request["effective"]


@pytest.mark.parametrize("model", [NEWEST, "grpcio"])
def test_a_client_that_leaves_frees_the_engine(text_triton: TextServer, gateway: GatewayProcess, model: str) -> None:
    text_triton.play(turn(text="a" * 400, pause=0.02))
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, timeout=30) as answer:
        next(answer.iter_lines())
    [request] = text_triton.requests_with("ended")
    assert request["ended"] == "cancelled"


def test_greedy_is_temperature_zero_alone(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text="ok"))
    whole(client, NEWEST, temperature=0, top_p=0.3)
    whole(client, NEWEST, extra_body={"top_k": 1})
    for request in text_triton.requests():
        assert '"temperature": 0.0' in request["inputs"]["sampling_parameters"]
        assert '"top_' not in request["inputs"]["sampling_parameters"]
        assert "seed" not in request["effective"]


@pytest.mark.parametrize("model", [NEWEST, "24.12", "grpcio"])
@pytest.mark.parametrize("top", [0, 1, 3])
def test_log_probs_are_those_of_the_drawn_tokens(text_triton: TextServer, client: OpenAI, model: str, top: int) -> None:
    text = "ab cde, 世界"
    text_triton.play(turn(text=text), chunk=[1, 3])
    answer = whole(client, model, temperature=0, logprobs=True, top_logprobs=top)
    choice = answer.choices[0]
    assert choice.message.content == text
    ids = text_triton.ids(text)
    assert answer.usage.completion_tokens == len(ids) == len(choice.logprobs.content)
    for index, entry in zip(ids, choice.logprobs.content, strict=True):
        assert entry.logprob == pytest.approx(drawn_logprob(index))
        assert len(entry.top_logprobs) == top
        values = [each.logprob for each in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert values == [] or (max(values) == pytest.approx(entry.logprob)) == bool(index % 2)
    assert [request["effective"]["logprobs"] for request in text_triton.requests()] == [top]


def test_an_adapter_goes_by_its_name(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text="arr"))
    assert whole(client, "adapter").choices[0].message.content == "arr"
    assert text_triton.requests()[0]["effective"]["lora_name"] == ADAPTER
    status, body = refusal(lambda: whole(client, "no-adapter"))
    assert (status, body["param"]) == (400, "model")
    assert ADAPTER not in body["message"]


def test_a_prompt_that_vllm_finds_too_long_has_the_code_for_it(client: OpenAI) -> None:
    status, body = refusal(lambda: whole(client, "long", "word " * 2000))
    assert (status, body["code"]) == (400, "context_length_exceeded")
    assert f"{MAX_MODEL_LEN} maximum" in body["message"]


@pytest.mark.parametrize("model", [NEWEST, "grpcio"])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("EngineCore encountered an issue. See stack trace (above) for the root cause.", 503),
        ("CUDA error at /opt/secret/kernel.cu", 500),
    ],
)
def test_an_engine_s_words_never_reach_the_client(
    text_triton: TextServer, client: OpenAI, model: str, error: str, status: int
) -> None:
    text_triton.play(
        turn(text="alpha beta", fail_after=0, error=error), turn("within", text="alpha", fail_after=2, error=error)
    )
    found, body = refusal(lambda: whole(client, model))
    assert found == status
    assert "secret" not in str(body)
    assert "EngineCore" not in str(body)
    with pytest.raises(openai.APIError) as caught:
        streamed(client, model, "within")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "options"),
    [
        ({"finish_reason": None}, {}),
        ({"finish_reason": "abort"}, {}),
        ({"finish_reason": "error"}, {}),
        ({"finish_reason": "a word of tomorrow"}, {}),
        ({"text_output": None}, {}),
        ({"num_output_tokens": [7]}, {"logprobs": True}),
        ({"logprobs": None}, {"logprobs": True}),
        ({"logprobs": "null"}, {"logprobs": True}),
        ({"logprobs": "[{"}, {"logprobs": True}),
        ({"logprobs": '[{"x": 1}]'}, {"logprobs": True}),
        ({"logprobs": '[{"99999999": {"logprob": -1}}]'}, {"logprobs": True}),
        ({"logprobs": '[{"70": {"logprob": -1}, "71": {"logprob": -2}}]'}, {"logprobs": True, "top_logprobs": 1}),
    ],
)
def test_an_answer_that_is_not_as_it_should_be_is_an_error(
    text_triton: TextServer, client: OpenAI, spoil: dict[str, Any], options: dict[str, Any]
) -> None:
    text_triton.play(turn(text="alpha", spoil=spoil))
    status, body = refusal(lambda: whole(client, NEWEST, **options))
    assert status >= 500
    assert "tomorrow" not in str(body)


@pytest.mark.parametrize("count", [None, [7]])  # seven of each token are more than were asked for
def test_a_count_that_is_none_makes_an_estimate_that_says_so(
    text_triton: TextServer, client: OpenAI, count: list[int] | None
) -> None:
    text_triton.play(turn(text="alpha", spoil={"num_output_tokens": count}))
    answer = whole(client, NEWEST, max_tokens=10)
    assert answer.usage.completion_tokens <= 10
    assert answer.usage.completion_tokens_details.estimated is True
    assert answer.choices[0].finish_reason == "stop"


def test_an_empty_answer_is_one(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text=""))
    answer = whole(client, NEWEST)
    assert answer.choices[0].message.content in ("", None)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("stop", 0)


@pytest.mark.parametrize(("model", "path"), [(vllm_model(NEWEST), "vllm"), ("plain_stream", "text")])
def test_a_check_of_the_endpoint_says_what_it_is(text_triton: TextServer, model: str, path: str) -> None:
    text_triton.play(turn(text="a"))
    findings, described = asyncio.run(describe_triton(text_triton.grpc_url, model))
    assert described[model].path == path
    assert {finding.severity for finding in findings} == {Severity.INFO}


def test_a_check_of_the_endpoint_names_what_is_in_the_way(text_triton: TextServer) -> None:
    [finding], described = asyncio.run(describe_triton(text_triton.grpc_url, "plain_picky"))
    assert "does not send: persona" in finding.what
    assert (finding.severity, described) == (Severity.ERROR, {})
