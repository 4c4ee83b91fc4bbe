"""Inputs of the contract that the LLM API takes beside the usual ones, on a real Triton."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import recorded
from kserve import Answer
from llmapi_stack import HERE, Server
from test_llmapi_server import MODEL, PROMPT, ids, inputs, packed

from cpu_double.llama import Llama
from engines.llmapi.extensions import retention_config
from wire.request import RetainedRange, Retention

WIDTH = 3


@pytest.fixture(scope="module")
def reference(serve) -> Iterator[Server]:
    """The same model on the reference engine, which gathers logits."""
    with serve(engine="reference", ENGINE_GATHER_LOGITS="true") as running:
        yield running


@pytest.fixture(scope="module")
def searching(serve) -> Iterator[Server]:
    """An engine for beam searches."""
    with serve(LLM_MAX_BEAM_WIDTH=str(WIDTH), LLM_GPU_IDS="6,7", LLM_TENSOR_PARALLEL_SIZE="2") as running:
        yield running


def both(server: Server, reference: Server, **more: Any) -> tuple[list[Answer], list[Answer]]:
    answers = [one.client.stream(MODEL, **inputs(**more)) for one in (server, reference)]
    assert ids(answers[0]) == ids(answers[1])
    return answers[0], answers[1]


@pytest.mark.parametrize("streaming", [True, False])
def test_logits_are_those_of_the_model(server, reference, streaming) -> None:
    more: dict[str, Any] = {"streaming": streaming, "exclude_input_in_output": True}
    mine, other = both(server, reference, return_generation_logits=True, return_context_logits=True, **more)
    for one, two in zip(mine, other, strict=True):
        shown = one.tensors["generation_logits"]
        assert shown.shape == ((1, 1, 1, 267) if streaming else (1, 1, 12, 267))
        np.testing.assert_allclose(shown, two.tensors["generation_logits"], atol=1e-4)
    np.testing.assert_allclose(mine[0].tensors["context_logits"], other[0].tensors["context_logits"], atol=1e-4)
    assert all("context_logits" not in one.tensors for one in mine[1:])
    asked = server.events("generate_async")[-1]["sampling"]
    assert (asked["return_generation_logits"], asked["return_context_logits"]) == (True, True)


def test_bad_words_of_several_tokens_are_not_completed(server, reference) -> None:
    plain = ids(server.client.stream(MODEL, **inputs()))
    banned = plain[3:6]
    unwanted = next(token for token in range(266, 0, -1) if token not in plain)
    held = ids(both(server, reference, bad_words_list=packed(banned, [unwanted]))[0])
    assert held[:5] == plain[:5]
    assert banned not in [held[start : start + 3] for start in range(10)]
    assert unwanted not in held


def test_a_nucleus_may_shrink_and_be_reset(server, reference) -> None:
    sampled: dict[str, Any] = {"runtime_top_p": 1.0, "temperature": 5.0, "seed": 11, "tokens": 20}
    free = ids(both(server, reference, **sampled)[0])
    decay: dict[str, Any] = {"runtime_top_p_decay": 0.01, "runtime_top_p_min": 1e-6}
    held = ids(both(server, reference, **sampled, **decay)[0])
    assert held[0] == free[0]
    assert held != free
    again = ids(both(server, reference, **sampled, **decay, runtime_top_p_reset_ids=held[1])[0])
    assert (again[:2], again != held) == (held[:2], True), "after that token the nucleus is whole again"
    (rejected,) = server.client.stream(MODEL, **inputs(runtime_top_p_decay=0.5, runtime_top_k=5))
    assert "runtime_top_p_decay goes with runtime_top_p, and without runtime_top_k" in rejected.error


def test_how_long_blocks_are_kept_is_passed_on(server) -> None:
    ranges = {"starts": [0, 8], "ends": [8, -1], "priorities": [90, 10], "durations_ms": [-1, 2000]}
    more: dict[str, Any] = {f"retention_token_range_{name}": values for name, values in ranges.items()}
    more |= {"retention_decode_priority": 50, "retention_decode_duration_ms": 1500}
    assert len(ids(server.client.stream(MODEL, **inputs(**more)))) == 12
    first = {"token_start": 0, "token_end": 8, "priority": 90, "duration_ms": None}
    second = {"token_start": 8, "token_end": None, "priority": 10, "duration_ms": timedelta(seconds=2)}
    expected = {
        "token_range_retention_configs": [first, second],
        "decode_retention_priority": 50,
        "decode_duration_ms": timedelta(seconds=1.5),
    }
    assert server.events("generate_async")[-1]["retention"] == f"KvCacheRetentionConfig({expected})"
    for name, value, message in (
        ("retention_token_range_priorities", [90, 101], "must be from 0 to 100"),
        ("retention_token_range_ends", [8, 3], "there is no range from 8 to 3"),
        ("retention_token_range_starts", [0], "must be as many"),
        ("retention_decode_duration_ms", -5, "must not be negative"),
    ):
        (rejected,) = server.client.stream(MODEL, **inputs(**more | {name: value}))
        assert message in rejected.error


def test_a_binding_that_wants_a_directory_gets_one() -> None:
    made: list[dict[str, Any]] = []

    class Config:
        TokenRangeRetentionConfig = staticmethod(lambda *values: values)

        def __init__(self, **arguments: Any) -> None:
            if "directory" not in arguments:
                raise TypeError("incompatible function arguments")
            made.append(arguments)

    retention_config(Config, Retention((RetainedRange(0, None, 30, None),)))
    assert made == [{"token_range_retention_configs": [(0, None, 30, None)], "directory": ""}]
    recorded.check_call("KvCacheRetentionConfig", made[0], recorded.BINDINGS)


@pytest.mark.parametrize("penalty", [None, 2.0])
def test_all_beams_come_at_the_end(searching, tiny_model_dir, penalty) -> None:
    more: dict[str, Any] = {} if penalty is None else {"len_penalty": penalty}
    (answer,) = searching.client.stream(
        MODEL, **inputs(beam_width=WIDTH, streaming=False, exclude_input_in_output=True, **more)
    )
    search = runpy.run_path(str(HERE / "standin" / "tensorrt_llm" / "beam_search.py"))["search"]
    found = search(Llama(tiny_model_dir), PROMPT, width=WIDTH, tokens=12, end_id=-1, length_penalty=penalty or 0.0)
    assert answer.tensors["output_ids"].tolist() == [[list(beam.ids) for beam in found]]
    assert answer.tensors["sequence_length"].tolist() == [[12] * WIDTH]
    assert (answer.final, answer.finish_reason) == (True, "length")
    asked = searching.events("generate_async")[-1]["sampling"]
    assert (asked["use_beam_search"], asked["best_of"], asked["n"]) == (True, WIDTH, WIDTH)
    assert asked.get("length_penalty") == penalty
    (built,) = searching.events("LLM")
    assert (built["max_beam_width"], built["cuda_graph_config"]) == (WIDTH, None)
    assert built["visible"] == "6,7"


def test_an_engine_for_beams_refuses_what_has_others(searching) -> None:
    (plain,) = searching.client.stream(MODEL, **inputs())
    assert f"Requested beam width 1 is not {WIDTH}" in plain.error
    (more,) = searching.client.stream(MODEL, **inputs(beam_width=WIDTH + 1, streaming=False))
    assert f"larger than the maximum beam width {WIDTH}" in more.error
    (streamed,) = searching.client.stream(MODEL, **inputs(beam_width=WIDTH))
    assert "streaming is not supported by the engine's beam search" in streamed.error
