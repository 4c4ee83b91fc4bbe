"""Every name that the engine passes to TensorRT-LLM exists there, with the type it has there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_signatures
import recorded

from engines.llmapi.extensions import Extensions
from engines.llmapi.llm_arguments import choose_sampler, llm_arguments
from engines.llmapi.llm_engine import generate_arguments
from engines.llmapi.options import Options
from engines.llmapi.sampling_params import sampling_arguments
from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.engine_parameters import llm_arguments as rendered_arguments
from wire.request import Beams, RejectedError, Request, Retention, Sampling

every_version = pytest.mark.parametrize("version", recorded.TABLE)

EVERYTHING = Sampling(
    temperature=0.7,
    top_k=40,
    top_p=0.9,
    repetition_penalty=1.1,
    presence_penalty=0.5,
    frequency_penalty=0.25,
    min_tokens=3,
    seed=2**64 - 1,
    bias=np.zeros(8, np.float32),
    bad_words=((5,), (6,)),
)
DECAYING = Sampling(top_p=0.9, top_p_decay=0.5, top_p_min=0.25, top_p_reset_id=3, min_p=0.1)
BEAMS = Beams(4, length_penalty=0.5, diversity_rate=0.25, early_stopping=1)
WIDE = Extensions(to_array=np.asarray, min_p=True, top_p_decay=True, beam_log_probs=True, long_bad_words=True)
REQUESTS = [
    Request("a", [1, 2], 5, end_id=2, sampling=EVERYTHING, stop_words=((3,), (4, 5)), log_probs=True, top_log_probs=5),
    Request("b", [1, 2], 5),
    Request("c", [1, 2], 5, end_id=2, sampling=Sampling(top_p=0.5), streaming=True, log_probs=True),
    Request("d", [1, 2], 5, sampling=DECAYING, context_logits=True, generation_logits=True),
    Request("e", [1, 2], 5, sampling=Sampling(temperature=0.5), beams=BEAMS, log_probs=True),
    Request("f", [1, 2], 5, sampling=Sampling(bad_words=((5, 6), (7,)))),
]


@every_version
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.id)
def test_arguments_of_a_request_fit(version, request_) -> None:
    extensions = replace(WIDE, beams=request_.beams.width)
    arguments = sampling_arguments(
        request_, max_tokens=5, applies_penalties=True, to_tensor=lambda array: array, extensions=extensions
    )
    recorded.check_call("SamplingParams", arguments, version)
    kept = replace(request_, retention=Retention(decode_priority=50))
    more = Extensions(retention=lambda _: object()).generate_arguments(kept)
    assert list(more) == ["kv_cache_retention_config"]
    recorded.check_call("LLM.generate_async", generate_arguments(request_, object()) | more, version)


@every_version
def test_a_salt_goes_where_the_version_takes_it(version) -> None:
    request = Request("a", [1], 5, cache_salt="secret")
    with pytest.raises(RejectedError, match="cache_salt"):
        Extensions().generate_arguments(request)
    more = Extensions(cache_salt=True).generate_arguments(request)
    assert more == {"cache_salt": "secret"}
    if "cache_salt" in recorded.parameters("LLM.generate_async", version):
        recorded.check_call("LLM.generate_async", generate_arguments(request, object()) | more, version)
    else:
        assert version.startswith("1.0")


def cache_of(version: str) -> type[dict[str, Any]]:
    """The KvCacheConfig of a version."""

    class KvCacheConfig(dict[str, Any]):
        model_fields = recorded.parameters("KvCacheConfig", version)

    return KvCacheConfig


@every_version
def test_arguments_for_beams_fit(version) -> None:
    options = Options(max_seq_len=100, vocab_size=8, max_beam_width=4)
    known = recorded.parameters("TorchLlmArgs", version)
    sampler = choose_sampler(recorded.RELEASES[version], known, None)
    arguments = llm_arguments(options, Path("model"), sampler, cache_of(version))
    assert arguments["max_beam_width"] == 4
    assert ("cuda_graph_config" in arguments) == (version != "main")
    for name in set(arguments) - {"kv_cache_config", "model", "skip_tokenizer_init"}:
        assert recorded.fits(arguments[name], known[name]["type"]), name


@every_version
@pytest.mark.parametrize("sampler_type", [None, "TorchSampler"])
def test_llm_arguments_fit(version, sampler_type) -> None:
    options = Options(
        max_seq_len=100,
        vocab_size=8,
        guided_decoding_backend="xgrammar",
        extra={"kv_cache_config": {"enable_block_reuse": False}},
    )
    known = recorded.parameters("TorchLlmArgs", version)
    sampler = choose_sampler(recorded.RELEASES[version], known, sampler_type)
    arguments = llm_arguments(options, Path("model"), sampler, cache_of(version))
    assert arguments.pop("kv_cache_config") == {"free_gpu_memory_fraction": 0.9, "enable_block_reuse": False}
    assert arguments.keys() >= sampler.arguments.keys()
    assert bool(sampler.arguments) == (version != "main"), "penalties are applied"
    for name, value in arguments.items():
        assert recorded.fits(value, known[name]["type"]), name


@pytest.mark.parametrize(
    ("version", "name", "value"), [("1.0.0", "tokens_per_block", 64), ("main", "onboard_blocks", False)]
)
def test_what_a_version_does_not_have_is_refused(version, name, value) -> None:
    options = Options(max_seq_len=100, vocab_size=8, extra={"kv_cache_config": {name: value}})
    sampler = choose_sampler(recorded.RELEASES[version], recorded.parameters("TorchLlmArgs", version), None)
    with pytest.raises(RuntimeError, match=f"kv_cache_config of this TensorRT-LLM has no {name}"):
        llm_arguments(options, Path("model"), sampler, cache_of(version))
    cache = llm_arguments(options, Path("model"), sampler, cache_of("1.2.1"))["kv_cache_config"]
    recorded.check_call("KvCacheConfig", cache)


EVERY_ARGUMENT: dict[str, Any] = {
    "name": "all",
    "engine": "llmapi",
    "model": {"source": "/m"},
    "parallelism": {"tp": 4, "pp": 2, "moe_tp": 2, "moe_ep": 2},
    "limits": {"max_input_len": 10, "max_seq_len": 20, "max_num_tokens": 128},
    "scheduler": {"policy": "max_utilization", "chunked_context": True},
    "kv_cache": {"max_tokens": 64, "max_attention_window": [16, 32], "sink_tokens": 4, "host_memory_bytes": 1000,
                 "onboard_blocks": False, "dtype": "fp8"},
    "lora": {"prefetch_dir": "/l", "optimal_adapter_size": 4, "max_adapter_size": 32, "gpu_memory_fraction": 0.1,
             "host_memory_bytes": 1000},
    "guided_decoding": {"backend": "xgrammar"},
}  # fmt: skip


@every_version
def test_arguments_of_a_deployment_fit(version) -> None:
    deployment = DeploymentSettings.model_validate(EVERY_ARGUMENT)
    assert list(contradictions([deployment])) == []
    arguments = rendered_arguments(deployment)
    assert (arguments["moe_tensor_parallel_size"], arguments["moe_expert_parallel_size"]) == (2, 2)
    known = recorded.parameters("TorchLlmArgs", version)
    for name, value in arguments.items():
        assert recorded.fits(value, known[name]["type"]), name
    if version == "main":
        arguments["kv_cache_config"].pop("onboard_blocks")  # refused there by name
    for name, section in (
        ("KvCacheConfig", "kv_cache"),
        ("PeftCacheConfig", "peft_cache"),
        ("SchedulerConfig", "scheduler"),
    ):
        assert len(arguments[f"{section}_config"]) >= {"kv_cache": 5, "peft_cache": 4, "scheduler": 1}[section]
        recorded.check_call(name, arguments[f"{section}_config"], version)


@every_version
def test_what_is_read_exists(version) -> None:
    assert {"token_ids", "logprobs", "finish_reason", "generation_logits"} <= set(
        recorded.parameters("CompletionOutput", version)
    )
    assert "logprob" in recorded.parameters("Logprob", version)
    for method in ("abort", "finished", "outputs", "context_logits", "__anext__"):
        assert recorded.parameters(f"RequestOutput.{method}", version) == {}


def test_the_table_is_whole_and_names_its_sources() -> None:
    recorder = record_signatures
    wanted = recorder.DATA_CLASSES.keys() | recorder.METHODS.keys() | recorder.FIELDS.keys()
    missing = {version: wanted - entry["signatures"].keys() for version, entry in recorded.TABLE.items()}
    assert missing == {"1.0.0": set(), "1.2.1": set(), "main": {"LLM.shutdown"}}
    for version, entry in recorded.TABLE.items():
        assert re.search(r"gh-pages@[0-9a-f]{40}", entry["ref"]), version
        assert all(signature["source"] for signature in entry["signatures"].values()), version
