"""The model on a real Triton with TRITON_ENGINE=llmapi, TensorRT-LLM being a stand-in with recorded signatures."""

from __future__ import annotations

import itertools
from typing import Any

import grpc
import numpy as np
import pytest
from kserve import Answer, answers, infer_request, metric
from llmapi_stack import Server, copy_repository

from gateway_ops.local_stack.triton_installation import TritonStartError
from gateway_ops.local_stack.tritonserver import TritonServer
from tests.waiting import wait_until

MODEL = "tensorrt_llm"
PROMPT = list(b"What is machine learning?")
LONG = 1500


def inputs(prompt: list[int] = PROMPT, tokens: int = 12, **more: Any) -> dict[str, Any]:
    base = {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": tokens, "streaming": True}
    return base | {"end_id": -1, "return_finish_reason": True} | more


def ids(stream: list[Answer]) -> list[int]:
    assert not [answer.error for answer in stream if answer.error]
    return [token for answer in stream for token in answer.ids]


def packed(*words: list[int]) -> np.ndarray[Any, Any]:
    flat = [token for word in words for token in word]
    ends = np.cumsum([len(word) for word in words]).tolist()
    return np.array([[flat, ends + [-1] * (len(flat) - len(ends))]], np.int32)


def wait_for(server: Server, kind: str, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: len(server.events(kind)) >= count)
    return server.events(kind)


def test_streams_one_token_per_response(server) -> None:
    stream = server.client.stream(MODEL, **inputs(return_num_input_tokens=True, return_num_output_tokens=True))
    assert [len(answer.ids) for answer in stream] == [1] * 12
    assert [answer.final for answer in stream] == [False] * 11 + [True]
    assert [answer.finish_reason for answer in stream] == [""] * 11 + ["length"]
    assert {int(answer.tensors["num_input_tokens"].item()) for answer in stream} == {len(PROMPT)}
    assert sum(int(answer.tensors["num_output_tokens"].item()) for answer in stream) == 12


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0.8},
        {"temperature": 0.8, "runtime_top_p": 1.0, "seed": 7},
        {"runtime_top_k": 5, "temperature": 1.3, "seed": 8},
        {"runtime_top_p": 0.7, "seed": 9},
        {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.25},
        {"bad_words_list": packed([100], [101], [35], [60])},
        {"embedding_bias": np.arange(267, dtype=np.float32)[None] / 8},
        {"streaming": False},
        {"streaming": False, "exclude_input_in_output": True},
        {"temperature": 1.5, "runtime_top_p": 1.0, "min_p": np.array([[0.2]], np.float32), "seed": 4},
    ],
    ids=str,
)
def test_tokens_are_those_of_the_reference_engine(server, reference, more) -> None:
    expected = ids(reference.client.stream(MODEL, **inputs(**more)))
    assert ids(server.client.stream(MODEL, **inputs(**more))) == expected
    assert len(expected) >= 12


def test_temperature_zero_is_greedy(server) -> None:
    greedy = ids(server.client.stream(MODEL, **inputs()))
    assert ids(server.client.stream(MODEL, **inputs(temperature=0.0, runtime_top_p=0.9))) == greedy


def test_end_id_ends_and_is_not_in_the_output(server) -> None:
    tokens = ids(server.client.stream(MODEL, **inputs()))
    end = next(token for place, token in enumerate(tokens) if place > 2 and token not in tokens[:place])
    stream = server.client.stream(MODEL, **inputs(end_id=end))
    assert ids(stream) == tokens[: tokens.index(end)]
    assert (stream[-1].finish_reason, stream[-1].final, stream[-1].ids) == ("stop", True, [])
    late = ids(server.client.stream(MODEL, **inputs(end_id=end, min_tokens=12)))
    assert len(late) == 12
    assert end not in late


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_stop_words_end_and_stay(server, length, streaming) -> None:
    tokens = ids(server.client.stream(MODEL, **inputs()))
    word = tokens[5 : 5 + length]
    aborts = len(server.events("abort"))
    more: dict[str, Any] = {
        "stop_words_list": packed(word, [266, 265, 264]), "streaming": streaming, "exclude_input_in_output": True,
    }  # fmt: skip
    stream = server.client.stream(MODEL, **inputs(**more))
    end = next(n for n in range(1, 13) if tokens[:n][-length:] == word)
    assert ids(stream) == tokens[:end]
    assert (stream[-1].finish_reason, stream[-1].final) == ("stop", True)
    if length > 1:
        wait_for(server, "abort", aborts + 1)


