"""The OpenAI SDK against the gateway over plain text models, on the real tritonserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.doubles.text.text_server import TextServer
from tests.scripted_engine.replay import turn
from tests.stack import GatewayProcess

MODELS = ("plain_stream", "plain_whole", "plain_counts")
BOTH = [("plain_stream", "h2"), ("plain_stream", "grpcio"), ("plain_whole", "h2"), ("plain_whole", "grpcio")]
TEXT = "  Two spaces,\n\n你好 🧑‍🚀 ha haha"


@pytest.fixture(scope="module")
def gateway(text_triton: TextServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One that serves each model by each transport, as NAME-TRANSPORT."""
    folder = tmp_path_factory.mktemp("plain-gateway")
    own = {"max_seq_len": 512, "tokenizer": str(text_triton.model_dir)}
    models = [
        {
            "name": f"{model}-{transport}",
            "triton": {"url": text_triton.grpc_url, "model": model, "transport": transport},
            **own,
        }
        for model in MODELS
        for transport in ("h2", "grpcio")
    ]
    with GatewayProcess(folder / "log", {"models": models}) as process:
        yield process


def complete(client: OpenAI, model: str, prompt: str = "hi", **options: Any) -> Any:
    return client.completions.create(model=model, prompt=prompt, **options)


def streamed(client: OpenAI, model: str, prompt: str = "hi", **options: Any) -> tuple[list[str], str]:
    chunks = list(complete(client, model, prompt, stream=True, **options))
    choices = [choice for chunk in chunks for choice in chunk.choices]
    return [choice.text for choice in choices if choice.text], choices[-1].finish_reason


def refusal(call: Any) -> tuple[int, Any]:
    """Status and body of the error that a call raises."""
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    return caught.value.status_code, caught.value.body


@pytest.mark.parametrize(("name", "transport"), BOTH)
@pytest.mark.parametrize("chunk", [1, [3, 1, 2]], ids=["byte by byte", "in groups"])
def test_the_text_is_the_model_s_whole_and_streamed(
    text_triton: TextServer, client: OpenAI, name: str, transport: str, chunk: Any
) -> None:
    text_triton.play(turn(text=TEXT), chunk=chunk)
    model = f"{name}-{transport}"
    answer = complete(client, model)
    parts, _ = streamed(client, model)
    assert answer.choices[0].text == "".join(parts) == TEXT
    assert (len(parts) > 1) == (name == "plain_stream")
    assert [request["prompt"] for request in text_triton.requests()] == ["hi", "hi"]


@pytest.mark.parametrize("name", ["plain_stream", "plain_whole"])
def test_what_the_model_does_not_tell_is_marked_as_estimated(
    text_triton: TextServer, client: OpenAI, name: str
) -> None:
    text_triton.play(turn(text="alpha beta"))
    answer = complete(client, f"{name}-h2")
    assert answer.usage.completion_tokens == len(text_triton.ids("alpha beta"))
    assert answer.usage.completion_tokens_details.estimated is True
    assert answer.choices[0].finish_reason_estimated is True


def test_what_the_model_tells_is_taken(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text="alpha beta"), chunk=[4, 2])
    for most, text, finish in ((5, "alpha", "length"), (50, "alpha beta", "stop")):
        answer = complete(client, "plain_counts-h2", max_tokens=most)
        choice = answer.choices[0]
        assert (choice.text, choice.finish_reason) == (text, finish)
        assert answer.usage.completion_tokens == len(text)
        assert getattr(answer.usage.completion_tokens_details, "estimated", None) is None
        assert getattr(choice, "finish_reason_estimated", None) is None


@pytest.mark.parametrize(
    ("spoil", "finish"),
    [
        ({"num_output_tokens": None, "finish_reason": "length"}, "length"),  # by a limit of the model's own
        ({"num_output_tokens": 300}, "stop"),  # each time all of them, which add up to more than there may be
    ],
)
def test_a_count_that_nobody_told_is_marked(
    text_triton: TextServer, client: OpenAI, spoil: dict[str, Any], finish: str
) -> None:
    text_triton.play(turn(text="alpha", spoil=spoil))
    answer = complete(client, "plain_counts-h2")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("alpha", finish)
    assert answer.usage.completion_tokens == len(text_triton.ids("alpha"))
    assert answer.usage.completion_tokens_details.estimated is True


def test_an_end_that_nobody_explained_is_marked(text_triton: TextServer, client: OpenAI) -> None:
    """The model may have a limit of its own: fewer tokens than were asked for do not tell that it said all."""
    text_triton.play(turn(text="alpha beta", spoil={"finish_reason": None}), chunk=4)
    for most, finish, estimated in ((50, "stop", True), (5, "length", None)):
        choice = complete(client, "plain_counts-h2", max_tokens=most).choices[0]
        assert choice.finish_reason == finish
        assert getattr(choice, "finish_reason_estimated", None) is estimated


