"""Text through ``ensemble`` and ``tensorrt_llm_bls``: streamed equals whole, ends are marked, wrong input is named."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from kserve import Kserve, answers, infer_request, metric
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer

TEXT_MODELS = ("ensemble", "tensorrt_llm_bls")
CURL_BODY = {"text_input": "What is machine learning?", "max_tokens": 20, "bad_words": "", "stop_words": ""}
PROMPTS = ["hello", "the other one", "Grüße 你好 🙂", "x", "a b c d e f g", "\n\n", "1 2 3", "end"]


def post(url: str, body: dict[str, object]) -> str:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_generate_answers_over_http(triton: TritonServer, model: str) -> None:
    answer = json.loads(post(f"{triton.http_url}/v2/models/{model}/generate", CURL_BODY))
    assert answer["model_name"] == model
    assert answer["text_output"].startswith(CURL_BODY["text_input"])  # echoed, as upstream's default does
    assert len(answer["output_ids"]) == answer["sequence_length"]


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_generate_stream_answers_over_http(triton: TritonServer, model: str) -> None:
    url = f"{triton.http_url}/v2/models/{model}"
    body = {**CURL_BODY, "end_id": -1, "exclude_input_in_output": True, "id": "over-http-1"}
    whole = json.loads(post(f"{url}/generate", body))["text_output"]
    events = post(f"{url}/generate_stream", {**body, "stream": True, "id": "over-http-2"}).split("\n\n")
    texts = [json.loads(event.removeprefix("data: "))["text_output"] for event in events if event]
    assert len(texts) == CURL_BODY["max_tokens"]
    assert whole
    if model == "tensorrt_llm_bls":  # its calls always carry an id
        assert "".join(texts) == whole


@pytest.mark.parametrize("model", TEXT_MODELS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_streamed_text_is_the_whole_text(kserve: Kserve, tokenizer: Tokenizer, model: str, prompt: str) -> None:
    inputs = {"text_input": prompt, "max_tokens": 200, "end_id": -1, "exclude_input_in_output": True}
    (whole,) = kserve.stream(model, **inputs)
    pieces = kserve.stream(model, stream=True, **inputs)
    assert len(pieces) == 200
    assert [token for piece in pieces for token in piece.ids] == whole.ids
    assert "".join(piece.text for piece in pieces) == whole.text == tokenizer.decode(whole.ids)


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_the_last_data_response_carries_the_final_flag(kserve: Kserve, model: str) -> None:
    for stream in (False, True):
        answers = kserve.stream(model, text_input="hello", max_tokens=5, end_id=-1, stream=stream)
        assert [answer.final for answer in answers] == [False] * (len(answers) - 1) + [True]
        assert answers[-1].ids
        assert [answer.finish_reason for answer in answers] == [""] * (len(answers) - 1) + ["length"]


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_answers_at_the_same_time_do_not_mix(kserve: Kserve, model: str) -> None:
    def one(prompt: str) -> tuple[list[int], str]:
        pieces = kserve.stream(model, text_input=prompt, max_tokens=100, end_id=-1, stream=True)
        return [token for piece in pieces for token in piece.ids], "".join(piece.text for piece in pieces)

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(pool.map(one, PROMPTS))
    for ids, text in together:
        assert text == kserve.detokenize("", ids)
    assert len({text for _, text in together}) > 1


def test_two_streams_on_one_bls_instance_run_side_by_side(triton: TritonServer, kserve: Kserve) -> None:
    long = kserve.call(infer_request("tensorrt_llm_bls", text_input="hello", max_tokens=1500, end_id=-1, stream=True))
    responses = answers(long)
    next(responses)
    short = kserve.stream("tensorrt_llm_bls", text_input="hi", max_tokens=3, end_id=-1, stream=True)
    assert short[-1].final
    assert metric(triton.metrics_url, "nv_trt_llm_request_metrics", "active") == 1  # the long one
    assert sum(1 for _ in responses) == 1499


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_optional_outputs_come_only_when_asked_for(kserve: Kserve, tokenizer: Tokenizer, model: str) -> None:
    plain = kserve.stream(model, text_input="hello", max_tokens=2, end_id=-1, stream=True)
    names = {"text_output", "output_ids", "sequence_length"}
    assert [set(answer.tensors) for answer in plain] == [names, names | {"finish_reason"}]
    asked = kserve.stream(
        model,
        text_input="hello",
        max_tokens=2,
        end_id=-1,
        stream=True,
        return_log_probs=True,
        num_top_log_probs=3,
        return_num_input_tokens=True,
        return_num_output_tokens=True,
    )
    assert [answer.tensors["output_log_probs"].shape for answer in asked] == [(1, 1, 1), (1, 1, 2)]
    assert [answer.tensors["top_log_probs"].shape for answer in asked] == [(1, 1, 3)] * 2
    for answer in asked:
        assert answer.tensors["num_input_tokens"].item() == len(tokenizer.encode("hello").ids)
        assert answer.tensors["num_output_tokens"].item() == 1
        assert answer.ids[0] == answer.tensors["top_log_probs_ids"][0, 0, 0]


@pytest.mark.parametrize("model", TEXT_MODELS)
def test_stop_and_bad_words_reach_the_engine(kserve: Kserve, model: str) -> None:
    inputs = {"text_input": "a b c", "max_tokens": 60, "end_id": -1, "exclude_input_in_output": True}
    (free,) = kserve.stream(model, **inputs)
    letter = next(char for char in free.text if char.isascii() and char.isprintable())
    (stopped,) = kserve.stream(model, stop_words=["", letter], **inputs)
    assert stopped.text == free.text[: free.text.index(letter) + 1]
    assert stopped.finish_reason == "stop"
    (banned,) = kserve.stream(model, bad_words=[letter], **inputs)
    assert letter not in banned.text
    (forced,) = kserve.stream(model, embedding_bias_words=["~"], embedding_bias_weights=[1000.0], **inputs)
    assert forced.text == "~" * 60


@pytest.mark.parametrize("model", TEXT_MODELS)
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"text_input": "hi", "stream": True}, "max_tokens is required"),
        ({"max_tokens": 5, "stream": True}, "text_input is required"),
        ({"text_input": "hi", "max_tokens": 5, "embedding_bias_words": ["a"]}, "embedding_bias_weights must have the"),
        ({"text_input": "hi", "max_tokens": 5, "beam_width": 3}, "beam width 3"),
        ({"text_input": "hi", "max_tokens": 5, "decoder_text_input": "x"}, "decoder_input_ids is not supported"),
        ({"text_input": "hi", "max_tokens": 5, "prompt_vocab_size": 5}, "prompt_embedding_table and"),
        ({"text_input": "x" * 3000, "max_tokens": 5}, "exceeds"),
    ],
)
def test_wrong_input_is_an_error_that_names_it(
    kserve: Kserve, model: str, inputs: dict[str, object], message: str
) -> None:
    (answer,) = kserve.stream(model, timeout=10, **inputs)
    assert message in answer.error
    assert "Traceback" not in answer.error
    assert ".py" not in answer.error


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image_url_input", "http://127.0.0.1/x.png"),
        ("image_input", np.zeros((1, 1, 3, 2, 2), dtype=np.float16)),
        ("image_bytes_input", np.zeros((1, 1, 1, 1, 3), dtype=np.uint8)),
        ("video_bytes_input", np.zeros((1, 1, 1, 1, 3), dtype=np.uint8)),
        ("num_draft_tokens", 4),
        ("use_draft_logits", True),
    ],
)
def test_bls_refuses_by_name_what_it_cannot_do(kserve: Kserve, name: str, value: object) -> None:
    (answer,) = kserve.stream("tensorrt_llm_bls", text_input="hi", max_tokens=5, **{name: value})
    assert answer.error.startswith(f"{name} is not supported")


def test_text_that_is_not_utf8_is_an_error(kserve: Kserve) -> None:
    (answer,) = kserve.stream("ensemble", text_input=np.array([[b"\xff\xfe"]], dtype=object), max_tokens=5)
    assert "QUERY is not UTF-8" in answer.error


def test_an_http_error_is_not_an_empty_success(triton: TritonServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(f"{triton.http_url}/v2/models/ensemble/generate", {"text_input": "hi", "temperature": 1.0})
