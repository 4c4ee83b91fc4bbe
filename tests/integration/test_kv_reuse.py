"""KV-cache reuse and log-probs of the prompt, through the real Triton."""

from __future__ import annotations

import uuid
from typing import Any

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


def test_a_second_turn_reuses_the_first(triton: TritonServer, kserve: Kserve, tokenizer: Tokenizer) -> None:
    size = int(metric(triton.metrics_url, BLOCKS, "tokens_per"))
    reused = metric(triton.metrics_url, BLOCKS, "reused")
    text = f"{uuid.uuid4().hex} " * 4  # nobody has sent it before
    ids = list(tokenizer.encode(text, add_special_tokens=False).ids)
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