def test_log_probs_are_the_growing_list(server, reference) -> None:
    more: dict[str, Any] = {"return_log_probs": True, "runtime_top_k": 4, "seed": 3}
    stream = server.client.stream(MODEL, **inputs(**more))
    grown = [answer.tensors["output_log_probs"] for answer in stream]
    assert [array.shape for array in grown] == [(1, 1, n) for n in range(1, 13)]
    for shorter, longer in itertools.pairwise(grown):
        np.testing.assert_array_equal(shorter, longer[..., :-1])
    np.testing.assert_allclose(stream[-1].tensors["cum_log_probs"].item(), grown[-1].sum(), rtol=1e-5)
    expected = reference.client.stream(MODEL, **inputs(**more))[-1].tensors["output_log_probs"]
    np.testing.assert_allclose(grown[-1], expected, atol=1e-5)


def test_alternatives_need_the_sampler_that_gives_them(server) -> None:
    (answer,) = server.client.stream(MODEL, **inputs(num_top_log_probs=3))
    assert "num_top_log_probs is 3, the engine gave 1" in answer.error


def test_torch_sampler_gives_alternatives_and_refuses_penalties(serve, reference) -> None:
    with serve(LLM_SAMPLER_TYPE="TorchSampler", ENGINE_MAX_BATCH_SIZE="2", ENGINE_MAX_QUEUE_SIZE="1") as server:
        wanted = inputs(num_top_log_probs=3, return_log_probs=True)
        for mine, other in zip(
            server.client.stream(MODEL, **wanted), reference.client.stream(MODEL, **wanted), strict=True
        ):
            np.testing.assert_array_equal(mine.tensors["top_log_probs_ids"], other.tensors["top_log_probs_ids"])
            np.testing.assert_allclose(mine.tensors["top_log_probs"], other.tensors["top_log_probs"], atol=1e-5)
        (rejected,) = server.client.stream(MODEL, **inputs(presence_penalty=0.5))
        assert "presence_penalty is not supported by the engine's sampler" in rejected.error
        check_full_queue(server)


def check_full_queue(server: Server) -> None:
    calls = [server.client.call(infer_request(MODEL, **inputs(tokens=LONG))) for _ in range(3)]
    wait_until(lambda: metric(server.triton.metrics_url, "nv_trt_llm_request_metrics", "active") == 3)
    (answer,) = server.client.stream(MODEL, **inputs())
    assert "Maximum queue size of 1 has been reached, please try again later" in answer.error
    for call in calls:
        call.cancel()
    wait_for(server, "abort", 3)
    assert len(ids(server.client.stream(MODEL, **inputs()))) == 12


def test_cancelled_rpc_aborts_the_request(server) -> None:
    before = len(server.events("abort"))
    call = server.client.call(infer_request(MODEL, **inputs(tokens=LONG)))
    stream = answers(call)
    next(stream)
    call.cancel()
    with pytest.raises(grpc.RpcError):
        list(stream)
    assert wait_for(server, "abort", before + 1)[-1]["tokens"] < LONG


