"""KV-cache reuse and log-probs of the prompt, through the real Triton."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kserve import Answer, Kserve, metric
from tokenizers import Tokenizer

from gateway_ops.local_stack.tritonserver import TritonServer

BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
GENERATE = {"streaming": True, "end_id": -1}


def ask(kserve: Kserve, prompt: list[int], count: int, **inputs: Any) -> list[Answer]:
    given = {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": count, **GENERATE, **inputs}
    got = kserve.stream("tensorrt_llm", **given)
    assert not got[-1].error
    return got


def value(answer: Answer, name: str) -> int:
    return int(answer.tensors[name].item())


def test_a_second_turn_reuses_the_first(triton: TritonServer, kserve: Kserve, tiny_model_dir: Path) -> None:
    size = int(metric(triton.metrics_url, BLOCKS, "tokens_per"))
    reused = metric(triton.metrics_url, BLOCKS, "reused")
    text = f"{uuid.uuid4().hex} " * 4  # nobody has sent it before
    ids = list(Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json")).encode(text, add_special_tokens=False).ids)
    told = {"return_perf_metrics": True, "text_input": text, "max_tokens": 3, "stream": True, "end_id": -1}
    *_, first = kserve.stream("ensemble", return_num_input_tokens=True, **told)
    assert (value(first, "num_cached_tokens"), value(first, "kv_cache_reused_blocks")) == (0, 0)
    prompt = ids + first.ids
    blocks = (value(first, "num_input_tokens") - 1) // size
    assert blocks >= 2
    *others, last = kserve.stream("ensemble", **told)
    assert not any(name.startswith("kv_") for answer in others for name in answer.tensors)
    assert (value(last, "kv_cache_reused_blocks"), value(last, "num_cached_tokens")) == (blocks, blocks * size)
    total = value(last, "kv_cache_alloc_total_blocks")
    assert value(last, "kv_cache_alloc_new_blocks") == total - blocks
    assert value(last, "arrival_time_ns") < value(last, "first_token_time_ns") < value(last, "last_token_time_ns")
    assert value(ask(kserve, prompt, 1, return_perf_metrics=True)[-1], "num_cached_tokens") >= blocks * size
    assert metric(triton.metrics_url, BLOCKS, "reused") >= reused + 2 * blocks
    assert metric(triton.metrics_url, BLOCKS, "fraction") < 1
    assert [answer.ids for answer in others] == [answer.ids for answer in kserve.stream("ensemble", **told)][:-1]


@pytest.mark.parametrize("model", ["tensorrt_llm", "ensemble"])
def test_a_salt_keeps_blocks_from_requests_with_another(kserve: Kserve, tiny_model_dir: Path, model: str) -> None:
    text = f"{uuid.uuid4().hex} " * 4
    ids = list(Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json")).encode(text, add_special_tokens=False).ids)

    def cached(**salt: str) -> int:
        told = {"return_perf_metrics": True, **salt}
        if model == "tensorrt_llm":
            return value(ask(kserve, ids, 1, **told)[-1], "num_cached_tokens")
        return value(
            kserve.stream(model, text_input=text, max_tokens=1, end_id=-1, stream=True, **told)[-1], "num_cached_tokens"
        )

    assert cached(cache_salt="one") == 0
    assert (cached(), cached(cache_salt="two")) == (0, 0)
    assert min(cached(), cached(cache_salt="one"), cached(cache_salt="two")) > 0


def test_a_prompts_log_probs_are_those_it_was_generated_with(kserve: Kserve) -> None:
    prompt = [40, 41, 42]
    sampled = {"temperature": np.array([[0.9]], np.float32), "runtime_top_p": np.array([[1.0]], np.float32), "seed": 5}
    plain = {"return_log_probs": True, "streaming": False, "exclude_input_in_output": True}
    (answer,) = ask(kserve, prompt, 30, **plain)
    min_p = np.array([[1.0]], np.float32)  # leaves the best alone, at any temperature
    (best,) = ask(kserve, prompt, 30, min_p=min_p, **plain, **sampled)
    assert best.ids == answer.ids
    first, *others = ask(kserve, prompt + answer.ids, 2, num_prompt_log_probs=2)
    assert all("prompt_log_probs" not in other.tensors for other in others)
    got = first.tensors["prompt_log_probs"]
    assert got.shape == (1, len(prompt) + 30 - 1)
    np.testing.assert_allclose(got[0, len(prompt) - 1 :], answer.tensors["output_log_probs"][0, 0], atol=1e-3)
    top, ids = first.tensors["prompt_top_log_probs"], first.tensors["prompt_top_log_probs_ids"]
    assert top.shape == ids.shape == (1, len(prompt) + 30 - 1, 2)
    assert ids[0, len(prompt) - 1 :, 0].tolist() == answer.ids
    np.testing.assert_allclose(top[0, len(prompt) - 1 :, 0], got[0, len(prompt) - 1 :], atol=1e-6)
    ranks = first.tensors["prompt_log_probs_ranks"]
    assert ranks.shape == got.shape
    assert set(ranks[0, len(prompt) - 1 :].tolist()) == {1}


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_the_text_models_pass_them_through(kserve: Kserve, model: str) -> None:
    answer, *_ = kserve.stream(model, text_input="hello there", max_tokens=3, num_prompt_log_probs=1, stream=True)
    shape = answer.tensors["prompt_log_probs"].shape
    assert (
        shape == answer.tensors["prompt_top_log_probs_ids"].shape[:2] == answer.tensors["prompt_log_probs_ranks"].shape
    )
    wrong = kserve.stream(model, text_input="x", max_tokens=3, min_p=np.array([[2.0]], np.float32))
    assert "min_p must be from 0 to 1" in wrong[-1].error


@pytest.mark.parametrize("kind", ["context", "generation"])
def test_logits_are_refused_where_the_engine_does_not_gather_them(kserve: Kserve, kind: str) -> None:
    inputs = {"input_ids": [5], "input_lengths": 1, "request_output_len": 1, f"return_{kind}_logits": True}
    (answer,) = kserve.stream("tensorrt_llm", **inputs)
    assert f"the engine does not gather {kind} logits" in answer.error
