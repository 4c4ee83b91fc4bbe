"""Every parameter of chat on the real Triton: its effect, its neutrality or its refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI

from gateway.api.openai.parameters.row import Parameter
from gateway.api.openai.parameters.table import PARAMETERS, find
from gateway.text.tokens import Tokenizer
from tests.clients.parameters_stack import MAX_SEQ_LEN, OPEN, TEXT, TOKENS, Asker, serve
from tests.stack import GatewayProcess

Test = Callable[..., None]
COVERED: set[str] = set()
END = 2  # <|im_end|>
SEED = 43  # of the test of n: every draw lies well inside of its interval, which that test checks


def covers(*names: str) -> Callable[[Test], Test]:
    """Marks what a test shows the effect, the neutrality or the refusal of."""

    def mark(test: Test) -> Test:
        COVERED.update(names)
        return test

    return mark


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


def test_every_parameter_has_a_test() -> None:
    assert {row.name for row in PARAMETERS if "chat" in row.endpoints} - COVERED == set()


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


@covers("model", "messages", "stream", "stream_options", "stream_options.include_usage")
def test_a_stream_and_its_usage(asker: Asker) -> None:
    assert asker.post(model="none").status_code == 404
    assert asker.rejected(messages=[])["param"] == "messages"
    body = asker.chat()
    events = [json.loads(event) for event in asker.stream(stream_options={"include_usage": True})]
    texts = [event["choices"][0]["delta"].get("content", "") for event in events[:-1]]
    assert "".join(texts) == body["choices"][0]["message"]["content"]
    assert all(event["usage"] is None for event in events[:-1])
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == body["usage"]["completion_tokens"]
    assert "usage" not in json.loads(asker.stream(stream_options={})[-1])


@covers("stream_options.continuous_usage_stats")
def test_usage_in_every_chunk(asker: Asker) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = [json.loads(event) for event in asker.stream(stream_options=options)]
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 8)
    assert len({event["usage"]["prompt_tokens"] for event in events}) == 1


def test_usage_tells_what_the_cache_had(asker: Asker) -> None:
    content = "A prompt that is long enough to fill some blocks of the cache. " * 4
    first = asker.chat(content)["usage"]
    second = asker.chat(content)["usage"]
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] < cached < second["prompt_tokens"]
    assert second["completion_tokens_details"]["reasoning_tokens"] == 0


# Sampling


@covers("temperature", "seed")
def test_temperature_and_seed(asker: Asker, greedy: list[int]) -> None:
    assert asker.ids(temperature=0.00001, seed=1) == greedy
    hot = [asker.ids(temperature=2, seed=seed) for seed in (1, 2, 1, -1)]
    assert hot[0] == hot[2]
    assert len({tuple(ids) for ids in (*hot, greedy)}) == 4
    assert asker.rejected(temperature=2.1)["param"] == "temperature"


@covers("top_p", "top_k", "min_p")
def test_what_leaves_one_candidate_is_greedy(asker: Asker, greedy: list[int]) -> None:
    free = asker.ids(temperature=1.5, seed=3)
    assert free != greedy
    for field in ({"top_p": 1e-6}, {"top_p": 0}, {"top_k": 1}, {"min_p": 1.0}):
        assert asker.ids(temperature=1.5, seed=3, **field) == greedy, field
    for neutral in ({"top_p": 1}, {"top_k": 0}, {"top_k": -1}, {"min_p": 0}):
        assert asker.ids(temperature=1.5, seed=3, **neutral) == free, neutral
    assert asker.rejected(temperature=1, top_k=1025)["param"] == "top_k"


@covers("presence_penalty", "frequency_penalty")
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


@covers("repetition_penalty")
def test_repetition_penalty_takes_the_other_of_two(asker: Asker) -> None:
    bias = {"250": 90, "251": 90}
    once = asker.ids(logit_bias=bias, repetition_penalty=10, max_tokens=2)
    assert sorted(once) == [250, 251]
    assert asker.ids(repetition_penalty=1) == asker.ids()
    assert asker.rejected(repetition_penalty=11)["param"] == "repetition_penalty"


@covers("logit_bias")
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


@covers("bad_words")
def test_bad_words_are_not_written(asker: Asker, tokenizer: Tokenizer) -> None:
    text = asker.text(logit_bias={"77": 50, "78": 49.0})
    word = next(character for character in text if tokenizer.encode(character)[0] in (77, 78))
    assert word not in asker.text(logit_bias={"77": 50, "78": 49.0}, bad_words=[word])
    assert asker.text(bad_words=[]) == asker.text()


@covers("prediction")
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


@covers("prompt_table")
def test_a_prompt_table_that_the_model_has_not_is_named(asker: Asker) -> None:
    error = asker.rejected(prompt_table="pirate")
    assert (error["param"], error["code"]) == ("prompt_table", "invalid_value")
    assert "has no prompt tables" in error["message"]
    assert asker.text(prompt_table=None) == asker.text()


# Length, ends, choices


@covers("max_tokens", "max_completion_tokens")
def test_limits(asker: Asker, greedy: list[int]) -> None:
    assert asker.ids(max_tokens=3) == asker.ids(max_tokens=None, max_completion_tokens=3) == greedy[:3]
    assert asker.rejected(max_tokens=3, max_completion_tokens=4)["param"] == "max_tokens"
    clamped = asker.chat(max_tokens=MAX_SEQ_LEN, ignore_eos=True)
    assert clamped["usage"]["total_tokens"] == MAX_SEQ_LEN
    assert clamped["choices"][0]["finish_reason"] == "length"
    rejected = asker.rejected(model=OPEN, max_tokens=None, max_completion_tokens=MAX_SEQ_LEN)
    assert (rejected["param"], rejected["code"]) == ("max_completion_tokens", "context_length_exceeded")


@covers("min_tokens", "ignore_eos", "skip_special_tokens")
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


@covers("stop", "include_stop_str_in_output")
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


@covers("stop_token_ids")
def test_stop_token_ids(asker: Asker, greedy: list[int]) -> None:
    for model in (TOKENS, TEXT):
        whole = asker.ids(model=model)
        body = asker.chat(model=model, stop_token_ids=[whole[3]], return_token_ids=True)["choices"][0]
        end = whole.index(whole[3])
        assert (body["token_ids"], body["finish_reason"]) == (whole[: end + 1], "stop")
    assert asker.rejected(stop_token_ids=[100000])["param"] == "stop_token_ids[0]"
    assert asker.ids(stop_token_ids=[]) == greedy


@covers("n")
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


@covers("n")
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


@covers("best_of")
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


@covers("use_beam_search", "length_penalty")
def test_beams_are_refused_where_the_engine_has_none(asker: Asker) -> None:
    rejected = asker.rejected(use_beam_search=True, best_of=2)
    assert (rejected["param"], rejected["code"]) == ("use_beam_search", "unsupported_parameter")
    assert asker.rejected(length_penalty=2)["param"] == "length_penalty"
    assert asker.text(use_beam_search=False, length_penalty=1.0) == asker.text()


# What is told of the tokens


@covers("logprobs", "top_logprobs")
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


@covers("prompt_logprobs")
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


@covers("return_token_ids")
def test_token_ids(asker: Asker, tokenizer: Tokenizer, greedy: list[int]) -> None:
    body = asker.chat(return_token_ids=True)
    assert tokenizer.decode(greedy) == body["choices"][0]["message"]["content"]
    assert tokenizer.decode(body["prompt_token_ids"], skip_special_tokens=False).endswith("assistant\n")
    events = [json.loads(event) for event in asker.stream(return_token_ids=True)]
    assert events[0]["prompt_token_ids"] == body["prompt_token_ids"]
    streamed = [index for event in events for index in event["choices"][0].get("token_ids", ())]
    assert streamed == greedy


# What the prompt is made of


@covers("continue_final_message", "add_generation_prompt", "echo")
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


@covers("reasoning_effort", "documents", "chat_template_kwargs")
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


@covers("chat_template")
def test_a_template_of_the_request_s_own(asker: Asker, tokenizer: Tokenizer) -> None:
    own = "{{ messages[0]['content'] }}!"
    assert asker.prompt_ids("Hi", model=OPEN, chat_template=own) == tokenizer.encode("Hi!")
    assert asker.rejected(chat_template=own)["param"] == "chat_template"
    for broken in ("{% if %}", "{{ ''.__class__.__mro__ }}", "{{ raise_exception('No.') }}"):
        asker.rejected(model=OPEN, chat_template=broken)


# What changes nothing, and what cannot be


def _any_value(row: Parameter) -> Any:
    """A value of the parameter's type that is not neutral."""
    kinds = {"integer": 7, "number": 0.5, "boolean": True, "string": "x", "array": [1], "object": {"a": 1}}
    value = next((value for kind, value in kinds.items() if row.type.startswith(kind)), {"a": 1})
    return not value if row.is_neutral(value) else value


