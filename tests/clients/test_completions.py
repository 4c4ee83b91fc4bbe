"""Completions and the token endpoints on the real Triton with the tiny model, by both paths, as clients use them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.clients.conftest import TINY as MODEL
from tests.clients.conftest import TINY_MAX_SEQ_LEN as MAX_SEQ_LEN
from tests.stack import GatewayProcess

PROMPTS = ["the sky is", "Grüße 你好 🙂", "a b c d e f"]
MARGIN = 1e-4  # between a token's log-prob when it is generated and when it is read: sums in another order


@pytest.fixture
def by_path(tiny_gateways: dict[str, GatewayProcess]) -> dict[str, GatewayProcess]:
    return tiny_gateways


@pytest.fixture
def tiny(tiny_gateway: GatewayProcess) -> GatewayProcess:
    return tiny_gateway


def sdk(process: GatewayProcess, *, strict: bool) -> OpenAI:
    return OpenAI(
        base_url=f"{process.url}/v1", api_key="k", max_retries=0, timeout=60, _strict_response_validation=strict
    )


@pytest.fixture
def client(tiny: GatewayProcess) -> Iterator[OpenAI]:
    """The SDK, refusing whatever does not validate strictly."""
    with sdk(tiny, strict=True) as made:
        yield made


@pytest.fixture
def lenient(tiny: GatewayProcess) -> Iterator[OpenAI]:
    """The SDK as it is: its types have no null for a reason to come, nor for a first token, which OpenAI sends."""
    with sdk(tiny, strict=False) as made:
        yield made


def post(process: GatewayProcess, path: str, **body: Any) -> Any:
    answer = httpx.post(process.url + path, json={"model": MODEL, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_form_of_a_prompt_gives_the_same_answers(tiny: GatewayProcess, client: OpenAI) -> None:
    ids = [post(tiny, "/tokenize", prompt=prompt)["tokens"] for prompt in PROMPTS]
    asked: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 6, "logprobs": 3}
    single = [client.completions.create(prompt=prompt, **asked) for prompt in PROMPTS]
    texts = [answer.choices[0].text for answer in single]
    for prompt in (PROMPTS, ids):
        answer = client.completions.create(prompt=prompt, **asked)
        assert answer.id.startswith("cmpl-")
        assert [choice.text for choice in answer.choices] == texts
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == sum(map(len, ids))
        assert answer.usage.completion_tokens == sum(one.usage.completion_tokens for one in single if one.usage)
    assert client.completions.create(prompt=ids[0], **asked).choices[0].text == texts[0]
    for answer in single:
        lists = answer.choices[0].logprobs
        assert lists is not None
        assert lists.top_logprobs is not None
        assert lists.token_logprobs is not None
        assert [max(top.values()) for top in lists.top_logprobs] == lists.token_logprobs


def test_a_stream_is_the_whole_answer_in_parts(client: OpenAI, lenient: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPTS, "seed": 5, "max_tokens": 9, "n": 2, "echo": True}
    whole = client.completions.create(**asked)
    texts, reasons = [""] * 6, [""] * 6
    usage = None
    for chunk in lenient.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert [text.startswith(PROMPTS[index // 2]) for index, text in enumerate(texts)] == [True] * 6
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert (usage and (usage.prompt_tokens, usage.completion_tokens)) == (
        whole.usage and (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    )


def test_more_prompts_than_the_engine_s_queue_holds(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 1}
    prompts = [f"{PROMPTS[0]} {index}" for index in range(100)]
    answer = client.completions.create(prompt=prompts, **asked)
    assert [choice.index for choice in answer.choices] == list(range(100))
    assert all(choice.finish_reason for choice in answer.choices)


def test_choices_are_requests_with_the_next_seeds_and_best_of_takes_the_likeliest(client: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPTS[0], "max_tokens": 5, "logprobs": 0}
    each = [client.completions.create(**asked, seed=40 + index).choices[0] for index in range(4)]
    assert [choice.text for choice in client.completions.create(**asked, seed=40, n=4).choices] == [
        c.text for c in each
    ]

    def mean(choice: Any) -> float:
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    ranked = sorted(each, key=mean, reverse=True)
    assert mean(ranked[1]) - mean(ranked[2]) > 10 * MARGIN, "these seeds are no test"
    best = client.completions.create(**asked, seed=40, n=2, best_of=4)
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]
    assert best.usage is not None
    assert best.usage.completion_tokens == sum(len(choice.logprobs.tokens or ()) for choice in each if choice.logprobs)


@pytest.mark.parametrize("temperature", [0, 1])
def test_log_likelihoods_as_evaluation_harnesses_take_them(
    by_path: dict[str, GatewayProcess], temperature: float
) -> None:
    """Contexts with continuations as token ids, in one batch: sums over the continuation, and whether it is greedy."""
    tiny = by_path["tokens"]
    contexts = [post(tiny, "/tokenize", prompt=prompt)["tokens"] for prompt in PROMPTS]
    made = post(
        tiny, "/v1/completions", prompt=contexts, max_tokens=6, temperature=temperature, seed=11, logprobs=1,
        return_token_ids=True, ignore_eos=True,
    )["choices"]  # fmt: skip
    assert all(len(choice["token_ids"]) == 6 for choice in made)
    sequences = [context + choice["token_ids"] for context, choice in zip(contexts, made, strict=True)]
    asked = {"prompt": sequences, "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True}
    read = post(tiny, "/v1/completions", **asked, max_tokens=1)
    bare = post(tiny, "/v1/completions", **asked, max_tokens=0)
    assert read["usage"]["prompt_tokens"] == sum(map(len, sequences))
    for context, choice, echoed, alone in zip(contexts, made, read["choices"], bare["choices"], strict=True):
        lists = echoed["logprobs"]
        assert lists["token_logprobs"][0] is None
        values = lists["token_logprobs"][len(context) : -1]
        assert values == pytest.approx(choice["logprobs"]["token_logprobs"], abs=MARGIN)
        assert math.isclose(sum(values), sum(choice["logprobs"]["token_logprobs"]), abs_tol=6 * MARGIN)
        greedy = all(
            value == max(top.values())
            for value, top in zip(values, lists["top_logprobs"][len(context) : -1], strict=True)
        )
        assert greedy == (temperature == 0)
        assert alone["logprobs"]["tokens"] == lists["tokens"][:-1]
        assert alone["logprobs"]["token_logprobs"][1:] == pytest.approx(lists["token_logprobs"][1:-1], abs=MARGIN)
        assert echoed["text"].startswith(alone["text"])


def test_log_likelihoods_through_the_ensemble(by_path: dict[str, GatewayProcess]) -> None:
    ids = [post(by_path["tokens"], "/tokenize", prompt=prompt)["tokens"] for prompt in PROMPTS]
    asked = {"temperature": 0, "logprobs": 2, "echo": True, "max_tokens": 1}
    lists = [
        [choice["logprobs"] for choice in post(by_path[path], "/v1/completions", prompt=prompt, **asked)["choices"]]
        for path, prompt in (("tokens", ids), ("ensemble", ids), ("ensemble", PROMPTS))
    ]
    for direct, *others in zip(*lists, strict=True):
        for other in others:
            assert other["tokens"] == direct["tokens"]
            assert other["text_offset"] == direct["text_offset"]
            assert other["token_logprobs"][1:] == pytest.approx(direct["token_logprobs"][1:], abs=MARGIN)
    # Ids that are not what their text is split into cannot travel as text.
    letters = [post(by_path["tokens"], "/tokenize", prompt=letter)["tokens"][0] for letter in "he"]
    rejected = httpx.post(f"{by_path['ensemble'].url}/v1/completions", json={"model": MODEL, "prompt": letters})
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "prompt")


def test_one_token_has_its_row_even_when_it_ends_the_text(by_path: dict[str, GatewayProcess]) -> None:
    tiny = by_path["tokens"]  # biases travel by id only there, and nothing else makes this model end at once
    info = httpx.get(f"{tiny.url}/tokenizer_info").json()
    bias = {str(info["eos_token_id"]): 100}
    asked = {"prompt": PROMPTS[0], "logprobs": 1, "logit_bias": bias, "echo": True}
    (choice,) = post(tiny, "/v1/completions", **asked, max_tokens=1)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (PROMPTS[0], "stop")
    assert choice["logprobs"]["tokens"][-1] == info["eos_token"]
    (choice,) = post(tiny, "/v1/completions", **asked, max_tokens=3)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (PROMPTS[0], "stop")


SHARED: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.4, "top_p": 0.7},
    {"top_k": 2},
    {"min_p": 0.3},
    {"presence_penalty": 1.5, "frequency_penalty": -0.5},
    {"repetition_penalty": 1.8},
    {"stop": ["u", "s", "R", "1"]},
    {"min_tokens": 8, "ignore_eos": True},
    {"stop_token_ids": list(range(20, 60)), "include_stop_str_in_output": True},
    {"bad_words": ["u", "a"]},
    {"skip_special_tokens": False},
    {"user": "someone", "logit_bias": {}, "n": 1},
]


@pytest.mark.parametrize("changes", SHARED, ids=[next(iter(changes)) for changes in SHARED])
def test_parameters_mean_what_they_mean_in_chat(by_path: dict[str, GatewayProcess], changes: dict[str, Any]) -> None:
    """A completion of a chat's own prompt is the chat's answer."""
    tiny = by_path["tokens"]
    messages = [{"role": "user", "content": PROMPTS[0]}]
    prompt = post(tiny, "/tokenize", messages=messages)["tokens"]
    asked = {"max_tokens": 12, "seed": 21, "return_token_ids": True, **changes}
    (chat,) = post(tiny, "/v1/chat/completions", messages=messages, **asked)["choices"]
    (completion,) = post(tiny, "/v1/completions", prompt=prompt, **asked)["choices"]
    assert completion["token_ids"] == chat["token_ids"]
    assert completion["text"] == chat["message"]["content"]
    assert completion["finish_reason"] == chat["finish_reason"]
    assert completion["prompt_token_ids"] == prompt


def test_a_bias_is_always_or_never_and_prompt_log_probs_stand_alone(by_path: dict[str, GatewayProcess]) -> None:
    tiny = by_path["tokens"]
    index = post(tiny, "/tokenize", prompt="k")["tokens"][0]
    asked = {"prompt": PROMPTS[:2], "max_tokens": 4, "seed": 2, "return_token_ids": True, "prompt_logprobs": 1}
    always = post(tiny, "/v1/completions", **asked, logit_bias={str(index): 100})["choices"]
    assert [choice["token_ids"] for choice in always] == [[index] * 4] * 2
    never = post(tiny, "/v1/completions", **asked, logit_bias={str(index): -100})["choices"]
    assert all(index not in choice["token_ids"] for choice in never)
    for choice in never:
        first, *others = choice["prompt_logprobs"]
        assert first is None
        for position, entry in enumerate(others, start=1):
            assert str(choice["prompt_token_ids"][position]) in entry


def test_what_is_refused_says_so(client: OpenAI) -> None:
    for body, param in (
        ({"suffix": "."}, "suffix"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 3, "best_of": 2}, "best_of"),
    ):
        asked: dict[str, Any] = {"model": MODEL, "prompt": "a", **body}
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(**asked)
        assert caught.value.param == param


def test_tokens_of_text_and_of_conversations(tiny: GatewayProcess, client: OpenAI) -> None:
    for text in PROMPTS:
        body = post(tiny, "/tokenize", prompt=text, return_token_strs=True)
        assert body["count"] == len(body["tokens"]) == len(body["token_strs"])
        assert body["max_model_len"] == MAX_SEQ_LEN
        assert post(tiny, "/detokenize", tokens=body["tokens"]) == {"prompt": text}
    messages: list[Any] = [{"role": "user", "content": PROMPTS[1]}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    assert answer.usage is not None
    assert post(tiny, "/tokenize", messages=messages)["count"] == answer.usage.prompt_tokens


def test_a_chat_rendered_is_what_goes_to_triton(tiny: GatewayProcess) -> None:
    messages = [{"role": "user", "content": PROMPTS[1]}]
    body = post(tiny, "/v1/chat/completions/render", messages=messages, max_tokens=7, seed=3, n=2, temperature=0.5)
    assert body["prompt_token_ids"] == post(tiny, "/tokenize", messages=messages)["tokens"]
    assert body["prompt"] == post(tiny, "/detokenize", tokens=body["prompt_token_ids"])["prompt"]
    assert (body["seeds"], body["max_tokens"], body["max_model_len"]) == ([3, 4], 7, MAX_SEQ_LEN)
    tensors = {tensor["name"]: tensor for tensor in body["tensors"]}
    if body["path"] == "tokens":
        assert body["triton_model"] == "tensorrt_llm"
        prompt, length = tensors["input_ids"], tensors["request_output_len"]
        assert (prompt["datatype"], prompt["data"]) == ("INT32", body["prompt_token_ids"][:64])
        assert prompt["shape"] == [1, body["count"]]
    else:
        assert body["triton_model"] == "ensemble"
        prompt, length = tensors["text_input"], tensors["max_tokens"]
        assert (prompt["datatype"], prompt["data"]) == ("BYTES", [body["prompt"]])
    assert (length["data"], length["size"]) == ([7], 1)
    assert tensors["seed"]["data"] == [3]
    assert tensors["temperature"] == {
        "name": "temperature", "datatype": "FP32", "shape": [1, 1], "size": 1, "data": [0.5],
    }  # fmt: skip
