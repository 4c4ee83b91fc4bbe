"""Settings, the choice of the sampler, and sampling parameters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engines.llmapi.extensions import Extensions
from engines.llmapi.llm_arguments import choose_sampler, llm_arguments, visible_gpus
from engines.llmapi.options import Options, read_options
from engines.llmapi.sampling_params import sampling_arguments, set_bad_words
from wire.request import Beams, RejectedError, Request, Sampling


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 10, "max_position_embeddings": 64}))
    return tmp_path


def test_environment_wins_over_parameters_and_these_over_the_model(folder) -> None:
    assert read_options({}, {}, folder) == Options(max_seq_len=64, vocab_size=10)
    environ = {"MAX_SEQ_LEN": "32", "LLM_TENSOR_PARALLEL_SIZE": "2", "LLM_KV_CACHE_FREE_GPU_MEM_FRACTION": "0.5"}
    options = read_options(environ, {"max_seq_len": "48", "kv_cache_free_gpu_mem_fraction": "0.7"}, folder)
    assert (options.max_seq_len, options.tensor_parallel_size, options.kv_cache_fraction) == (32, 2, 0.5)
    assert read_options({}, {"kv_cache_free_gpu_mem_fraction": "0.7"}, folder).kv_cache_fraction == 0.7


class KvCache(dict[str, Any]):
    """A KvCacheConfig with these fields."""

    model_fields = dict.fromkeys(("free_gpu_memory_fraction", "enable_block_reuse", "tokens_per_block"))


def test_kv_reuse_is_as_the_model_says_and_the_extra_file_wins(folder) -> None:
    sampler = choose_sampler("1.2.1", {}, None)

    def cache(parameters: dict[str, str], **extra: Any) -> Any:
        options = dataclasses.replace(read_options({}, parameters, folder), extra={"kv_cache_config": extra})
        return llm_arguments(options, folder, sampler, KvCache)["kv_cache_config"]

    told = {"enable_kv_cache_reuse": "true", "tokens_per_block": "32"}  # as the LLM API does it anyway
    assert cache(told) == {"free_gpu_memory_fraction": 0.9}
    off = {"enable_kv_cache_reuse": "false", "tokens_per_block": "64"}
    assert cache(off) == {"free_gpu_memory_fraction": 0.9, "enable_block_reuse": False, "tokens_per_block": 64}
    assert cache(off, enable_block_reuse=True)["enable_block_reuse"]


@pytest.mark.parametrize(
    ("name", "text", "extra"),
    [
        ("extra.json", '{"max_num_tokens": 99}', {"max_num_tokens": 99}),
        ("extra.yaml", "max_num_tokens: 99\n", {"max_num_tokens": 99}),
        ("extra.json", "[1]", None),
        ("extra.json", "{", None),
        ("extra.json", '{"kv_cache_config": 3}', None),
    ],
)
def test_extra_arguments(folder, name, text, extra) -> None:
    environ = {"LLM_EXTRA_ARGS_FILE": str(folder / name)}
    (folder / name).write_text(text)
    if extra is not None:
        assert read_options(environ, {}, folder).extra == extra
        return
    with pytest.raises(RuntimeError, match="LLM_EXTRA_ARGS_FILE"):
        read_options(environ, {}, folder)


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
def test_wrong_settings_are_named(folder, environ) -> None:
    with pytest.raises(RuntimeError, match=next(iter(environ))):
        read_options(environ, {}, folder)


def test_context_length_is_never_guessed(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"vocab_size": 10}')
    with pytest.raises(RuntimeError, match="MAX_SEQ_LEN"):
        read_options({}, {}, tmp_path)


@pytest.mark.parametrize(
    ("version", "field", "wanted", "arguments", "does"),
    [
        ("1.0.0", "enable_trtllm_sampler", None, {"enable_trtllm_sampler": True}, "penalties, wide"),
        ("1.0.0", "enable_trtllm_sampler", "TorchSampler", {"enable_trtllm_sampler": False}, ""),
        ("1.2.1", "sampler_type", None, {"sampler_type": "TRTLLMSampler"}, "penalties, wide"),
        ("1.2.1", "sampler_type", "TorchSampler", {"sampler_type": "TorchSampler"}, ""),
        ("1.2.1", "other", None, {}, ""),
        ("1.3.0rc7", "sampler_type", None, {"sampler_type": "TRTLLMSampler"}, "penalties, wide"),
        ("1.3.0rc24", "sampler_type", None, {}, "penalties"),
        ("1.3.0rc26", "sampler_type", None, {}, "penalties, wide, beams"),
        ("1.4.0", "sampler_type", None, {}, "penalties, wide, beams"),
        ("1.4.0", "sampler_type", "TorchSampler", {"sampler_type": "TorchSampler"}, "penalties, wide, beams"),
    ],
)
def test_what_each_sampler_takes(version, field, wanted, arguments, does) -> None:
    """TRTLLMSampler hands everything to TensorRT-LLM's C++ decoder; TorchSampler took it over in 1.3, bit by bit."""
    choice = choose_sampler(version, {field: None}, wanted)
    told = {"penalties": choice.applies_penalties, "wide": choice.is_wide, "beams": choice.beam_log_probs}
    assert (choice.arguments, ", ".join(name for name, takes in told.items() if takes)) == (arguments, does)


