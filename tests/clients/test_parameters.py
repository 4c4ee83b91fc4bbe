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
from openai import OpenAI

from gateway.text.tokens import Tokenizer
from tests.clients.parameters_stack import MAX_SEQ_LEN, OPEN, TEXT, TOKENS, Asker, serve
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


def test_an_openai_client_that_validates_strictly(gateway: GatewayProcess) -> None:
    with OpenAI(
        base_url=f"{gateway.url}/v1", api_key="-", max_retries=0, timeout=60, _strict_response_validation=True
    ) as client:
        answer = client.chat.completions.create(
            model=TOKENS,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=4,
            n=2,
            logprobs=True,
            top_logprobs=2,
            service_tier="flex",
            extra_body={"return_token_ids": True, "prompt_logprobs": 1},
        )
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert answer.service_tier == "default"
        stream = client.chat.completions.create(
            model=TOKENS,
            messages=[{"role": "user", "content": "Hi"}],
            max_tokens=4,
            n=2,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"return_token_ids": True},
        )
        assert list(stream)[-1].usage is not None


# What the request is


def test_usage_tells_what_the_cache_had(asker: Asker) -> None:
    content = "A prompt that is long enough to fill some blocks of the cache. " * 4
    first = asker.chat(content)["usage"]
    second = asker.chat(content)["usage"]
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] < cached < second["prompt_tokens"]
    assert second["completion_tokens_details"]["reasoning_tokens"] == 0


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


def test_a_prediction_changes_no_answer(asker: Asker) -> None:
    plain = asker.chat()
    for content in ("Something else", [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]):
        predicted = asker.chat(prediction={"type": "content", "content": content})
        assert predicted["choices"] == plain["choices"]
        details = predicted["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] == 0 < details["rejected_prediction_tokens"]
    twice = asker.chat(n=2, prediction={"type": "content", "content": "in parts"})["usage"]["completion_tokens_details"]
    assert twice["rejected_prediction_tokens"] == 2 * details["rejected_prediction_tokens"]
    assert asker.chat(prediction={"type": "content", "content": ""})["choices"] == plain["choices"]
    assert asker.rejected(model=TEXT, prediction={"type": "content", "content": "x"})["param"] == "prediction"
    for wrong in ({"type": "content"}, {"type": "content", "content": []}, {"type": "guess", "content": "x"}, "x"):
        assert asker.rejected(prediction=wrong)["param"].startswith("prediction")
    assert asker.rejected(prediction={"type": "content", "content": "x" * 100_000})["param"] == "prediction"


# Length, ends, choices


def test_limits(asker: Asker, greedy: list[int]) -> None:
    assert asker.ids(max_tokens=3) == asker.ids(max_tokens=None, max_completion_tokens=3) == greedy[:3]
    assert asker.rejected(max_tokens=3, max_completion_tokens=4)["param"] == "max_tokens"
    clamped = asker.chat(max_tokens=MAX_SEQ_LEN, ignore_eos=True)
    assert clamped["usage"]["total_tokens"] == MAX_SEQ_LEN
    assert clamped["choices"][0]["finish_reason"] == "length"
    rejected = asker.rejected(model=OPEN, max_tokens=None, max_completion_tokens=MAX_SEQ_LEN)
    assert (rejected["param"], rejected["code"]) == ("max_completion_tokens", "context_length_exceeded")


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


def test_stops(asker: Asker) -> None:
    for model in (TOKENS, TEXT):
        always = {"bad_words": ["x"]} if model == TEXT else {"logit_bias": {"77": 100}}
        whole = asker.text(model=model, max_tokens=24, **always)
        stop = whole[2:4]
        end = whole.index(stop)
        cut = asker.chat(model=model, max_tokens=24, stop=stop, **always)["choices"][0]
        assert (cut["message"]["content"], cut["finish_reason"]) == (whole[:end], "stop")
        kept = asker.text(model=model, max_tokens=24, stop=[stop], include_stop_str_in_output=True, **always)
        assert kept == whole[: end + len(stop)]
    five = ["0a", "1b", "2c", "3d", "4e"]
    assert asker.rejected(stop=five)["param"] == "stop"
    asker.chat(model=OPEN, stop=five)


def test_stop_token_ids(asker: Asker, greedy: list[int]) -> None:
    for model in (TOKENS, TEXT):
        whole = asker.ids(model=model)
        body = asker.chat(model=model, stop_token_ids=[whole[3]], return_token_ids=True)["choices"][0]
        end = whole.index(whole[3])
        assert (body["token_ids"], body["finish_reason"]) == (whole[: end + 1], "stop")
    assert asker.rejected(stop_token_ids=[100000])["param"] == "stop_token_ids[0]"
    assert asker.ids(stop_token_ids=[]) == greedy


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


def test_a_stream_of_choices(asker: Asker) -> None:
    fields: dict[str, Any] = {"n": 3, "seed": SEED, "temperature": 1}
    whole = asker.chat(**fields)
    texts, reasons = ["", "", ""], ["", "", ""]
    for event in map(json.loads, asker.stream(**fields)):
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
        reasons[choice["index"]] += choice["finish_reason"] or ""
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]
    assert reasons == [choice["finish_reason"] for choice in whole["choices"]]