ANNOTATIONS: dict[str, Any] = {
    "user": "u",
    "safety_identifier": "s",
    "metadata": {"ticket": "7"},
    "store": True,
    "service_tier": "priority",
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "implicit"},
    "prompt_cache_retention": "24h",
}
# A value that is refused, and one that changes nothing where there is one.
UNSERVED: dict[str, tuple[Any, Any]] = {
    "tools": ([{"type": "function", "function": {"name": "f"}}], []),
    "audio": ({"voice": "alloy", "format": "wav"}, None),
    "modalities": (["text", "audio"], ["text"]),
    "num_draft_tokens": (4, 0),
    "moderation": ({"model": "m"}, None),
    "web_search_options": ({}, None),
    "priority": (1, 0),
    **{
        row.name: (_any_value(row), row.neutral[0] if row.neutral else None)
        for row in PARAMETERS
        if row.kind == "impossible" and row.source == "extension" and "chat" in row.endpoints and "." not in row.name
    },
}
# Of these the value is what a client sends.
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
HINTS = {row.name: UNSERVED.pop(row.name)[0] for row in PARAMETERS if row.hint and row.name in UNSERVED}
HINTS |= {"verbosity": "low", "thinking_token_budget": 5}


@covers(*ANNOTATIONS)
def test_annotations_are_logged_and_change_nothing(asker: Asker, gateway: GatewayProcess) -> None:
    plain = asker.chat()
    noted = asker.chat(**ANNOTATIONS)
    assert noted["choices"] == plain["choices"]
    assert noted["service_tier"] == "default"
    noted_of = [json.loads(line).get("annotations", {}) for line in gateway.log_lines()]
    assert {"ticket": "7"} in [said.get("metadata") for said in noted_of]
    assert asker.rejected(metadata={"a": 1})["param"] == "metadata.a"