def test_stop_by_id_aborts_the_request(server) -> None:
    before = len(server.events("abort"))
    stream = answers(server.client.call(infer_request(MODEL, "stop-me", **inputs(tokens=LONG))))
    first = next(stream)
    (duplicate,) = server.client.stream(MODEL, "stop-me", **inputs())
    assert "requestId stop-me is already in progress" in duplicate.error
    (stopped,) = server.client.stream(MODEL, "stop-me", stop=True, **inputs())
    assert (stopped.final, stopped.tensors) == (True, {})
    rest = list(stream)
    assert (rest[-1].finish_reason, rest[-1].final) == ("cancelled", True)
    assert 1 < len(ids([first, *rest])) + 1 < LONG
    assert len(wait_for(server, "abort", before + 1)) == before + 1
    assert len(ids(server.client.stream(MODEL, "stop-me", **inputs()))) == 12
    assert metric(server.triton.metrics_url, "nv_trt_llm_request_metrics", "active") == 0
    (unknown,) = server.client.stream(MODEL, "nobody", stop=True, **inputs())
    assert not unknown.error


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"prompt": [5] * 2048}, "Prompt length (2048) exceeds maximum input length (2047)."),
        ({"prompt": [5, 267]}, "input_ids must be within the vocabulary of 267 tokens"),
        ({"tokens": 0}, "request_output_len must be at least 1"),
        ({"end_id": 267}, "end_id must be within the vocabulary"),
        ({"beam_width": 2}, "Requested beam width 2 is larger than the maximum beam width 1"),
        ({"embedding_bias": np.zeros((1, 5), np.float32)}, "embedding_bias must have 267 values, not 5"),
        ({"guided_decoding_guide_type": "json"}, "GuidedDecoder is not set up"),
        ({"lookahead_window_size": 4}, "lookahead decoding is not supported by the engine"),
        ({"lora_task_id": np.array([[5]], np.uint64)}, "lora: the engine was not built with the LoRA plugin"),
        ({"draft_input_ids": [5]}, "draft_input_ids: the engine does not accept draft tokens"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_refusals_name_the_cause(server, more, message) -> None:
    (answer,) = server.client.stream(MODEL, **inputs(**more))
    assert message in answer.error


def test_output_length_is_clamped_in_silence(server) -> None:
    stream = server.client.stream(MODEL, **inputs([5] * 2040, 100))
    assert (len(ids(stream)), stream[-1].finish_reason) == (8, "length")
    assert server.events("generate_async")[-1]["sampling"]["max_tokens"] == 8


def test_what_the_llm_was_given(server) -> None:
    (built,) = server.events("LLM")
    assert built["max_seq_len"] == 2048
    assert built["sampler_type"] == "TRTLLMSampler"
    assert built["kv_cache_config"] == {"free_gpu_memory_fraction": 0.9}


def test_options_reach_the_llm_and_unloading_shuts_it_down(serve, tmp_path) -> None:
    extra = tmp_path / "extra.yaml"
    extra.write_text("max_num_tokens: 512\nkv_cache_config: {enable_block_reuse: false}\n")
    env = {"MAX_SEQ_LEN": "100", "LLM_TENSOR_PARALLEL_SIZE": "2", "LLM_DTYPE": "bfloat16"}
    with serve(LLM_EXTRA_ARGS_FILE=str(extra), LLM_KV_CACHE_FREE_GPU_MEM_FRACTION="0.5", **env) as server:
        (built,) = server.events("LLM")
        (answer,) = server.client.stream(MODEL, **inputs([5] * 100))
        assert "exceeds maximum input length (99)" in answer.error
        server.triton.stop()
        assert len(server.events("shutdown")) == 1
    assert (built["max_num_tokens"], built["tensor_parallel_size"], built["dtype"]) == (512, 2, "bfloat16")
    assert built["kv_cache_config"] == {"free_gpu_memory_fraction": 0.5, "enable_block_reuse": False}


@pytest.mark.parametrize(
    ("version", "sampler"), [("1.0.0", {"enable_trtllm_sampler": True}), ("main", {"sampler_type": None})]
)
def test_other_versions_answer_the_same(serve, reference, version, sampler) -> None:
    wanted = inputs(temperature=0.8, runtime_top_p=0.9, seed=7, presence_penalty=0.25)
    with serve(STANDIN_SIGNATURES=version) as server:
        mine, other = (one.client.stream(MODEL, **wanted) for one in (server, reference))
        assert ids(mine) == ids(other)
        word = packed(ids(mine)[4:5])
        stopped, other = (one.client.stream(MODEL, **inputs(stop_words_list=word)) for one in (server, reference))
        assert (ids(stopped), stopped[-1].finish_reason) == (ids(other), other[-1].finish_reason)
        (built,) = server.events("LLM")
        assert {name: built.get(name) for name in sampler} == sampler


def test_without_the_package_the_load_error_names_it(tiny_model_dir, tmp_path) -> None:
    repository = copy_repository(tmp_path / "repository", standin=False)
    triton = TritonServer(repository, model_dir=tiny_model_dir, engine="llmapi", log_path=tmp_path / "triton.log")
    triton.start()
    try:
        with pytest.raises(TritonStartError) as failure:
            triton.wait_ready([MODEL], deadline_s=60)
    finally:
        triton.stop()
    for word in ("tensorrt_llm", "TRITON_ENGINE", "llmapi", "reference"):
        assert word in str(failure.value)
