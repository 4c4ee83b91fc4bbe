"""Adapters compute what merged weights compute, and are loaded once, kept in bounds and sent again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from adapters import MODULES, make_pairs, merge, pack

from cpu_double.kv_cache import BLOCK
from cpu_double.llama import Chunk, Llama
from cpu_double.lora import load_adapter
from cpu_double.reference_engine import Limits, ReferenceEngine
from tests.engine.alone import drain
from tests.engine.tensors import read
from wire.request import LoraTask, RejectedError, Request

PROMPT = [20, 21, 22, 23, 90, 91]


def _task(folder: Path, number: int, seed: int) -> LoraTask:
    return LoraTask(number, *pack(make_pairs(folder, seed)))


def _logits(model: Llama, tasks: list[LoraTask | None], ids: list[int]) -> np.ndarray:
    adapters = [
        None if task is None else load_adapter(model.config, model.norms, task.weights, task.rows)  # type: ignore[arg-type]
        for task in tasks
    ]
    return model.forward([Chunk(ids, model.new_cache(), len(ids), adapter) for adapter in adapters])


@pytest.mark.parametrize("module", MODULES)
def test_each_module_computes_what_merged_weights_do(tiny, tiny_model_dir, tmp_path, module) -> None:
    pairs = make_pairs(tiny_model_dir, module, modules=(module,))
    merged = Llama(merge(tiny_model_dir, pairs, tmp_path / "merged"))
    expected = merged.forward([Chunk(PROMPT, merged.new_cache(), len(PROMPT))])
    plain = tiny.forward([Chunk(PROMPT, tiny.new_cache(), len(PROMPT))])
    actual = _logits(tiny, [LoraTask(1, *pack(pairs))], PROMPT)
    np.testing.assert_allclose(actual, expected, atol=2e-3)
    assert np.abs(actual - plain).max() > 0.05


def test_the_fused_query_key_value_module_is_the_three_in_one(tiny, tiny_model_dir) -> None:
    pairs = make_pairs(tiny_model_dir, 4, modules=(1, 2, 3))
    separate = _logits(tiny, [LoraTask(1, *pack(pairs))], PROMPT)
    rows, config = [], []
    for layer in range(2):
        a = np.concatenate([pairs[layer, module][0] for module in (1, 2, 3)])
        blocks = [pairs[layer, module][1] for module in (1, 2, 3)]
        b = np.zeros((sum(map(len, blocks)), len(a)), np.float16)
        row = 0
        for place, block in enumerate(blocks):
            b[row : row + len(block), 3 * place : 3 * place + 3] = block
            row += len(block)
        rows.append(np.concatenate([a.ravel(), b.ravel()]))
        config.append((0, layer, len(a)))
    fused = _logits(tiny, [LoraTask(1, np.stack(rows), np.array(config, np.int32))], PROMPT)
    np.testing.assert_allclose(fused, separate, atol=1e-3)


def test_answers_are_those_of_the_merged_model(tiny, tiny_model_dir, tmp_path, generate) -> None:
    pairs = make_pairs(tiny_model_dir, 1)
    model = Llama(merge(tiny_model_dir, pairs, tmp_path / "merged"))
    merged = ReferenceEngine(model, Limits(2048), normalize_log_probs=False)
    (expected,) = generate(Request("", PROMPT, 20, log_probs=True), merged)
    (actual,) = generate(Request("", PROMPT, 20, log_probs=True, lora=LoraTask(7, *pack(pairs))))
    assert actual.ids == expected.ids
    assert actual.log_probs == pytest.approx(expected.log_probs, abs=1e-3)
    assert generate(Request("", PROMPT, 20))[0].ids != expected.ids


def test_sequences_in_one_pass_have_adapters_of_their_own(tiny, tiny_model_dir) -> None:
    first, second = _task(tiny_model_dir, 1, 1), _task(tiny_model_dir, 2, 2)
    together = _logits(tiny, [first, None, second], PROMPT)
    alone = np.concatenate([_logits(tiny, [task], PROMPT) for task in (first, None, second)])
    np.testing.assert_allclose(together, alone, atol=1e-3)


def test_weights_are_sent_once_and_again_after_eviction(tiny, tiny_model_dir, generate) -> None:
    first, second = _task(tiny_model_dir, 1, 1), _task(tiny_model_dir, 2, 2)
    engine = ReferenceEngine(tiny, Limits(2048, lora_cache_bytes=first.weights.nbytes))

    def ask(task: LoraTask) -> list[int]:
        return generate(Request("", PROMPT, 8, lora=task), engine)[0].ids

    missing = "LoRA task 1 not found in cache. Please send LoRA weights with request"
    with pytest.raises(RejectedError, match=missing):
        ask(LoraTask(1))
    answer = ask(first)
    assert ask(LoraTask(1)) == answer
    assert ask(second) != answer
    with pytest.raises(RejectedError, match=missing):
        ask(LoraTask(1))
    assert ask(first) == answer
    assert ask(LoraTask(1)) == answer


def test_a_request_in_flight_keeps_an_adapter_that_has_left(tiny, tiny_model_dir, generate) -> None:
    first, second = _task(tiny_model_dir, 1, 1), _task(tiny_model_dir, 2, 2)
    (expected,) = generate(Request("", PROMPT, 8, lora=first))
    engine = ReferenceEngine(tiny, Limits(2048, lora_cache_bytes=first.weights.nbytes))
    engine.submit(Request("a", PROMPT, 8, lora=first))
    engine.step()
    engine.submit(Request("b", PROMPT, 8, lora=second))
    assert drain(engine)["a"][-1].ids == expected.ids


def test_the_least_recently_used_adapter_leaves_first(tiny, tiny_model_dir, generate) -> None:
    tasks = [_task(tiny_model_dir, number, number) for number in range(3)]
    engine = ReferenceEngine(tiny, Limits(2048, lora_cache_bytes=2 * tasks[0].weights.nbytes))
    for task in (tasks[0], tasks[1], LoraTask(0), tasks[2]):
        generate(Request("", PROMPT, 1, lora=task), engine)
    generate(Request("", PROMPT, 1, lora=LoraTask(0)), engine)
    with pytest.raises(RejectedError, match="LoRA task 1 not found"):
        engine.submit(Request("", PROMPT, 1, lora=LoraTask(1)))


def test_cached_blocks_are_not_shared_between_adapters(tiny, tiny_model_dir, generate) -> None:
    prompt = [(11 * place) % 250 + 5 for place in range(2 * BLOCK + 3)]
    engine = ReferenceEngine(tiny, Limits(2048, kv_reuse_blocks=32))

    def ask(task: LoraTask | None) -> tuple[list[int], int | None]:
        (answer,) = generate(Request("", prompt, 8, perf_metrics=True, lora=task), engine)
        return answer.ids, answer.perf.cached_tokens

    adapted = _task(tiny_model_dir, 1, 1)
    plain, reused = ask(None)
    other, crossed = ask(adapted)
    assert (reused, crossed) == (0, 0)
    assert other != plain
    assert ask(adapted) == (other, 2 * BLOCK)
    assert ask(None) == (plain, 2 * BLOCK)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2, 3]], "layerId"),
        ([[1, 0, 0]], "adapterSize"),
        ([[1, 0, 65]], "low_rank"),
        ([[13, 0, 3]], "lora module 13 not enabled for this model"),
        ([[1, 0, 3], [1, 1, 3]], "same size"),
        ([[6, 0, 60]], "to few values for mlp_4h_to_h"),
        ([[1, 0]], "lora_keys"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(tiny, tiny_model_dir, generate, rows, words) -> None:
    task = LoraTask(1, np.zeros((1, 400), np.float16), np.array(rows, np.int32))
    with pytest.raises(RejectedError, match=words):
        generate(Request("", PROMPT, 1, lora=task))
    small = ReferenceEngine(tiny, Limits(2048, lora_cache_bytes=10))
    with pytest.raises(RejectedError, match=r"PEFT Cache is full. Could not store taskId=5"):
        small.submit(Request("", PROMPT, 1, lora=_task(tiny_model_dir, 5, 1)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("lora_weights", "lora_config"), "lora_task_id must be set"),
        (("lora_task_id", "lora_weights"), "both lora_weights and lora_keys"),
    ],
)
def test_incomplete_tensors_are_refused(given, words) -> None:
    tensors = {
        "lora_task_id": np.array([[5]], np.uint64),
        "lora_weights": np.zeros((1, 2, 3), np.float16),
        "lora_config": np.zeros((1, 2, 3), np.int32),
    }
    with pytest.raises(RejectedError, match=words):
        read({"lora"}, **{name: tensors[name] for name in given})