@covers(*NESTED, "structured_outputs.disable_fallback")
def test_what_a_form_cannot_have_is_refused(asker: Asker) -> None:
    for name, fields in NESTED.items():
        error = asker.rejected(**fields)
        assert (error["param"], error["code"]) == (name, "unsupported_parameter"), name
    asker.chat(structured_outputs={"regex": "a", "disable_fallback": True})


@covers(*HINTS)
def test_hints_are_served_without_and_named(asker: Asker) -> None:
    answer = asker.post(**HINTS)
    assert answer.status_code == 200, answer.text
    hints = {name for name in HINTS if name != "return_mm_kwargs"}  # whose values all change nothing
    assert set(answer.headers["x-ignored-parameters"].split(", ")) == hints | {
        f"nvext.{name}" for name in HINTS["nvext"]
    }
    assert answer.json()["choices"] == asker.chat()["choices"]


@covers(*UNSERVED)
def test_what_cannot_be_is_refused_and_what_says_nothing_is_served(asker: Asker) -> None:
    for name, (value, _) in UNSERVED.items():
        error = asker.rejected(**{name: value})
        assert (error["param"], error["code"]) == (name, "unsupported_parameter"), name
    neutral = {name: value for name, (_, value) in UNSERVED.items()}
    answer = asker.post(**neutral)
    assert answer.status_code == 200, answer.text
    assert "x-ignored-parameters" not in answer.headers
    names = sorted(UNSERVED)
    for some in (names[place : place + 32] for place in range(0, len(names), 32)):  # as many as the header has at most
        left_out = asker.post(model=OPEN, **{name: UNSERVED[name][0] for name in some})
        assert set(left_out.headers["x-ignored-parameters"].split(", ")) == set(some)


# What tools and structures do, test_tools.py and test_structured.py show.
FORMS: dict[str, tuple[Any, str]] = {
    "response_format": (
        {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "boolean"}}},
        "true|false",
    ),
    "structured_outputs": ({"regex": "a{3}"}, "aaa"),
    "guided_json": ({"enum": ["x", 1]}, '"x"|1'),
    "guided_regex": ("b{4}", "bbbb"),
    "guided_choice": (["yes", "no"], "yes|no"),
    "guided_grammar": ('root ::= "<" [0-9] ">"', "<[0-9]>"),
    "json_schema": ({"enum": ["y", 2]}, '"y"|2'),
    "regex": ("c{4}", "cccc"),
    "ebnf": ('root ::= "(" [0-9] ")"', r"\([0-9]\)"),
    "grammar": ('root ::= "{" [0-9] "}"', r"\{[0-9]\}"),
}