def test_the_best_of_several(asker: Asker) -> None:
    fields: dict[str, Any] = {"temperature": 1, "seed": 9, "ignore_eos": True}
    choices = asker.chat(n=3, logprobs=True, **fields)["choices"]
    means = [np.mean([entry["logprob"] for entry in choice["logprobs"]["content"]]) for choice in choices]
    order = np.argsort(means)[::-1]
    best = asker.chat(n=2, best_of=3, **fields)
    texts = [choices[place]["message"]["content"] for place in order[:2]]
    assert [choice["message"]["content"] for choice in best["choices"]] == texts
    assert all(choice["logprobs"] is None for choice in best["choices"])
    assert best["usage"]["completion_tokens"] == 24
    assert asker.rejected(n=3, best_of=2)["param"] == "best_of"


# What is told of the tokens


def test_log_probs(asker: Asker) -> None:
    for model in (TOKENS, TEXT):
        choice = asker.chat(model=model, logprobs=True, top_logprobs=20)["choices"][0]
        entries = choice["logprobs"]["content"]
        assert (
            b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace")
            == choice["message"]["content"]
        )
        for entry in entries:
            assert len(entry["top_logprobs"]) == 20
            assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]  # greedy
        assert asker.chat(model=model)["choices"][0]["logprobs"] is None
    assert asker.rejected(top_logprobs=2)["param"] == "top_logprobs"


def test_log_probs_of_the_prompt(asker: Asker) -> None:
    body = asker.chat(prompt_logprobs=2, return_token_ids=True, max_tokens=1)
    first, *others = body["prompt_logprobs"]
    assert first is None
    assert len(others) == len(body["prompt_token_ids"]) - 1
    for index, row in zip(body["prompt_token_ids"][1:], others, strict=True):
        assert row[str(index)]["logprob"] <= 0
        assert 2 <= len(row) <= 3
        assert sorted(token["rank"] for token in row.values())[:2] == [1, 2]
        assert row[str(index)]["rank"] >= (3 if len(row) == 3 else 1)
    assert "prompt_logprobs" not in asker.chat(max_tokens=1)


# What the prompt is made of


def test_the_last_message_is_continued(asker: Asker, tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]
    fields: dict[str, Any] = {"messages": messages, "continue_final_message": True}
    assert tokenizer.decode(asker.prompt_ids(**fields)).endswith("assistant\nWell, ")
    assert asker.text(echo=True, **fields) == "Well, " + asker.text(**fields)
    events = [json.loads(event) for event in asker.stream(echo=True, **fields)]
    assert events[1]["choices"][0]["delta"]["content"] == "Well, "
    closed = tokenizer.decode(asker.prompt_ids(add_generation_prompt=False), skip_special_tokens=False)
    assert closed.endswith("<|im_end|>\n")
    assert asker.prompt_ids(add_generation_prompt=True) == asker.prompt_ids()
    assert asker.rejected(add_generation_prompt=True, **fields)["param"] == "continue_final_message"
    assert asker.rejected(echo=True)["param"] == "echo"


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


# What cannot be


NESTED = {
    "structured_outputs.whitespace_pattern": {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
    "structured_outputs.disable_any_whitespace": {"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
    "structured_outputs.disable_additional_properties": {
        "structured_outputs": {"regex": "a", "disable_additional_properties": True}
    },
    "response_format.value": {"response_format": {"type": "json_object", "value": {}}},
    "response_format.schema": {"response_format": {"type": "text", "schema": {"type": "array"}}},
    **{
        f"response_format.{name}": {"response_format": {"type": "json_object", name: value}}
        for name, value in {
            "json_schema": {"name": "x"},
            "regex": "a",
            "ebnf": "a",
            "pattern": "a",
            "grammar": "a",
        }.items()
    },
    **{
        f"nvext.{name}": {"nvext": {name: value}}
        for name, value in {
            "guided_json": {},
            "guided_regex": "a",
            "guided_choice": ["a"],
            "guided_grammar": "a",
        }.items()
    },
}


def test_what_a_form_cannot_have_is_refused(asker: Asker) -> None:
    for name, fields in NESTED.items():
        error = asker.rejected(**fields)
        assert (error["param"], error["code"]) == (name, "unsupported_parameter"), name
    asker.chat(structured_outputs={"regex": "a", "disable_fallback": True})


def test_a_salt_for_the_cache(asker: Asker) -> None:
    def cached(**salt: str) -> int:
        question = "A question that nobody else asks, of a length that fills some blocks of the cache."
        return int(asker.chat(question, **salt)["usage"]["prompt_tokens_details"]["cached_tokens"])

    asker.chat("A question", cache_salt="warm")
    first, again, other = (cached(cache_salt=salt) for salt in ("one", "one", "two"))
    assert (first, other) == (0, 0)
    assert again > 0
    assert asker.rejected(cache_salt="")["param"] == "cache_salt"
