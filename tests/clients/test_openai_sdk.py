"""The OpenAI SDK against the running stack, by both paths. Greedy answers of SmolLM2 are known."""

from __future__ import annotations

import math

from openai import OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.clients.conftest import BY_BOTH_PATHS, MODEL

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
