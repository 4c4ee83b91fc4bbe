"""Tensors to requests, responses to tensors (wire contract 1.3, 1.4 and 3.3)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.tensors import read
from wire.additions import BEAMS, RETENTION, TOP_P_DECAY
from wire.outputs import to_tensors
from wire.request import Beams, Guide, RejectedError, Request, RetainedRange, Retention
from wire.response import Perf, PromptScores, Response
from wire.word_lists import unpack_words


def test_absent_tensors_have_the_engines_defaults() -> None:
    request = read()
    assert (request.id, request.prompt, request.max_tokens, request.end_id) == ("r", [5, 6, 7], 9, -1)
    assert (request.sampling.top_k, request.sampling.top_p, request.sampling.temperature) == (None, None, None)
    assert (request.streaming, request.prompt_log_probs, request.perf_metrics) == (False, None, False)
    assert (request.num_input_tokens, request.num_output_tokens, request.finish_reason) == (False, False, False)


def test_every_tensor_is_read() -> None:
    words = np.array([[[10, 11, 20], [2, 3, -1]]], np.int32)
    request = read(
        input_lengths=2,
        end_id=2,
        stop_words_list=words,
        bad_words_list=words,
        embedding_bias=np.ones((1, 4), np.float32),
        temperature=np.float32(0.5),
        runtime_top_k=40,
        runtime_top_p=np.float32(0.5),
        repetition_penalty=np.float32(2),
        presence_penalty=np.float32(-1),
        frequency_penalty=np.float32(0.25),
        min_tokens=3,
        seed=np.uint64(2**64 - 1),
        streaming=True,
        return_log_probs=True,
        num_top_log_probs=20,
        num_prompt_log_probs=0,
        min_p=np.float32(0.25),
        return_perf_metrics=True,
        cache_salt="secret",
    )
    assert request.cache_salt == "secret"
    assert request.prompt == [5, 6]
    assert request.stop_words == request.sampling.bad_words == ((10, 11), (20,))
    assert request.sampling.bias.shape == (4,)
    assert (request.sampling.seed, request.sampling.top_k, request.sampling.temperature) == (2**64 - 1, 40, 0.5)
    assert (request.streaming, request.log_probs, request.top_log_probs) == (True, True, 20)
    assert (request.prompt_log_probs, request.sampling.min_p, request.perf_metrics) == (0, 0.25, True)


def test_the_request_decides_about_the_prompt_and_else_the_model() -> None:
    assert read().echo
    assert not read(switches={"exclude_input": True}).echo
    assert read(exclude_input_in_output=False, switches={"exclude_input": True}).echo
    assert not read(exclude_input_in_output=True).echo


@pytest.mark.parametrize("missing", ["input_ids", "input_lengths", "request_output_len"])
def test_a_missing_tensor_is_named(missing) -> None:
    with pytest.raises(RejectedError, match=f"A value is required for {missing}"):
        read(**{missing: None})


TAKES = (BEAMS, RETENTION, TOP_P_DECAY)
DECAY = {"runtime_top_p": np.float32(0.5), "runtime_top_p_decay": np.float32(0.5)}


def test_what_only_some_engines_take_is_read() -> None:
    request = read(
        TAKES,
        **DECAY,
        runtime_top_p_min=np.float32(0.25),
        runtime_top_p_reset_ids=6,
        beam_width=4,
        len_penalty=np.float32(0.5),
        early_stopping=np.bool_(False),
        retention_token_range_starts=np.array([[0, 2]], np.int32),
        retention_token_range_ends=np.array([[2, -1]], np.int32),
        retention_token_range_priorities=np.array([[90, 10]], np.int32),
        retention_decode_priority=50,
    )
    sampling = request.sampling
    assert (sampling.top_p_decay, sampling.top_p_min, sampling.top_p_reset_id) == (0.5, 0.25, 6)
    assert request.beams == Beams(4, 0.5, None, 0)
    assert request.retention == Retention((RetainedRange(0, 2, 90, None), RetainedRange(2, None, 10, None)), 50, None)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (DECAY | {"runtime_top_k": 4}, "without runtime_top_k"),
        ({"runtime_top_p_decay": np.float32(0.5)}, "goes with runtime_top_p"),
        ({"runtime_top_p": np.float32(0.5), "runtime_top_p_reset_ids": 4}, "no effect without runtime_top_p_decay"),
        (DECAY | {"runtime_top_p_decay": np.float32(0)}, "runtime_top_p_decay must be above 0, to 1"),
        (DECAY | {"runtime_top_p_min": np.float32(2)}, "runtime_top_p_min must be above 0, to 1"),
        ({"beam_width": 0}, "beam_width must be at least 1"),
        ({"retention_decode_priority": 101}, "from 0 to 100"),
        ({"retention_token_range_starts": np.zeros((1, 1), np.int32)}, "must be as many"),
    ],
)
def test_what_only_some_engines_take_is_checked(inputs, words) -> None:
    with pytest.raises(RejectedError, match=words):
        read(TAKES, **inputs)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("beam_width", 2, "Requested beam width 2 is larger than the maximum beam width 1"),
        ("num_return_sequences", 2, "num_return_sequences"),
        ("return_context_logits", True, "return_context_logits"),
        ("return_generation_logits", True, "return_generation_logits"),
        ("guided_decoding_guide_type", np.array([[b"json"]], np.object_), "GuidedDecoder is not set up"),
        ("lora_task_id", np.uint64(1), "lora"),
        ("prompt_embedding_table", np.zeros((1, 2, 3), np.float16), "prompt_embedding_table"),
        ("draft_input_ids", np.zeros((1, 2), np.int32), "draft_input_ids"),
        ("runtime_top_p_decay", np.float32(0.5), "runtime_top_p_decay is not supported"),
        ("temperature", np.float32("nan"), "temperature"),
        ("temperature", np.float32(-1), "temperature"),
        ("runtime_top_p", np.float32(1.5), "runtime_top_p"),
        ("runtime_top_k", 1025, "runtime_top_k"),
        ("runtime_top_k", -1, "runtime_top_k"),
        ("repetition_penalty", np.float32(0), "repetition_penalty"),
        ("presence_penalty", np.float32("inf"), "presence_penalty"),
        ("num_top_log_probs", 21, "num_top_log_probs"),
        ("num_prompt_log_probs", 21, "num_prompt_log_probs"),
        ("num_prompt_log_probs", -1, "num_prompt_log_probs"),
        ("min_p", np.float32(1.5), "min_p"),
        ("min_p", np.float32(-0.5), "min_p"),
        ("min_p", np.float32("nan"), "min_p"),
        ("embedding_bias", np.full((1, 3), np.nan, np.float32), "embedding_bias"),
        ("input_lengths", 4, "input_lengths"),
        ("input_ids", np.zeros((2, 3), np.int32), "batch size 2"),
        ("stop_words_list", np.array([[[1, 2], [3, -1]]], np.int32), "stop_words_list"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(name, value, words) -> None:
    with pytest.raises(RejectedError, match=words):
        read(**{name: value})


def test_logits_are_answered_where_the_engine_gathers_them() -> None:
    asked = {"return_context_logits": True, "return_generation_logits": True}
    request = read(switches={"gathers_logits": True}, **asked)
    assert (request.context_logits, request.generation_logits) == (True, True)


def _string(text: bytes) -> np.ndarray:
    return np.array([[text]], np.object_)


def test_guides() -> None:
    def guide(**inputs: Any) -> Guide | None:
        return read(switches={"guided": True}, **inputs).guide

    kind, text = "guided_decoding_guide_type", "guided_decoding_guide"
    assert guide() is None
    assert guide(**{kind: _string(b""), text: _string(b"")}) is None
    assert guide(**{kind: _string(b"json")}) == Guide("json", "")
    assert guide(**{kind: _string(b"regex"), text: _string("é".encode())}) == Guide("regex", "é")
    for wrong, words in (
        ({kind: _string(b"regex")}, "guide string must be provided"),
        ({text: _string(b"a+")}, "must be one of json, json_schema"),
        ({kind: _string(b"telepathy"), text: _string(b"a")}, "must be one of json, json_schema"),
        ({kind: _string(b"regex"), text: _string(b"\xff")}, "guided_decoding_guide must be UTF-8"),
    ):
        with pytest.raises(RejectedError, match=words):
            guide(**wrong)


def test_packed_words_follow_the_contracts_example() -> None:
    assert unpack_words("w", np.array([[10, 11, 20], [2, 3, -1]], np.int32)) == ((10, 11), (20,))
    assert unpack_words("w", np.array([[0], [-1]], np.int32)) == ()


def test_neutral_values_of_unsupported_features_pass() -> None:
    read(
        beam_width=1,
        num_return_sequences=1,
        return_context_logits=False,
        return_perf_metrics=False,
        len_penalty=np.float32(1),
        pad_id=2,
        embedding_bias=np.zeros((1, 0), np.float32),
        stop_words_list=np.zeros((1, 2, 0), np.int32),
    )


_ALL = {"num_input_tokens": True, "num_output_tokens": True, "finish_reason": True}


def test_output_shapes_and_dtypes() -> None:
    request = Request("r", [5, 6, 7], 9, streaming=True, log_probs=True, top_log_probs=2, **_ALL)
    response = Response(
        request, ids=[8], log_probs=[-1.0, -2.0], cum_log_prob=-3.0, top_log_probs=[[(8, -2.0), (9, -4.0)]]
    )
    tensors = to_tensors(response)
    assert {name: (array.dtype, array.shape) for name, array in tensors.items()} == {
        "output_ids": (np.int32, (1, 1, 1)),
        "sequence_length": (np.int32, (1, 1)),
        "output_log_probs": (np.float32, (1, 1, 2)),
        "cum_log_probs": (np.float32, (1, 1)),
        "top_log_probs_ids": (np.int32, (1, 1, 2)),
        "top_log_probs": (np.float32, (1, 1, 2)),
        "num_input_tokens": (np.int32, (1, 1)),
        "num_output_tokens": (np.int32, (1, 1)),
    }
    assert tensors["num_input_tokens"].item() == 3
    assert tensors["top_log_probs_ids"].tolist() == [[[8, 9]]]


def test_a_zero_token_final_response() -> None:
    request = Request("r", [5], 9, streaming=True, log_probs=True, top_log_probs=2, **_ALL)
    tensors = to_tensors(Response(request, log_probs=[-1.0], final=True, finish="stop"))
    assert tensors["output_ids"].shape == (1, 1, 0)
    assert tensors["sequence_length"].tolist() == [[0]]
    assert tensors["top_log_probs"].shape == (1, 0, 2)
    assert tensors["num_output_tokens"].item() == 0
    assert tensors["finish_reason"].tolist() == [[b"stop"]]
    assert tensors["finish_reason"].shape == (1, 1)
    plain = to_tensors(Response(Request("r", [5], 9), ids=[8], final=True, finish="stop"))
    assert set(plain) == {"output_ids", "sequence_length"}
    echo = Response(Request("r", [5, 6], 9, echo=True, **_ALL), ids=[5, 6, 7], final=True, finish="length")
    assert to_tensors(echo)["num_output_tokens"].item() == 3  # with the prompt


def test_shapes_of_logits_have_their_axes_swapped_while_streaming() -> None:
    for streaming, logits, shape in ((True, np.zeros((1, 7)), (1, 1, 1, 7)), (False, np.zeros((9, 7)), (1, 1, 9, 7))):
        request = Request("r", [5, 6], 9, streaming=streaming, generation_logits=True, context_logits=True)
        scores = PromptScores(logits=np.zeros((2, 7), np.float32))
        response = Response(request, ids=[8], prompt=scores, logits=logits.astype(np.float32))
        tensors = to_tensors(response)
        assert tensors["generation_logits"].shape == shape
        assert tensors["context_logits"].shape == (1, 2, 7)
        assert "prompt_log_probs" not in tensors


def test_what_the_prompt_and_the_cache_have_to_tell() -> None:
    scores = PromptScores([-1.0, -2.0], [[(6, -1.0), (9, -3.0)], [(3, -0.5), (7, -2.0)]], ranks=[1, 2])
    perf = Perf(1, first_scheduled_ns=2, first_token_ns=3, blocks=(5, 2), cached_tokens=64)
    response = Response(Request("r", [5, 6, 7], 9, prompt_log_probs=2), ids=[8], final=True, prompt=scores, perf=perf)
    tensors = to_tensors(response)
    assert tensors["prompt_log_probs"].tolist() == [[-1.0, -2.0]]
    assert tensors["prompt_log_probs_ranks"].tolist() == [[1, 2]]
    assert tensors["prompt_top_log_probs_ids"].tolist() == [[[6, 9], [3, 7]]]
    assert tensors["prompt_top_log_probs"].tolist() == [[[-1.0, -3.0], [-0.5, -2.0]]]
    told = {name: array.tolist() for name, array in tensors.items() if name.startswith("kv_") or "time" in name}
    assert told == {
        "kv_cache_alloc_total_blocks": [[5]],
        "kv_cache_alloc_new_blocks": [[3]],
        "kv_cache_reused_blocks": [[2]],
        "arrival_time_ns": [[1]],
        "first_scheduled_time_ns": [[2]],
        "first_token_time_ns": [[3]],
    }
    assert tensors["num_cached_tokens"].tolist() == [[64]]
    assert {array.dtype for name, array in tensors.items() if "time" in name} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("engine", "folder", "named"),
    [
        (None, ".", r"TRITON_ENGINE is not set; set it to one of: .*\breference\b"),
        ("nonsense", ".", r"TRITON_ENGINE is 'nonsense'; set it to one of: .*\breference\b"),
        ("reference", None, "MODEL_DIR is not set"),
        ("reference", "no/such/folder", "MODEL_DIR is 'no/such/folder', which is not a folder"),
    ],
)
def test_a_missing_setting_is_a_load_error_that_names_it(monkeypatch, engine, folder, named) -> None:
    for name, value in (("TRITON_ENGINE", engine), ("MODEL_DIR", folder)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    with pytest.raises(RuntimeError, match=named):
        _model().choose_engine()


def test_an_engine_of_one_s_own(monkeypatch, tmp_path) -> None:
    (tmp_path / "parrot_adapter.py").touch()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("ENGINE_PATH", str(tmp_path))
    monkeypatch.setenv("MODEL_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_ENGINE", "parrot")
    assert _model().choose_engine() == ("parrot_adapter", tmp_path)
    assert str(tmp_path) in sys.path
    monkeypatch.setenv("TRITON_ENGINE", "crow")
    with pytest.raises(RuntimeError, match=r"is 'crow'; set it to one of: llmapi, parrot, reference"):
        _model().choose_engine()


def _model() -> Any:
    path = Path(__file__).resolve().parents[2] / "triton_repo" / "tensorrt_llm" / "1" / "model.py"
    spec = importlib.util.spec_from_file_location("tensorrt_llm_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
