"""Every name that the engine passes to TensorRT-LLM exists there, with the type it has there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record_signatures
import recorded
from llmapi.engine import generate_arguments
from llmapi.options import Options, choose_sampler, llm_arguments
from llmapi.sampling import sampling_arguments
from reference.request import Request, Sampling

from gateway.config.deployment import DeploymentSettings
from gateway.repository.contradictions import contradictions
from gateway.repository.engine_parameters import llm_arguments as rendered_arguments


def versions_of(name: str) -> list[str]:
    return [version for version, entry in recorded.TABLE.items() if name in entry["signatures"]]


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
REQUESTS = [
    Request("a", [1, 2], 5, end_id=2, sampling=EVERYTHING, stop_words=((3,), (4, 5)), log_probs=True, top_log_probs=5),
    Request("b", [1, 2], 5),
    Request("c", [1, 2], 5, end_id=2, sampling=Sampling(top_p=0.5), streaming=True, log_probs=True),
]


@pytest.mark.parametrize("version", versions_of("SamplingParams"))
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.id)
def test_sampling_arguments_fit(version: str, request_: Request) -> None:
    arguments = sampling_arguments(request_, max_tokens=5, applies_penalties=True, to_tensor=lambda array: array)
    recorded.check_call("SamplingParams", arguments, version)


@pytest.mark.parametrize("version", versions_of("LLM.generate_async"))
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.id)
def test_generate_arguments_fit(version: str, request_: Request) -> None:
    recorded.check_call("LLM.generate_async", generate_arguments(request_, object()), version)


@pytest.mark.parametrize("sampler_type", [None, "TorchSampler"])
def test_llm_arguments_fit(sampler_type: str | None) -> None:
    def cache(**arguments: Any) -> dict[str, Any]:
        recorded.check_call("KvCacheConfig", arguments)
        return arguments

    options = Options(max_seq_len=100, vocab_size=8, extra={"kv_cache_config": {"enable_block_reuse": False}})
    sampler = choose_sampler("1.2.1", recorded.parameters("TorchLlmArgs"), sampler_type)
    arguments = llm_arguments(options, Path("model"), sampler, cache)  # type: ignore[arg-type]
    assert arguments.pop("kv_cache_config") == {"free_gpu_memory_fraction": 0.9, "enable_block_reuse": False}
    assert arguments["sampler_type"] == sampler_type or arguments["sampler_type"] == "TRTLLMSampler"
    known = recorded.parameters("TorchLlmArgs")
    for name, value in arguments.items():
        assert recorded.fits(value, known[name]["type"]), name


EVERY_ARGUMENT: dict[str, Any] = {
    "name": "all",
    "engine": "llmapi",
    "model": {"source": "/m"},
    "parallelism": {"tp": 4, "pp": 2, "moe_tp": 2, "moe_ep": 2},
    "limits": {"max_input_len": 10, "max_seq_len": 20, "max_num_tokens": 128},
    "scheduler": {"policy": "max_utilization", "chunked_context": True},
    "kv_cache": {
        "max_tokens": 64,
        "max_attention_window": [16, 32],
        "sink_tokens": 4,
        "host_memory_bytes": 1000,
        "onboard_blocks": False,
        "dtype": "fp8",
    },
    "lora": {
        "prefetch_dir": "/l",
        "optimal_adapter_size": 4,
        "max_adapter_size": 32,
        "gpu_memory_fraction": 0.1,
        "host_memory_bytes": 1000,
    },
    "guided_decoding": {"backend": "xgrammar"},
}


def test_arguments_of_a_deployment_fit() -> None:
    deployment = DeploymentSettings.model_validate(EVERY_ARGUMENT)
    assert list(contradictions([deployment])) == []
    arguments = rendered_arguments(deployment)
    assert (arguments["moe_tensor_parallel_size"], arguments["moe_expert_parallel_size"]) == (2, 2)
    known = recorded.parameters("TorchLlmArgs")
    for name, value in arguments.items():
        assert recorded.fits(value, known[name]["type"]), name
    for name, section in (
        ("KvCacheConfig", "kv_cache"),
        ("PeftCacheConfig", "peft_cache"),
        ("SchedulerConfig", "scheduler"),
    ):
        assert len(arguments[f"{section}_config"]) == {"kv_cache": 6, "peft_cache": 4, "scheduler": 1}[section]
        recorded.check_call(name, arguments[f"{section}_config"])


def test_what_is_read_exists() -> None:
    assert {"token_ids", "logprobs", "finish_reason"} <= set(recorded.parameters("CompletionOutput"))
    assert "logprob" in recorded.parameters("Logprob")
    for method in ("LLM.shutdown", "RequestOutput.abort", "RequestOutput.finished", "RequestOutput.outputs"):
        assert recorded.parameters(method) == {}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("SamplingParams", {"max_new_tokens": 3}),
        ("SamplingParams", {"max_tokens": "3"}),
        ("SamplingParams", {"bad_token_ids": [[3]]}),
        ("SamplingParams", {"detokenize": None}),
        ("LLM.generate_async", {"sampling_params": None}),
    ],
)
def test_check_notices(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(recorded.SignatureError):
        recorded.check_call(name, arguments)


def test_recorder_reads_sources() -> None:
    source = (
        "class Base:\n a: int = Field(default=1)\n b: list = Field(default_factory=list)\n"
        "class Derived(Base):\n a: str = 'x'\n _c: int = 2\n d: float\n"
        " def f(self, p, q: int = 3, *, r: bool = True, **rest): ...\n"
    )
    classes = record_signatures.classes_of(source)
    assert record_signatures.field_parameters([classes["Derived"], classes["Base"]]) == {
        "a": {"type": "str", "default": "'x'"},
        "b": {"type": "list", "default": "list()"},
        "d": {"type": "float"},
    }
    method = next(item for item in classes["Derived"].body if isinstance(item, ast.FunctionDef))
    assert record_signatures.signature(method.args) == {
        "p": {},
        "q": {"type": "int", "default": "3"},
        "r": {"type": "bool", "default": "True"},
        "**rest": {},
    }
