"""Completions and the token endpoints on the real Triton with the tiny model, by both paths, as clients use them."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.clients.conftest import TINY as MODEL
from tests.clients.conftest import TINY_MAX_SEQ_LEN as MAX_SEQ_LEN
from tests.stack import GatewayProcess

PROMPTS = ["the sky is", "Grüße 你好 🙂", "a b c d e f"]
MARGIN = 1e-4  # between a token's log-prob when it is generated and when it is read: sums in another order


def post(process: GatewayProcess, path: str, **body: Any) -> Any:
    answer = httpx.post(process.url + path, json={"model": MODEL, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_choices_are_requests_with_the_next_seeds_and_best_of_takes_the_likeliest(tiny: OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": PROMPTS[0], "max_tokens": 5, "logprobs": 0}
    each = [tiny.completions.create(**asked, seed=40 + index).choices[0] for index in range(4)]
    assert [choice.text for choice in tiny.completions.create(**asked, seed=40, n=4).choices] == [c.text for c in each]

    def mean(choice: Any) -> float:
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    ranked = sorted(each, key=mean, reverse=True)
    assert mean(ranked[1]) - mean(ranked[2]) > 10 * MARGIN, "these seeds are no test"
    best = tiny.completions.create(**asked, seed=40, n=2, best_of=4)
    assert [choice.text for choice in best.choices] == [choice.text for choice in ranked[:2]]
    assert best.usage is not None
    assert best.usage.completion_tokens == sum(len(choice.logprobs.tokens or ()) for choice in each if choice.logprobs)


@pytest.mark.parametrize("temperature", [0, 1])
def test_log_likelihoods_as_evaluation_harnesses_take_them(
    tiny_gateways: dict[str, GatewayProcess], temperature: float
) -> None:
    """Contexts with continuations as token ids, in one batch: sums over the continuation, and whether it is greedy."""
    tiny = tiny_gateways["tokens"]
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


def test_log_likelihoods_through_the_ensemble(tiny_gateways: dict[str, GatewayProcess]) -> None:
    ids = [post(tiny_gateways["tokens"], "/tokenize", prompt=prompt)["tokens"] for prompt in PROMPTS]
    asked = {"temperature": 0, "logprobs": 2, "echo": True, "max_tokens": 1}
    lists = [
        [
            choice["logprobs"]
            for choice in post(tiny_gateways[path], "/v1/completions", prompt=prompt, **asked)["choices"]
        ]
        for path, prompt in (("tokens", ids), ("ensemble", ids), ("ensemble", PROMPTS))
    ]
    for direct, *others in zip(*lists, strict=True):
        for other in others:
            assert other["tokens"] == direct["tokens"]
            assert other["text_offset"] == direct["text_offset"]
            assert other["token_logprobs"][1:] == pytest.approx(direct["token_logprobs"][1:], abs=MARGIN)
    # Ids that are not what their text is split into cannot travel as text.
    letters = [post(tiny_gateways["tokens"], "/tokenize", prompt=letter)["tokens"][0] for letter in "he"]
    rejected = httpx.post(f"{tiny_gateways['ensemble'].url}/v1/completions", json={"model": MODEL, "prompt": letters})
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, "prompt")


def test_a_chat_rendered_is_what_goes_to_triton(tiny_gateway: GatewayProcess) -> None:
    messages = [{"role": "user", "content": PROMPTS[1]}]
    body = post(
        tiny_gateway, "/v1/chat/completions/render", messages=messages, max_tokens=7, seed=3, n=2, temperature=0.5
    )
    assert body["prompt_token_ids"] == post(tiny_gateway, "/tokenize", messages=messages)["tokens"]
    assert body["prompt"] == post(tiny_gateway, "/detokenize", tokens=body["prompt_token_ids"])["prompt"]
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
