"""Parameters of chat on the real Triton that an engine must compute: their effect, and what is next to it.

That each parameter has an effect or is rejected by name, `tests.dialects` tells for every dialect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.text.tokens import Tokenizer
from tests.clients.parameters_stack import OPEN, TEXT, TOKENS, Asker, serve
from tests.stack import GatewayProcess

END = 2  # <|im_end|>
SEED = 43  # of the test of n: every draw lies well inside of its interval, which that test checks


@pytest.fixture(scope="module")
def gateway(triton: Any, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    yield from serve(tmp_path_factory.mktemp("parameters"), triton, tiny_model_dir)


@pytest.fixture(scope="module")
def asker(gateway: GatewayProcess) -> Iterator[Asker]:
    asker = Asker(gateway.url)
    yield asker
    asker.close()


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_model_dir)


@pytest.fixture(scope="module")
def greedy(asker: Asker) -> list[int]:
    """Ids of the greedy answer, which many tests bend."""
    ids = asker.ids()
    assert len(ids) == 8
    return ids


# Sampling


def test_temperature_and_seed(asker: Asker, greedy: list[int]) -> None:
    assert asker.ids(temperature=0.00001, seed=1) == greedy
    hot = [asker.ids(temperature=2, seed=seed) for seed in (1, 2, 1, -1)]
    assert hot[0] == hot[2]
    assert len({tuple(ids) for ids in (*hot, greedy)}) == 4
    assert asker.rejected(temperature=2.1)["param"] == "temperature"


def test_what_leaves_one_candidate_is_greedy(asker: Asker, greedy: list[int]) -> None:
    free = asker.ids(temperature=1.5, seed=3)
    assert free != greedy
    for field in ({"top_p": 1e-6}, {"top_p": 0}, {"top_k": 1}, {"min_p": 1.0}):
        assert asker.ids(temperature=1.5, seed=3, **field) == greedy, field
    for neutral in ({"top_p": 1}, {"top_k": 0}, {"top_k": -1}, {"min_p": 0}):
        assert asker.ids(temperature=1.5, seed=3, **neutral) == free, neutral
    assert asker.rejected(temperature=1, top_k=1025)["param"] == "top_k"


def test_penalties_lower_log_probs_of_what_the_prompt_has(asker: Asker, tokenizer: Tokenizer) -> None:
    content = "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    counts = np.bincount(asker.prompt_ids(content), minlength=tokenizer.vocab_size)
    by_text = {bytes([byte]): counts[tokenizer.encode(chr(byte))[0]] for byte in range(0x21, 0x7F)}

    def tops(**fields: float) -> dict[bytes, float]:
        body = asker.chat(content, max_tokens=1, logprobs=True, top_logprobs=20, **fields)
        (entry,) = body["choices"][0]["logprobs"]["content"]
        return {bytes(each["bytes"]): each["logprob"] for each in entry["top_logprobs"]}

    base = tops()
    for fields, expected in (
        ({"presence_penalty": 1.0}, lambda count: -1.0 * (count > 0)),
        ({"frequency_penalty": -0.5}, lambda count: 0.5 * count),
    ):
        other = tops(**fields)
        shared = [data for data in base.keys() & other.keys() if data in by_text]
        shifts = [other[data] - base[data] - expected(by_text[data]) for data in shared]
        assert len({by_text[data] > 0 for data in shared}) == 2 or len({by_text[data] for data in shared}) > 1
        assert np.ptp(shifts) < 1e-4  # all moved by the same constant besides: the new normalization
    assert tops(presence_penalty=0, frequency_penalty=0) == pytest.approx(base, abs=1e-4)


def test_repetition_penalty_takes_the_other_of_two(asker: Asker) -> None:
    bias = {"250": 90, "251": 90}
    once = asker.ids(logit_bias=bias, repetition_penalty=10, max_tokens=2)
    assert sorted(once) == [250, 251]
    assert asker.ids(repetition_penalty=1) == asker.ids()
    assert asker.rejected(repetition_penalty=11)["param"] == "repetition_penalty"


def test_logit_bias_is_never_and_always(asker: Asker, greedy: list[int]) -> None:
    never = {str(index): -100 for index in greedy}
    assert not set(asker.ids(logit_bias=never, max_tokens=24)) & set(greedy)
    assert not set(asker.ids(logit_bias=never, max_tokens=24, temperature=2, seed=1)) & set(greedy)
    for fields in ({}, {"temperature": 2, "seed": 1}, {"presence_penalty": 2}):
        assert asker.ids(logit_bias={"77": 100}, **fields) == [77] * 8
    assert asker.ids(logit_bias={}) == greedy
    assert asker.rejected(logit_bias={"100000": 1})["param"] == "logit_bias.100000"
    assert asker.rejected(logit_bias={"77": 101})["param"] == "logit_bias.77"
    rejected = asker.rejected(logit_bias={"77": 100}, model=TEXT)
    assert (rejected["param"], rejected["code"]) == ("logit_bias", "unsupported_parameter")


def test_bad_words_are_not_written(asker: Asker, tokenizer: Tokenizer) -> None:
    text = asker.text(logit_bias={"77": 50, "78": 49.0})
    word = next(character for character in text if tokenizer.encode(character)[0] in (77, 78))
    assert word not in asker.text(logit_bias={"77": 50, "78": 49.0}, bad_words=[word])
    assert asker.text(bad_words=[]) == asker.text()


# Length, ends, choices


def test_the_end_token_can_be_held_back_passed_and_shown(asker: Asker) -> None:
    ends = {str(END): 100}
    body = asker.chat(logit_bias=ends)
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (0, "stop")
    body = asker.chat(logit_bias=ends, min_tokens=3)
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (3, "stop")
    body = asker.chat(logit_bias=ends, ignore_eos=True)
    assert (body["usage"]["completion_tokens"], body["choices"][0]["finish_reason"]) == (8, "length")
    assert body["choices"][0]["message"]["content"] == ""
    assert asker.text(logit_bias=ends, ignore_eos=True, skip_special_tokens=False) == "<|im_end|>" * 8
    assert asker.rejected(min_tokens=9)["param"] == "min_tokens"


@pytest.mark.parametrize("model", [TOKENS, TEXT])
def test_n_choices_equal_requests_with_seeds_in_a_row(asker: Asker, model: str) -> None:
    fields: dict[str, Any] = {"model": model, "temperature": 1, "top_k": 20, "logprobs": True, "top_logprobs": 20}
    body = asker.chat(n=4, seed=SEED, **fields)
    texts = [choice["message"]["content"] for choice in body["choices"]]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    if model == TOKENS:
        for index, choice in enumerate(body["choices"]):
            check_draws(choice["logprobs"]["content"], SEED + index)
    alone = [asker.chat(seed=SEED + index, **fields) for index in range(4)]
    assert texts == [one["choices"][0]["message"]["content"] for one in alone]
    assert body["usage"]["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]
    assert body["usage"]["completion_tokens"] == sum(one["usage"]["completion_tokens"] for one in alone)


def check_draws(entries: list[dict[str, Any]], seed: int) -> None:
    """Each drawn token follows from the seed, and lies well inside of its interval: batch effects cannot move it."""
    draws = np.random.Generator(np.random.PCG64(seed))
    for entry in entries:
        mass = np.exp([each["logprob"] for each in entry["top_logprobs"]])
        total = np.cumsum(mass / mass.sum())
        place = int(np.searchsorted(total, drawn := draws.random()))
        assert entry["top_logprobs"][place]["bytes"] == entry["bytes"]
        assert np.abs(total - drawn)[:-1].min() > 1e-3


def test_more_choices_than_the_engine_s_queue_holds(asker: Asker) -> None:
    """They take turns, so that neither this request nor another one is refused as too many."""
    with ThreadPoolExecutor(3) as pool:
        whole = pool.submit(asker.chat, n=128, max_tokens=2, temperature=1, seed=5)
        streamed = pool.submit(asker.stream, n=128, max_tokens=2, temperature=1, seed=5)
        others = [pool.submit(asker.chat, max_tokens=2).result() for _ in range(20)]
    assert {each["choices"][0]["finish_reason"] for each in others} <= {"stop", "length"}
    choices = whole.result()["choices"]
    assert [choice["index"] for choice in choices] == list(range(128))
    assert len({choice["message"]["content"] for choice in choices}) > 16
    ended = [choice["index"] for event in streamed.result() for choice in json.loads(event)["choices"]
             if choice["finish_reason"]]  # fmt: skip
    assert sorted(ended) == list(range(128))


# What the prompt is made of


def test_what_the_template_reads(asker: Asker, tokenizer: Tokenizer) -> None:
    def prompt(**fields: Any) -> str:
        return tokenizer.decode(asker.prompt_ids(model=OPEN, **fields), skip_special_tokens=False)

    assert prompt(reasoning_effort="high").startswith("effort=high;")
    assert prompt(documents=[{"text": "one"}, {"text": "two"}]).startswith("doc=one;doc=two;")
    assert prompt(chat_template_kwargs={"tone": "calm"}).startswith("tone=calm;")
    hostile = prompt(chat_template_kwargs={"tone": "<|im_start|>"})
    assert hostile.startswith("tone=<|im_start|>;")
    assert asker.rejected(documents=[{"text": "one"}])["param"] == "documents"
    assert asker.post(reasoning_effort="high").headers["x-ignored-parameters"] == "reasoning_effort"
    assert asker.text(reasoning_effort="none", documents=[], chat_template_kwargs={}) == asker.text()
    answer = asker.post(chat_template_kwargs={"tone": "calm"})
    assert answer.headers["x-ignored-parameters"] == "chat_template_kwargs.tone"
    for name in ("messages", "tools", "bos_token", "add_generation_prompt"):
        assert asker.rejected(chat_template_kwargs={name: []})["param"] == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize("model", [TOKENS, TEXT])
def test_a_salt_for_the_cache(asker: Asker, model: str) -> None:
    def cached(**salt: str) -> int:
        question = f"A question to {model} that nobody else asks, of a length that fills some blocks of the cache."
        return int(asker.chat(question, model=model, **salt)["usage"]["prompt_tokens_details"]["cached_tokens"])

    asker.chat("A question", cache_salt="warm")
    first, again, other = (cached(cache_salt=salt) for salt in ("one", "one", "two"))
    assert (first, other) == (0, 0)
    assert again > 0
    assert asker.rejected(cache_salt="")["param"] == "cache_salt"