def test_beams_are_told_to_the_llm_and_need_a_sampler_that_hears_them(folder) -> None:
    options = read_options({}, {"max_beam_width": "4"}, folder)
    assert options.max_beam_width == 4
    arguments = llm_arguments(options, folder, choose_sampler("1.2.1", {"sampler_type": None}, None), KvCache)
    told = {name: arguments[name] for name in ("max_beam_width", "disable_overlap_scheduler", "cuda_graph_config")}
    assert told == {"max_beam_width": 4, "disable_overlap_scheduler": True, "cuda_graph_config": None}
    with pytest.raises(RuntimeError, match="max_beam_width is 4, but the sampler"):
        llm_arguments(options, folder, choose_sampler("1.2.1", {"sampler_type": None}, "TorchSampler"), KvCache)
    file = folder / "extra.json"
    file.write_text('{"max_beam_width": 3}')
    assert read_options({"LLM_EXTRA_ARGS_FILE": str(file)}, {"max_beam_width": "1"}, folder).max_beam_width == 3


def test_each_instance_sees_its_own_gpus(folder) -> None:
    parameters = {"gpu_device_ids": "0, 1;4,5", "tensor_parallel_size": "2"}
    options = read_options({}, parameters, folder)
    assert [visible_gpus(options, f"tensorrt_llm_0_{number}") for number in (0, 1)] == ["0,1", "4,5"]
    with pytest.raises(RuntimeError, match="gpu_device_ids has 2 groups, and this is instance 3"):
        visible_gpus(options, "tensorrt_llm_0_2")
    with pytest.raises(RuntimeError, match="the GPUs 0,1, and the engine takes 4"):
        visible_gpus(dataclasses.replace(options, extra={"pipeline_parallel_size": 2}), "tensorrt_llm_0_0")
    with pytest.raises(RuntimeError, match="the GPUs 4,5, and the engine takes 1"):
        options.gpus_of("tensorrt_llm_0_1", 1)
    assert visible_gpus(read_options({}, {}, folder), "tensorrt_llm_0_0") is None
    with pytest.raises(RuntimeError, match="LLM_GPU_IDS is '0;x'"):
        read_options({"LLM_GPU_IDS": "0;x"}, {}, folder)


def test_a_sampler_that_is_gone_is_refused() -> None:
    assert choose_sampler("1.4.0", {}, "TorchSampler").applies_penalties
    with pytest.raises(RuntimeError, match=r"LLM_SAMPLER_TYPE .* TensorRT-LLM 1\.4\.0 does not have"):
        choose_sampler("1.4.0", {}, "TRTLLMSampler")


