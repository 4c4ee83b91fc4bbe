"""Every word that is printed or run is one that the tool of that version takes, by the recorded tables."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.build_steps import build_steps
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.converters import CONVERTERS, HEADS
from gateway_ops.repository.tool_flags import TABLES, rejected_words, table_of

ENGINE_VERSIONS = ("0.19.0", "0.20.0", "0.21.0", "1.0.0", "1.1.0", "1.2.1")
BASE: dict[str, Any] = {
    "name": "one", "engine": "tensorrt", "engine_dir": "/engines/one",
    "model": {"source": "/models/one", "family": "llama", "dtype": "float16"},
}  # fmt: skip


def words(changes: dict[str, Any], version: str) -> list[str]:
    """Words that are refused, of all commands of a deployment without contradictions."""
    merged = {**BASE, "trtllm": version, **changes}
    merged["model"] = (BASE["model"] if merged["engine"] == "tensorrt" else {}) | changes.get("model", {})
    deployment = DeploymentSettings.model_validate(merged)
    assert list(contradictions([deployment])) == []
    steps = build_steps(deployment, "/models/checkpoint", "/models/original")
    assert any(step.tool for step in steps)
    return [why for step in steps if step.tool for why in rejected_words(step.tool, version, step.options)]


# The flows of upstream's README and of the tutorials that follow it, and every section that becomes a flag.
FLOWS: dict[str, dict[str, Any]] = {
    "GPT-2 on four GPUs": {"model": {"family": "gpt"}, "parallelism": {"tp": 4}},
    "Llama 3 8B, AWQ and INT8 cache": {"model": {"quantization": "int4_awq", "dtype": "bfloat16"},
                                       "kv_cache": {"dtype": "int8", "reuse": False},
                                       "build": {"awq_block_size": 128, "gemm_plugin": "bfloat16",
                                                 "attention_plugin": "bfloat16"}},
    "Medusa": {"model": {"source": "lmsys/vicuna-7b-v1.3", "folder": "/models/vicuna"},
               "speculative": {"method": "medusa", "heads": "/models/heads", "num_heads": 4, "max_draft_tokens": 63}},
    "EAGLE": {"speculative": {"method": "eagle", "heads": "/models/heads", "max_draft_tokens": 63}},
    "lookahead": {"speculative": {"method": "lookahead", "window_size": 7, "ngram_size": 7,
                                  "verification_set_size": 7}},
    "LoRA": {"lora": {"max_rank": 16, "prefetch_dir": "/lora", "adapters": {1: "/adapters/sql"}}},
    "two machines": {"parallelism": {"tp": 8, "pp": 2, "nodes": 2}},
    "everything else": {"limits": {"max_batch_size": 4, "max_input_len": 100, "max_seq_len": 200,
                                   "max_num_tokens": 400}, "logits": {"generation": True, "datatype": "FP16"},
                        "build": {"max_prompt_table_size": 10, "weight_streaming": True, "paged_context_fmha": False},
                        "kv_cache": {"tokens_per_block": 64, "reuse": False},
                        "guided_decoding": {"tokenizer_info": "/engines/info.json"}},
}  # fmt: skip


@pytest.mark.parametrize("version", ENGINE_VERSIONS)
@pytest.mark.parametrize("flow", FLOWS)
def test_each_word_of_the_usual_flows_is_taken(flow: str, version: str) -> None:
    assert words(FLOWS[flow], version) == []


@pytest.mark.parametrize("version", ENGINE_VERSIONS)
@pytest.mark.parametrize("family", CONVERTERS)
def test_each_familys_converter_takes_what_it_is_told(family: str, version: str) -> None:
    converter = CONVERTERS[family]
    model: dict[str, Any] = {"family": family, "quantization": "int8_wo" if converter.weight_only else "none"}
    changes: dict[str, Any] = {"model": model, "parallelism": {"tp": 2, "pp": 2 if converter.stages else 1}}
    for kind in ("auto", *converter.kv_dtypes):
        assert words(changes | {"kv_cache": {"dtype": kind, "reuse": kind == "auto"}}, version) == []


@pytest.mark.parametrize("quantization", ["fp8", "int8_sq", "int4_awq", "w4a8_awq", "nvfp4"])
def test_quantize_takes_each_of_its_formats(quantization: str) -> None:
    assert words({"model": {"quantization": quantization}}, "1.2.1") == []


@pytest.mark.parametrize("version", ["1.0.0", "1.2.1", "1.3.0", "1.4.2"])
@pytest.mark.parametrize("quantization", ["fp8", "int4_awq", "nvfp4"])
def test_the_llm_apis_checkpoint_is_prepared_in_every_version(quantization: str, version: str) -> None:
    model = {"source": "a/model", "folder": "/models/prepared", "quantization": quantization, "dtype": "auto"}
    assert words({"engine": "llmapi", "engine_dir": None, "model": model}, version) == []


def test_what_a_version_does_not_take_is_named() -> None:
    old = ("--checkpoint_dir", "/c", "--use_inflight_batching", "--paged_kv_cache", "enable")  # of 0.6
    (said,) = rejected_words("trtllm-build", "1.2.1", old)
    assert said == "trtllm-build of TensorRT-LLM 1.2.1 has no --use_inflight_batching"
    assert rejected_words("trtllm-build", "1.1.0", ("--auto_parallel", "8")) == []
    assert rejected_words("trtllm-build", "1.2.0", ("--auto_parallel", "8")) != []
    for version, words, why in (
        ("1.2.0", ("--gemm_plugin", "fp4"), "--gemm_plugin of trtllm-build does not take 'fp4'"),
        ("1.2.0", ("--max_seq_len",), "--max_seq_len of trtllm-build takes 1 words, not 0"),
        ("1.3.0", (), "TensorRT-LLM 1.3.0 has no trtllm-build that this gateway knows"),
    ):
        assert rejected_words("trtllm-build", version, words) == [why]


def test_each_table_names_its_source_and_what_was_read() -> None:
    for table in TABLES:
        assert re.search(r"[0-9a-f]{12}|without a known commit|huggingface_hub", table.source), table.tool
        assert table.read
    for folder in (*(f"models/core/{family}" for family in CONVERTERS), *HEADS):
        assert table_of(f"{folder}/convert_checkpoint.py", "1.2.1") is not None
