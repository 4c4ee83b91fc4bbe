"""Settings, the choice of the sampler, and sampling parameters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from llmapi.options import Options, choose_sampler, llm_arguments, read_options
from llmapi.sampling import sampling_arguments, sampling_strategy
from reference.request import RefusedError, Request, Sampling


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 10, "max_position_embeddings": 64}))
    return tmp_path


def test_defaults_come_from_the_model(folder: Path) -> None:
    assert read_options({}, {}, folder) == Options(max_seq_len=64, vocab_size=10)


def test_environment_wins_over_parameters(folder: Path) -> None:
    environ = {"MAX_SEQ_LEN": "32", "LLM_TENSOR_PARALLEL_SIZE": "2", "LLM_KV_CACHE_FREE_GPU_MEM_FRACTION": "0.5"}
    options = read_options(environ, {"max_seq_len": "48", "kv_cache_free_gpu_mem_fraction": "0.7"}, folder)
    assert (options.max_seq_len, options.tensor_parallel_size, options.kv_cache_fraction) == (32, 2, 0.5)
    assert read_options({}, {"kv_cache_free_gpu_mem_fraction": "0.7"}, folder).kv_cache_fraction == 0.7


class KvCache(dict[str, Any]):
    """A KvCacheConfig with these fields."""

    model_fields = dict.fromkeys(("free_gpu_memory_fraction", "enable_block_reuse", "tokens_per_block"))


def test_kv_reuse_is_as_the_model_says_and_the_extra_file_wins(folder: Path) -> None:
    sampler = choose_sampler("1.2.1", {}, None)

    def cache(parameters: dict[str, str], **extra: Any) -> Any:
        options = dataclasses.replace(read_options({}, parameters, folder), extra={"kv_cache_config": extra})
        return llm_arguments(options, folder, sampler, KvCache)["kv_cache_config"]

    told = {"enable_kv_cache_reuse": "true", "tokens_per_block": "32"}  # as the LLM API does it anyway
    assert cache(told) == {"free_gpu_memory_fraction": 0.9}
    off = {"enable_kv_cache_reuse": "false", "tokens_per_block": "64"}
    assert cache(off) == {"free_gpu_memory_fraction": 0.9, "enable_block_reuse": False, "tokens_per_block": 64}
    assert cache(off, enable_block_reuse=True)["enable_block_reuse"]


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_extra_arguments(folder: Path, suffix: str) -> None:
    file = folder / f"extra.{suffix}"
    file.write_text('{"max_num_tokens": 99}' if suffix == "json" else "max_num_tokens: 99\n")
    assert read_options({"LLM_EXTRA_ARGS_FILE": str(file)}, {}, folder).extra == {"max_num_tokens": 99}


@pytest.mark.parametrize(
    "environ",
    [
        {"MAX_SEQ_LEN": "many"},
        {"LLM_TENSOR_PARALLEL_SIZE": "0"},
        {"LLM_KV_CACHE_FREE_GPU_MEM_FRACTION": "1.5"},
        {"LLM_KV_CACHE_FREE_GPU_MEM_FRACTION": "nan"},
        {"LLM_EXTRA_ARGS_FILE": "nowhere.json"},
    ],
)
def test_wrong_settings_are_named(folder: Path, environ: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match=next(iter(environ))):
        read_options(environ, {}, folder)


@pytest.mark.parametrize("text", ["[1]", "{", '{"kv_cache_config": 3}'])
def test_wrong_extra_file(folder: Path, text: str) -> None:
    file = folder / "extra.json"
    file.write_text(text)
    with pytest.raises(RuntimeError, match="LLM_EXTRA_ARGS_FILE"):
        read_options({"LLM_EXTRA_ARGS_FILE": str(file)}, {}, folder)


def test_context_length_is_never_guessed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 10}')
    with pytest.raises(RuntimeError, match="MAX_SEQ_LEN"):
        read_options({}, {}, tmp_path)


@pytest.mark.parametrize(
    ("version", "field", "wanted", "arguments", "applies"),
    [
        ("1.2.1", "sampler_type", None, {"sampler_type": "TRTLLMSampler"}, True),
        ("1.2.1", "sampler_type", "TorchSampler", {"sampler_type": "TorchSampler"}, False),
        ("1.0.0", "enable_trtllm_sampler", None, {"enable_trtllm_sampler": True}, True),
        ("1.0.0", "enable_trtllm_sampler", "TorchSampler", {"enable_trtllm_sampler": False}, False),
        ("1.2.1", "other", None, {}, False),
        ("1.3.0rc7", "sampler_type", None, {"sampler_type": "TRTLLMSampler"}, True),
        ("1.3.0rc26", "other", None, {}, True),
        ("1.4.0", "sampler_type", None, {}, True),
    ],
)
def test_sampler(version: str, field: str, wanted: str | None, arguments: dict[str, Any], applies: bool) -> None:
    choice = choose_sampler(version, {field: None}, wanted)
    assert (choice.arguments, choice.applies_penalties) == (arguments, applies)


def test_a_sampler_that_is_gone_is_refused() -> None:
    assert choose_sampler("1.4.0", {}, "TorchSampler").applies_penalties
    with pytest.raises(RuntimeError, match=r"LLM_SAMPLER_TYPE .* TensorRT-LLM 1\.4\.0 does not have"):
        choose_sampler("1.4.0", {}, "TRTLLMSampler")


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), {"top_k": 1}),
        (Sampling(temperature=0.8), {"top_k": 1}),
        (Sampling(temperature=0.8, top_k=0, top_p=0.0), {"top_k": 1}),
        (Sampling(temperature=0.0, top_p=0.9), {"top_k": 1}),
        (Sampling(top_k=1, temperature=3.0), {"top_k": 1}),
        (Sampling(temperature=0.8, top_p=1.0, seed=4), {"temperature": 0.8, "top_p": 1.0, "seed": 4}),
        (Sampling(top_p=0.5), {"temperature": 1.0, "top_p": 0.5, "seed": 0}),
        (Sampling(top_k=7), {"temperature": 1.0, "top_p": 1.0, "top_k": 7, "seed": 0}),
    ],
)
def test_strategy(sampling: Sampling, expected: dict[str, Any]) -> None:
    assert sampling_strategy(sampling) == expected


def arguments_of(request: Request, *, applies_penalties: bool = True) -> dict[str, Any]:
    return sampling_arguments(request, max_tokens=3, applies_penalties=applies_penalties, to_tensor=list)


def test_without_end_id_nothing_ends_and_nothing_is_suppressed() -> None:
    arguments = arguments_of(Request("r", [1], 3, sampling=Sampling(min_tokens=2)))
    assert (arguments["end_id"], arguments["ignore_eos"], arguments["pad_id"]) == (-1, True, 0)
    assert "min_tokens" not in arguments


def test_stop_words_of_one_token_stop_the_engine_and_stay() -> None:
    arguments = arguments_of(Request("r", [1], 3, stop_words=((5,), (6, 7), (8,))))
    assert (arguments["stop_token_ids"], arguments["include_stop_str_in_output"]) == ([5, 8], True)


@pytest.mark.parametrize(
    ("sampling", "name"),
    [
        (Sampling(repetition_penalty=1.1), "repetition_penalty"),
        (Sampling(presence_penalty=0.1), "presence_penalty"),
        (Sampling(frequency_penalty=0.1), "frequency_penalty"),
        (Sampling(bad_words=((3,),)), "bad_words_list"),
    ],
)
def test_a_sampler_that_would_drop_it_refuses_it(sampling: Sampling, name: str) -> None:
    request = Request("r", [1], 3, sampling=sampling)
    arguments_of(request)
    with pytest.raises(RefusedError, match=name):
        arguments_of(request, applies_penalties=False)


def test_what_the_llm_api_is_not_asked_for_is_refused() -> None:
    with pytest.raises(RefusedError, match="num_prompt_log_probs"):
        arguments_of(Request("r", [1], 3, prompt_log_probs=0))
    with pytest.raises(RefusedError, match="min_p"):
        arguments_of(Request("r", [1], 3, sampling=Sampling(min_p=0.5)))


def test_long_bad_words_are_refused() -> None:
    with pytest.raises(RefusedError, match="bad_words_list"):
        arguments_of(Request("r", [1], 3, sampling=Sampling(bad_words=((3, 4),))))


def test_parameters_of_a_rendered_repository(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64, "vocab_size": 10}')
    (tmp_path / "llm_args.json").write_text('{"max_num_tokens": 99}')
    parameters = {"max_batch_size": "7", "max_queue_size": "5", "dtype": "bfloat16"}
    options = read_options({}, {**parameters, "extra_args_file": str(tmp_path / "llm_args.json")}, tmp_path)
    assert (options.max_batch_size, options.max_queue_size, options.dtype) == (7, 5, "bfloat16")
    assert options.extra == {"max_num_tokens": 99}
    with pytest.raises(RuntimeError, match=r"tensorrt_llm/1/nowhere\.json"):
        read_options({}, {"extra_args_file": "nowhere.json"}, tmp_path)
