"""Completions."""

from __future__ import annotations

from typing import Any

from tests.recorded.exchange import Case, complete, user

S: dict[str, Any] = {"stream": True}

# By the tokenizer of these tests: "say:Hi", which is a byte a token.
IDS = [82, 64, 88, 25, 39, 72]

COMPLETIONS: list[Case] = [
    complete("text"),
    complete("no prompt", None),
    complete("several texts with several choices", ["say:A||B", "say:C||D"], n=2, seed=2),
    complete("token ids", IDS),
    complete("token ids outside the vocabulary", [100000]),
    complete("a prompt of mixed kinds", ["say:A", 5]),
    complete("token ids where prompts are text", IDS, model="words"),
    complete("through the ensemble", model="words"),
    complete("stream with usage", stream_options={"include_usage": True}, **S),
    complete("stream of several texts", ["say:A", "say:BC"], **S),
    complete("stream with an echo and log-probs", "say:Hi", echo=True, logprobs=1, **S),
    complete("stream without text", "say:Hi", detokenize=False, **S),
    complete("echo with log-probs of nothing new", "say:Hi", echo=True, logprobs=0, max_tokens=0),
    complete("log-probs with token ids as tokens", "say:Hi", logprobs=1, return_tokens_as_token_ids=True),
    complete("best_of with log-probs", "say:A||B||C||D", best_of=3, n=2, logprobs=1, seed=1),
    complete("suffix", suffix=" end"),
    complete("max_completion_tokens is chat's", max_completion_tokens=2),
    complete("truncated", "xxxxsay:Hello", truncate_prompt_tokens=9),
    complete("too long", "x" * 2100),
    complete("chat's fields", messages=user("Hello")),
    complete("a model that is away", model="away"),
    complete("too many answers", ["say:A"] * 200, n=20),
]  # fmt: skip
