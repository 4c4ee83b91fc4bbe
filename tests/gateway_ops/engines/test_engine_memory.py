"""Estimates of memory, held against published figures of well-known models, each with its source."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.config.deployment_settings import DeploymentSettings
from gateway_ops.engines.gpus import KNOWN
from gateway_ops.engines.memory import estimate, shape_from, weight_bytes
from gateway_ops.engines.weights import shaped_weights

GIB, MIB = 2**30, 2**20


def llama(hidden: int, layers: int, heads: int, kv: int, inner: int, vocab: int, **more: Any) -> dict[str, Any]:
    """The ``config.json`` of a model of Llama's form."""
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    } | more


MODELS: dict[str, dict[str, Any]] = {
    "Llama 2 7B": llama(4096, 32, 32, 32, 11008, 32000),
    "Llama 3 8B": llama(4096, 32, 32, 8, 14336, 128256),
    "Llama 3.1 70B": llama(8192, 80, 64, 8, 28672, 128256),
    "Qwen2.5 7B": llama(3584, 28, 28, 4, 18944, 152064, model_type="qwen2"),
    "Qwen2.5 72B": llama(8192, 80, 64, 8, 29568, 152064, model_type="qwen2"),
    "Mixtral 8x7B": llama(4096, 32, 32, 8, 14336, 32000, model_type="mixtral", num_local_experts=8),
    "Command R 35B": llama(8192, 40, 64, 64, 22528, 256000, model_type="cohere", tie_word_embeddings=True),
    "GPT-2 medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 1024, "vocab_size": 50257},
}


def deployment(quantization: str = "none", cache: str = "auto", **limits: int) -> DeploymentSettings:
    return DeploymentSettings.model_validate(
        {
            "name": "one",
            "engine": "tensorrt",
            "engine_dir": "/engines/one",
            "model": {"source": "/models/one", "quantization": quantization},
            "kv_cache": {"dtype": cache, "reuse": False},
            "limits": limits,
        }
    )


@pytest.mark.parametrize(
    ("model", "published"),
    [
        # metadata.total_size of model.safetensors.index.json in their makers' repositories on the Hugging Face Hub.
        ("Llama 3 8B", 16_060_522_496),
        ("Llama 3.1 70B", 141_107_412_992),
        ("Qwen2.5 7B", 15_231_233_024),
        ("Qwen2.5 72B", 145_412_407_296),
        ("Mixtral 8x7B", 93_405_585_408),
    ],
)
def test_weights_in_16_bits_are_those_of_the_files_to_the_byte(model: str, published: int) -> None:
    weights = shaped_weights(MODELS[model])
    assert weights is not None
    assert 2 * weights.total == published


def test_gpt2_medium_has_the_parameters_of_its_card() -> None:
    weights = shaped_weights(MODELS["GPT-2 medium"])
    assert weights is not None
    assert weights.total == pytest.approx(355e6, rel=0.01)  # openai-community/gpt2-medium: 355M


@pytest.mark.parametrize(
    ("model", "quantization", "published"),
    [
        # TensorRT-LLM, docs/source/reference/memory.md: "Loaded engine size", Llama 2 7B by its cache's size.
        ("Llama 2 7B", "fp8", 6695 * MIB),
        # TensorRT-LLM 0.12, benchmarks/Suite.md: "Loaded engine size" of meta-llama/Llama-2-7b-hf.
        ("Llama 2 7B", "fp8", 6214 * MIB),
        # "Running Llama 3 with Triton and TensorRT-LLM": rank0.safetensors of quantize.py, by du.
        ("Llama 3 8B", "int4_awq", 5.5 * GIB),
        # The card of JongYeop/Llama-3.1-8B-Instruct-FP8-W8A8-Dynamic-Per-Token, whose head has 16 bits: about 8.5 GB.
        ("Llama 3 8B", "fp8", 8.5e9),
    ],
)
def test_quantised_weights_are_within_a_tenth(model: str, quantization: str, published: float) -> None:
    weights = shaped_weights(MODELS[model])
    assert weights is not None
    assert weight_bytes(weights, deployment(quantization)) == pytest.approx(published, rel=0.1)


@pytest.mark.parametrize(
    ("model", "cache", "tokens", "published"),
    [
        # Hugging Face, "Llama 3.1 - 405B, 70B & 8B": the cache in 16 bits, of tokens in thousands.
        ("Llama 3 8B", "auto", 16_000, 1.95 * GIB),
        ("Llama 3 8B", "auto", 128_000, 15.62 * GIB),
        ("Llama 3.1 70B", "auto", 16_000, 4.88 * GIB),
        ("Llama 3.1 70B", "auto", 128_000, 39.06 * GIB),
        # TensorRT-LLM, docs/source/reference/memory.md: "Allocated ... for max tokens in paged KV cache".
        ("Llama 2 7B", "fp8", 259_840, 63.44 * GIB),
        # A table of llama.cpp's caches of 2048 tokens (c4ai-command-r-v01-iMat.GGUF on the Hub, discussion 6).
        ("Mixtral 8x7B", "auto", 2048, 256 * MIB),
        ("Command R 35B", "auto", 2048, 2560 * MIB),
    ],
)
def test_the_cache_is_the_published_one(model: str, cache: str, tokens: int, published: float) -> None:
    shape, weights = shape_from(MODELS[model]), shaped_weights(MODELS[model])
    assert shape is not None
    assert weights is not None
    found = estimate(deployment("fp8" if cache == "fp8" else "none", cache), shape, weights)
    assert found.kv_token * tokens == pytest.approx(published, rel=0.005)


def test_what_is_taken_before_the_cache_is_within_a_tenth() -> None:
    """TensorRT-LLM's log in memory.md, on an H100: 70.48 GiB are left; its buffers, whose batch it does not tell."""
    shape, weights = shape_from(MODELS["Llama 2 7B"]), shaped_weights(MODELS["Llama 2 7B"])
    assert shape is not None
    assert weights is not None
    found = estimate(deployment("fp8", max_num_tokens=8192), shape, weights)
    assert found.activations == pytest.approx(1134.01 * MIB, rel=0.1)
    taken = found.weights + found.activations + found.context + (43.29 + 180.30) * MIB
    assert taken == pytest.approx(KNOWN["h100"].memory_bytes - 70.48 * GIB, rel=0.1)


def test_parallelism_shares_layers_and_repeats_the_input_table() -> None:
    weights = shaped_weights(MODELS["Llama 3.1 70B"])
    assert weights is not None
    one = deployment("fp8")
    for tp, pp in ((8, 1), (4, 2)):
        shared = one.model_copy(update={"parallelism": one.parallelism.model_copy(update={"tp": tp, "pp": pp})})
        assert weight_bytes(weights, shared) > weights.linear / 8 + 2 * weights.embedding
    shape = shape_from(MODELS["Llama 3.1 70B"])
    assert shape is not None
    sixteen = one.model_copy(update={"parallelism": one.parallelism.model_copy(update={"tp": 16})})
    eight = one.model_copy(update={"parallelism": one.parallelism.model_copy(update={"tp": 8})})
    # Eight heads of keys and values are repeated on sixteen GPUs.
    assert estimate(sixteen, shape, weights).kv_token == estimate(eight, shape, weights).kv_token