def test_the_model_s_count_of_the_prompt_is_taken(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text="alpha"))
    assert complete(client, "plain_counts-h2", prompt="a prompt").usage.prompt_tokens == len("a prompt")


def test_declared_parameters_reach_the_model(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text="ok"))
    complete(client, "plain_stream-h2", temperature=0.5, seed=7, max_tokens=9)
    complete(client, "plain_stream-h2")
    first, second = (request["inputs"] for request in text_triton.requests())
    assert first == {"text_input": "hi", "temperature": 0.5, "seed": 7, "max_tokens": 9}
    assert (second["temperature"], "seed" in second) == (1.0, False)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("plain_whole-h2", {"max_tokens": 5}),
        ("plain_whole-h2", {"temperature": 0.5}),
        ("plain_whole-h2", {"temperature": 0}),
        ("plain_whole-h2", {"seed": 1}),
        ("plain_stream-h2", {"top_p": 0.5}),
        ("plain_stream-h2", {"presence_penalty": 0.5}),
        ("plain_stream-h2", {"logprobs": 1}),
        ("plain_stream-h2", {"logit_bias": {"65": 1}}),
        ("plain_stream-h2", {"stop_token_ids": [65]}),
        ("plain_stream-h2", {"guided_regex": "a"}),
        ("plain_stream-h2", {"bad_words": ["a"]}),
        ("plain_stream-h2", {"min_tokens": 3}),
        ("plain_stream-h2", {"return_token_ids": True}),
    ],
)
def test_what_the_model_does_not_declare_is_refused_by_name(client: OpenAI, model: str, fields: dict[str, Any]) -> None:
    status, body = refusal(lambda: complete(client, model, extra_body=fields))
    assert (status, body["param"]) == (400, next(iter(fields)))


@pytest.mark.parametrize(("name", "transport"), BOTH)
def test_a_stop_string_cuts_the_text(text_triton: TextServer, client: OpenAI, name: str, transport: str) -> None:
    text_triton.play(turn(text="alpha beta gamma", pause=0.01))
    answer = complete(client, f"{name}-{transport}", stop=["a ga"])
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("alpha bet", "stop")


@pytest.mark.parametrize("transport", ["h2", "grpcio"])
def test_a_client_that_leaves_cancels_the_request(
    text_triton: TextServer, gateway: GatewayProcess, transport: str
) -> None:
    text_triton.play(turn(text="a", hold=True))
    body = {"model": f"plain_stream-{transport}", "prompt": "hi", "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/completions", json=body, timeout=30) as answer:
        next(answer.iter_lines())
    assert text_triton.requests_with("ended")[0]["ended"] == "cancelled"


@pytest.mark.parametrize(("name", "transport"), BOTH)
def test_the_model_s_errors_are_errors_without_its_words(
    text_triton: TextServer, client: OpenAI, name: str, transport: str
) -> None:
    text_triton.play(turn(fails="no such file: /opt/secret"))
    for ask in (complete, streamed):
        with pytest.raises(openai.APIError) as caught:
            ask(client, f"{name}-{transport}")
        assert "secret" not in str(caught.value)


def test_an_error_within_an_answer_ends_it_as_one(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn(text="alpha", fail_after=2, error="secret"))
    with pytest.raises(openai.APIError) as caught:
        streamed(client, "plain_stream-h2")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("name", "transport"), BOTH)
def test_an_answer_without_any_output_is_an_error(
    text_triton: TextServer, client: OpenAI, name: str, transport: str
) -> None:
    text_triton.play(turn(text="never said", silent=True))
    status, _ = refusal(lambda: complete(client, f"{name}-{transport}"))
    assert status == 500


@pytest.mark.parametrize("chunk", [1, 50])
def test_a_character_that_the_limit_cuts_is_shown_as_such(text_triton: TextServer, client: OpenAI, chunk: int) -> None:
    text_triton.play(turn(text="alpha 😀"), chunk=chunk)
    answer = complete(client, "plain_counts-h2", max_tokens=8)
    parts, finish = streamed(client, "plain_counts-h2", max_tokens=8)
    assert answer.choices[0].text == "".join(parts) == "alpha \ufffd"
    assert answer.choices[0].finish_reason == finish == "length"
    assert answer.usage.completion_tokens == 8


def test_an_empty_text_is_an_answer(text_triton: TextServer, client: OpenAI) -> None:
    text_triton.play(turn("hi", text=""))
    answer = complete(client, "plain_whole-h2")
    assert (answer.choices[0].text, answer.usage.completion_tokens) == ("", 0)


def test_the_page_of_the_model_says_what_is_lost(client: OpenAI) -> None:
    told = client.models.retrieve("plain_whole-h2").model_dump()
    assert (told["gateway"]["path"], told["gateway"]["streams"]) == ("text", "whole")
    assert told["gateway"]["estimates"] == ["completion_tokens", "finish_reason"]
    assert any("does not support max_tokens" in loss for loss in told["gateway"]["losses"])
    assert told["capabilities"]["max_tokens"]["how"] == "impossible"