@covers(*FORMS)
def test_forms_of_an_answer(asker: Asker) -> None:
    for name, (value, pattern) in FORMS.items():
        said = asker.chat(**{name: value}, max_tokens=20)["choices"][0]["message"]["content"]
        assert re.fullmatch(pattern, said.strip()), name
        body = {"model": TOKENS, "prompt": "x", "max_tokens": 20, name: value}
        said = asker.client.post("/v1/completions", json=body).json()["choices"][0]["text"]
        assert re.fullmatch(pattern, said.strip()), name
    asker.chat(response_format={"type": "text"})
    for form, pattern in (
        ({"type": "json", "schema": {"enum": ["z", 3]}}, '"z"|3'),
        ({"type": "regex", "regex": "d{4}"}, "dddd"),
        ({"type": "ebnf", "ebnf": 'root ::= "[" [0-9] "]"'}, r"\[[0-9]\]"),
    ):
        assert re.fullmatch(pattern, asker.text(response_format=form, max_tokens=20).strip())


@covers("tool_choice", "parallel_tool_calls", "functions", "function_call")
def test_calls_that_are_demanded(asker: Asker) -> None:
    functions = [{"name": name, "parameters": {"type": "object", "properties": {}}} for name in ("f", "g")]
    tools = [{"type": "function", "function": each} for each in functions]
    asked: dict[str, Any] = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
    choice = asker.chat(**asked, max_tokens=300)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] in (["f"], ["g"])
    choice = asker.chat(functions=functions, function_call={"name": "g"}, max_tokens=300)["choices"][0]
    assert choice["message"]["function_call"]["name"] == "g"
    assert asker.rejected(tool_choice="required")["param"] == "tool_choice"
    asker.chat(tool_choice="auto", function_call="none")


@covers("stream_options.include_obfuscation")
def test_padded_chunks_are_of_one_length(asker: Asker) -> None:
    padded = asker.stream(stream_options={"include_obfuscation": True}, max_tokens=40)
    lengths = {len(event.encode()) % 64 for event in padded}
    assert len(lengths) == 1
    texts = [json.loads(event)["choices"][0]["delta"].get("content", "") for event in padded]
    assert "".join(texts) == asker.text(max_tokens=40)
    assert "obfuscation" not in asker.stream()[1]


@covers("cache_salt")
def test_a_salt_for_the_cache(asker: Asker) -> None:
    def cached(**salt: str) -> int:
        question = "A question that nobody else asks, of a length that fills some blocks of the cache."
        return int(asker.chat(question, **salt)["usage"]["prompt_tokens_details"]["cached_tokens"])

    asker.chat("A question", cache_salt="warm")
    first, again, other = (cached(cache_salt=salt) for salt in ("one", "one", "two"))
    assert (first, other) == (0, 0)
    assert again > 0
    assert asker.rejected(cache_salt="")["param"] == "cache_salt"


@covers("return_tokens_as_token_ids", "truncate_prompt_tokens", "truncation_side", "no_stop_trim")
def test_names_of_vllm_and_sglang(asker: Asker, greedy: list[int]) -> None:
    body = asker.chat(logprobs=True, return_tokens_as_token_ids=True)
    named = [entry["token"] for entry in body["choices"][0]["logprobs"]["content"]]
    assert named == [f"token_id:{index}" for index in greedy]
    whole = asker.prompt_ids()
    assert asker.prompt_ids(truncate_prompt_tokens=3) == whole[-3:]
    assert asker.prompt_ids(truncate_prompt_tokens=3, truncation_side="right") == whole[:3]
    text = asker.text()
    stop = text[3:5]
    kept = asker.chat(stop=stop, no_stop_trim=True)["choices"][0]
    assert kept["message"]["content"] == text[: text.index(stop) + len(stop)]
    assert kept["stop_reason"] == stop


@pytest.mark.parametrize("value", [None])
def test_null_is_absent_everywhere(asker: Asker, value: None) -> None:
    rows = [row.name for row in PARAMETERS if "chat" in row.endpoints and "." not in row.name]
    kept = {"model", "messages", "max_tokens", "temperature", "stream"}
    answer = asker.post(**{name: value for name in rows if name not in kept})
    assert answer.status_code == 200, answer.text
    assert "x-ignored-parameters" not in answer.headers


def test_the_capability_map_is_of_the_model(asker: Asker, gateway: GatewayProcess) -> None:
    maps = {}
    for name in (TOKENS, TEXT, OPEN):
        body = asker.client.get(f"/v1/models/{name}").json()
        maps[name] = body["capabilities"]
        assert {key for key in maps[name] if find("chat", key)} >= {"n", "logit_bias", "tools", "user"}
    assert maps[TOKENS]["logit_bias"]["how"] == "native"
    assert maps[TEXT]["logit_bias"]["class"] == "impossible"
    assert maps[TOKENS]["chat_template"]["class"] == "impossible"
    assert maps[OPEN]["chat_template"]["how"] == "emulated"
    assert maps[TOKENS]["top_k"]["limit"] == 1024
    assert maps[TOKENS]["user"]["class"] == "annotation"