def arguments_of(request: Request, *, applies_penalties: bool = True) -> dict[str, Any]:
    return sampling_arguments(request, max_tokens=3, applies_penalties=applies_penalties, to_tensor=list)


def test_what_is_dropped_or_not_asked_for_is_refused() -> None:
    for sampling, name in (
        (Sampling(repetition_penalty=1.1), "repetition_penalty"),
        (Sampling(presence_penalty=0.1), "presence_penalty"),
        (Sampling(frequency_penalty=0.1), "frequency_penalty"),
        (Sampling(bad_words=((3,),)), "bad_words_list"),
    ):
        request = Request("r", [1], 3, sampling=sampling)
        arguments_of(request)
        with pytest.raises(RejectedError, match=name):
            arguments_of(request, applies_penalties=False)
    with pytest.raises(RejectedError, match="num_prompt_log_probs"):
        arguments_of(Request("r", [1], 3, prompt_log_probs=0))
    with pytest.raises(RejectedError, match="min_p"):
        arguments_of(Request("r", [1], 3, sampling=Sampling(min_p=0.5)))


def test_long_bad_words_are_refused_where_they_would_be_dropped() -> None:
    sampling = Sampling(bad_words=((3, 4), (5,)))
    with pytest.raises(RejectedError, match="bad_words_list"):
        arguments_of(Request("r", [1], 3, sampling=sampling))

    class Params:
        bad: Any = None
        _bad_word_ids: Any = None

        def _get_bad_words(self) -> Any:
            return [] if self.bad is None else self._bad_word_ids

    params = Params()
    set_bad_words(params, sampling)
    assert params._get_bad_words() == [[3, 4], [5]]
    with pytest.raises(RejectedError, match="does not support bad words of more than one token"):
        set_bad_words(type("Deaf", (Params,), {"_get_bad_words": lambda _: []})(), sampling)


def test_what_does_not_go_with_beams_is_refused() -> None:
    four = Extensions(beams=4)

    def asked(**more: Any) -> dict[str, Any]:
        request = Request("r", [1], 3, **{"beams": Beams(4)} | more)
        return sampling_arguments(request, max_tokens=3, applies_penalties=True, to_tensor=list, extensions=four)

    assert asked()["best_of"] == asked()["n"] == 4
    sampled = asked(sampling=Sampling(temperature=0.5, top_k=3, top_p=0.5, seed=7))
    assert not {"top_k", "top_p", "seed"} & sampled.keys()
    assert sampled["temperature"] == 0.5
    for name, more in {
        "beam width 1 is not 4": {"beams": Beams()},
        "beam width 2 is not 4": {"beams": Beams(2)},
        "beam width 5 is larger": {"beams": Beams(5)},
        "streaming": {"streaming": True},
        "return_log_probs": {"log_probs": True},
        "num_top_log_probs": {"top_log_probs": 2},
        "stop_words_list": {"stop_words": ((5, 6),)},
        "runtime_top_p_decay": {"sampling": Sampling(top_p=0.5, top_p_decay=0.5)},
    }.items():
        with pytest.raises(RejectedError, match=name):
            asked(**more)


def test_parameters_of_a_rendered_repository(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64, "vocab_size": 10}')
    (tmp_path / "llm_args.json").write_text('{"max_num_tokens": 99}')
    parameters = {"max_batch_size": "7", "max_queue_size": "5", "dtype": "bfloat16"}
    options = read_options({}, {**parameters, "extra_args_file": str(tmp_path / "llm_args.json")}, tmp_path)
    assert (options.max_batch_size, options.max_queue_size, options.dtype) == (7, 5, "bfloat16")
    assert options.extra == {"max_num_tokens": 99}
    with pytest.raises(RuntimeError, match=r"tensorrt_llm/1/nowhere\.json"):
        read_options({}, {"extra_args_file": "nowhere.json"}, tmp_path)
