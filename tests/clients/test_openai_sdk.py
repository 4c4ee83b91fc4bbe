"""The OpenAI SDK against the running stack, by both paths. Greedy answers of SmolLM2 are known."""

from __future__ import annotations

import asyncio
import math

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.clients.conftest import BY_BOTH_PATHS, MAX_SEQ_LEN, MODEL, TINY, TINY_MAX_SEQ_LEN
from tests.stack import GatewayProcess

PARIS: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
# ChatML around "You are a helpful assistant." and the question, as SmolLM2's tokenizer counts it.
PARIS_PROMPT_TOKENS = 27


@BY_BOTH_PATHS
def test_names_paris_and_ends_by_itself(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (PARIS_PROMPT_TOKENS, 7)
    assert answer.usage.total_tokens == PARIS_PROMPT_TOKENS + 7


def test_max_tokens_cuts_with_length(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, max_tokens=3)
    assert answer.choices[0].message.content == "The capital of"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_max_completion_tokens_is_the_same_limit(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, max_completion_tokens=3)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("The capital of", "length")


@BY_BOTH_PATHS
def test_stream_gives_one_event_a_token_and_the_same_text_and_usage(client: OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=PARIS, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks: list[ChatCompletionChunk] = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert texts == ["The", " capital", " of", " France", " is", " Paris", "."]
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert finishes[-1] == "stop"
    assert set(finishes[:-1]) == {None}
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (PARIS_PROMPT_TOKENS, 7)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_no_usage_chunk_unless_asked_for(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, stream=True))
    assert all(chunk.choices for chunk in chunks)


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        (" Paris", "The capital of France is", 6),
        ("cap", "The ", 2),  # inside a token: the token that completes the stop is counted
        (["nowhere", "is Pa"], "The capital of France ", 6),  # across tokens
        ("zebra", "The capital of France is Paris.", 7),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_match_text_whatever_the_tokens(
    client: OpenAI, stop: str | list[str], text: str, tokens: int, stream: bool
) -> None:
    if stream:
        chunks = list(
            client.chat.completions.create(
                model=MODEL,
                messages=PARIS,
                temperature=0,
                stop=stop,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        got = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        finish = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1]
        usage = chunks[-1].usage
    else:
        answer = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, stop=stop)
        got = answer.choices[0].message.content or ""
        finish, usage = answer.choices[0].finish_reason, answer.usage
    assert got == text
    assert finish == "stop"
    assert usage is not None
    assert usage.completion_tokens == tokens


def test_log_probs_name_each_token_and_sum_up(client: OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, logprobs=True, top_logprobs=5)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert [entry.token for entry in logprobs.content] == ["The", " capital", " of", " France", " is", " Paris", "."]
    assert (
        b"".join(bytes(entry.bytes or []) for entry in logprobs.content).decode() == answer.choices[0].message.content
    )
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 5
        # Greedy takes the best one, and the report of the chosen token is the same number.
        assert entry.top_logprobs[0].token == entry.token
        assert math.isclose(entry.top_logprobs[0].logprob, entry.logprob, abs_tol=1e-5)
        assert sum(math.exp(top.logprob) for top in entry.top_logprobs) <= 1.0001
        assert [top.logprob for top in entry.top_logprobs] == sorted(
            (top.logprob for top in entry.top_logprobs), reverse=True
        )
    # llama.cpp gives -0.2589 for " Paris" on its 8-bit path; float32 transformers -0.2581.
    assert -0.5 < logprobs.content[5].logprob < 0.0


def test_streamed_log_probs_equal_those_of_the_whole(client: OpenAI) -> None:
    def ask(stream: bool) -> list[tuple[str, float]]:
        if not stream:
            answer = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, logprobs=True)
            content = answer.choices[0].logprobs and answer.choices[0].logprobs.content
            return [(entry.token, entry.logprob) for entry in content or []]
        chunks = client.chat.completions.create(model=MODEL, messages=PARIS, temperature=0, logprobs=True, stream=True)
        entries = [
            entry
            for chunk in chunks
            for choice in chunk.choices
            if choice.logprobs and choice.logprobs.content
            for entry in choice.logprobs.content
        ]
        return [(entry.token, entry.logprob) for entry in entries]

    whole, streamed = ask(False), ask(True)
    assert [token for token, _ in streamed] == [token for token, _ in whole]
    assert streamed == [(token, pytest.approx(value, abs=1e-4)) for token, value in whole]


def test_a_seed_reproduces_and_another_differs(client: OpenAI) -> None:
    def ask(seed: int) -> str | None:
        return (
            client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "Invent a name for a boat."}],
                temperature=1.0,
                max_tokens=6,
                seed=seed,
            )
            .choices[0]
            .message.content
        )

    texts = [ask(seed) for seed in (7, -1, 8, 7)]
    assert texts[3] == texts[0]
    assert len(set(texts)) == 3


@BY_BOTH_PATHS
def test_temperature_without_top_p_really_samples(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Say a random word."}], temperature=1.5, max_tokens=6, n=6
    )
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_roles_and_text_parts(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "You are a helpful assistant."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "What is the capital"}, {"type": "text", "text": " of France?"}],
            },
        ],
        temperature=0,
    )
    assert "Paris" in (answer.choices[0].message.content or "")


async def test_async_streams_side_by_side(async_client: AsyncOpenAI) -> None:
    async def ask(country: str) -> str:
        stream = await async_client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"What is the capital of {country}?"}],
            temperature=0,
            max_tokens=12,
            stream=True,
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    texts = await asyncio.gather(*(ask(country) for country in ("Japan", "England", "China", "Greece")))
    assert [city in text for city, text in zip(("Tokyo", "London", "Beijing", "Athens"), texts, strict=True)] == [
        True
    ] * 4


def test_models_are_listed_and_described(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"


def test_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-4o", messages=PARIS)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


@BY_BOTH_PATHS
def test_a_prompt_beyond_the_context_is_refused_with_numbers(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * MAX_SEQ_LEN}])
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    assert str(MAX_SEQ_LEN) in caught.value.message


def test_max_tokens_beyond_the_context_is_clamped_with_the_truth_in_usage(tiny_gateway: GatewayProcess) -> None:
    with OpenAI(base_url=f"{tiny_gateway.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        answer = client.chat.completions.create(
            model=TINY,
            messages=[{"role": "user", "content": "a b " * (TINY_MAX_SEQ_LEN // 5)}],
            temperature=0,
            max_tokens=10**6,
            extra_body={"ignore_eos": True},
        )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.total_tokens == TINY_MAX_SEQ_LEN
    assert answer.usage.prompt_tokens > TINY_MAX_SEQ_LEN // 5
