"""Estimates of memory, held against published figures with their sources, and headers of files that are counted."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.engines.config_sizes import shaped_weights, usual_names
from gateway_ops.engines.gpus import KNOWN
from gateway_ops.engines.memory import Estimate, estimate, shape_from, weight_bytes
from gateway_ops.engines.source_format import UnknownFormatError, source_bits
from gateway_ops.engines.weights import UnreadableWeightsError, read_header, stored_weights

GIB, MIB = 2**30, 2**20


def llama(hidden: int, layers: int, heads: int, kv: int, inner: int, vocab: int, **more: Any) -> dict[str, Any]:
    """The ``config.json`` of a model of Llama's form."""
    return {
        "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": inner, "vocab_size": vocab, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    } | more  # fmt: skip


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


DEEPSEEK: dict[str, Any] = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
EXPERTS: dict[str, dict[str, Any]] = {
    "DeepSeek-V3": llama(7168, 61, 128, 128, 18432, 129280, model_type="deepseek_v3", **DEEPSEEK)
    | {"q_lora_rank": 1536, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1}
    | {"first_k_dense_replace": 3, "num_experts_per_tok": 8},
    "DeepSeek-V2-Lite": llama(2048, 27, 16, 16, 10944, 102400, model_type="deepseek_v2", **DEEPSEEK)
    | {"q_lora_rank": None, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2}
    | {"first_k_dense_replace": 1, "num_experts_per_tok": 6},
    "gpt-oss-20b": llama(2880, 24, 64, 8, 2880, 201088, model_type="gpt_oss", head_dim=64)
    | {"num_local_experts": 32, "num_experts_per_tok": 4, "quantization_config": {"quant_method": "mxfp4"}},
    "Llama 4 Scout": llama(5120, 48, 40, 8, 8192, 202048, model_type="llama4_text")
    | {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384}
    | {"interleave_moe_layer_step": 1},
    "Llama 4 Maverick": llama(5120, 48, 40, 8, 8192, 202048, model_type="llama4_text")
    | {"num_local_experts": 128, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384}
    | {"interleave_moe_layer_step": 2},
    "Qwen3-30B-A3B": llama(2048, 48, 32, 4, 6144, 151936, model_type="qwen3_moe", head_dim=128)
    | {"num_experts": 128, "moe_intermediate_size": 768, "num_experts_per_tok": 8},
}
STARCODER: dict[str, Any] = {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576}
STARCODER |= {"n_positions": 8192, "vocab_size": 49152, "multi_query": True}
GLM: dict[str, Any] = {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32}
GLM |= {"multi_query_group_num": 2, "ffn_hidden_size": 13696, "kv_channels": 128, "padded_vocab_size": 151552}
GLM |= {"seq_length": 131072, "tie_word_embeddings": False}
ALL = {**MODELS, **EXPERTS, "StarCoder": STARCODER, "GLM-4-9B": GLM}


def estimated(config: dict[str, Any], quantization: str = "none", cache: str = "auto", **limits: int) -> Estimate:
    shape, weights = shape_from(config), shaped_weights(config)
    return estimate(deployment(quantization, cache, **limits), shape, weights)


def deployment(quantization: str = "none", cache: str = "auto", **limits: int) -> DeploymentSettings:
    return DeploymentSettings.model_validate(
        {
            "name": "one", "engine": "tensorrt", "engine_dir": "/engines/one",
            "model": {"source": "/models/one", "quantization": quantization},
            "kv_cache": {"dtype": cache, "reuse": False}, "limits": limits,
        },
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "published", "within"),
    [
        # metadata.total_size of model.safetensors.index.json in their makers' repositories on the Hugging Face Hub:
        # two bytes for each parameter.
        ("Llama 3 8B", 16_060_522_496 / 2, 0),
        ("Llama 3.1 70B", 141_107_412_992 / 2, 0),
        ("Qwen2.5 7B", 15_231_233_024 / 2, 0),
        ("Qwen2.5 72B", 145_412_407_296 / 2, 0),
        ("Mixtral 8x7B", 93_405_585_408 / 2, 0),
        # The models' cards on the Hugging Face Hub; Llama 4's without what sees.
        ("GPT-2 medium", 355e6, 0.01),
        ("DeepSeek-V3", 671e9, 0.01),
        ("DeepSeek-V2-Lite", 15.7e9, 0.01),
        ("gpt-oss-20b", 20.9e9, 0.01),
        ("Llama 4 Scout", 107.8e9, 0.01),
        ("Llama 4 Maverick", 400e9, 0.01),
        ("Qwen3-30B-A3B", 30.5e9, 0.01),
        ("StarCoder", 15.5e9, 0.01),
        ("GLM-4-9B", 9.4e9, 0.01),
    ],
)
def test_parameters_are_the_published_ones(model: str, published: float, within: float) -> None:
    assert shaped_weights(usual_names(ALL[model])).total == pytest.approx(published, rel=within, abs=0)


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
    found = estimated(MODELS[model], "fp8" if cache == "fp8" else "none", cache)
    assert found.kv_token * tokens == pytest.approx(published, rel=0.005)


def test_what_is_taken_before_the_cache_is_within_a_tenth() -> None:
    """TensorRT-LLM's log in memory.md, on an H100: 70.48 GiB are left; its buffers, whose batch it does not tell."""
    found = estimated(MODELS["Llama 2 7B"], "fp8", max_num_tokens=8192)
    assert found.activations == pytest.approx(1134.01 * MIB, rel=0.1)
    taken = found.weights + found.activations + found.context + (43.29 + 180.30) * MIB
    assert taken == pytest.approx(KNOWN["h100"].memory_bytes - 70.48 * GIB, rel=0.1)


def test_parallelism_shares_layers_and_repeats_the_input_table() -> None:
    weights = shaped_weights(MODELS["Llama 3.1 70B"])
    one = deployment("fp8")
    for tp, pp in ((8, 1), (4, 2)):
        shared = one.model_copy(update={"parallelism": one.parallelism.model_copy(update={"tp": tp, "pp": pp})})
        assert weight_bytes(weights, shared) > weights.linear / 8 + 2 * weights.embedding
    shape = shape_from(MODELS["Llama 3.1 70B"])
    sixteen = one.model_copy(update={"parallelism": one.parallelism.model_copy(update={"tp": 16})})
    eight = one.model_copy(update={"parallelism": one.parallelism.model_copy(update={"tp": 8})})
    # Eight heads of keys and values are repeated on sixteen GPUs.
    assert estimate(sixteen, shape, weights).kv_token == estimate(eight, shape, weights).kv_token


@pytest.mark.parametrize(
    ("model", "published"),
    [
        # "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1: 70.272 KB a token.
        ("DeepSeek-V3", 70_272),
        # DeepSeek-V2's report (arXiv 2405.04434), 2.1: (512 + 64) numbers for each of 27 layers.
        ("DeepSeek-V2-Lite", 2 * 576 * 27),
        # StarCoder's report (arXiv 2305.06161): multi-query attention, one head of 128.
        ("StarCoder", 2 * 2 * 128 * 40),
        ("GLM-4-9B", 2 * 2 * 2 * 128 * 40),
    ],
)
def test_the_cache_of_latent_and_shared_heads_is_small(model: str, published: int) -> None:
    config = usual_names(ALL[model])
    assert estimated(config).kv_token == published
    eight = deployment().model_copy(update={"parallelism": deployment().parallelism.model_copy(update={"tp": 8})})
    shape, weights = shape_from(config), shaped_weights(config)
    least = {"DeepSeek-V3": 70_272, "DeepSeek-V2-Lite": 2 * 576 * 27}.get(model, 2 * 2 * 128 * 40)
    assert estimate(eight, shape, weights).kv_token == least  # each GPU has the latent, or one head


@pytest.mark.parametrize(
    ("config", "quantization", "published"),
    [
        # metadata.total_size of the Hub's index of deepseek-ai/DeepSeek-V3 is 688.6 GB, with 14 GB to guess ahead.
        (EXPERTS["DeepSeek-V3"], {"quant_method": "fp8", "weight_block_size": [128, 128]}, 674e9),
        # The card of gpt-oss (arXiv 2508.10925), table 1: a checkpoint of 12.8 GiB.
        (EXPERTS["gpt-oss-20b"], {"quant_method": "mxfp4"}, 12.8 * GIB),
        # tinygrad's pull request 12893: "ram used: 9.08 GB", with tables in 16 bits.
        (MODELS["Llama 3 8B"], {"quant_method": "fp8"}, 9.08e9),
        # By hand: matrices of 6.98 billion, with a scale of 16 bits for each 128; two tables.
        (MODELS["Llama 3 8B"], {"quant_method": "awq", "bits": 4, "group_size": 128}, 6.98e9 * 4.125 / 8 + 2.1e9),
        # By hand: matrices of 68.45 billion; two tables.
        (MODELS["Llama 3.1 70B"], {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 68.45e9 + 4.2e9),
    ],
)
def test_a_source_that_is_quantised_has_the_size_of_its_files(
    config: dict[str, Any], quantization: dict[str, Any], published: float
) -> None:
    weights = shaped_weights(config, source_bits(quantization))
    assert weights.stored_bytes == pytest.approx(published, rel=0.03)
    assert weight_bytes(weights, deployment()) == weights.stored_bytes


def test_windows_that_come_in_turn_are_counted_by_layer() -> None:
    """Gemma 3 27B: five layers of six attend to 1024 tokens."""
    config = llama(5376, 62, 32, 16, 21504, 262208, model_type="gemma3_text", head_dim=128, tie_word_embeddings=True)
    one = deployment(max_seq_len=32768)
    windows = {"max_attention_window": (1024, 1024, 1024, 1024, 1024, 32768)}
    turns = one.model_copy(update={"kv_cache": one.kv_cache.model_copy(update=windows)})
    shape, weights = shape_from(config), shaped_weights(config)
    by_hand = 2 * 16 * 128 * 2 * (52 * 1024 + 10 * 32768)
    assert estimate(turns, shape, weights).kv_sequence == pytest.approx(by_hand, rel=0.001)
    assert estimate(one, shape, weights).kv_sequence == 2 * 16 * 128 * 2 * 62 * 32768


def test_the_llm_api_has_a_tied_table_once() -> None:
    config = llama(2048, 16, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True)  # Llama 3.2 1B: 2.47 GB
    weights = shaped_weights(config)
    llmapi = deployment().model_copy(update={"engine": "llmapi"})
    assert weight_bytes(weights, llmapi) == pytest.approx(2.47e9, rel=0.01)
    assert weight_bytes(weights, deployment()) == pytest.approx(2.47e9 + 2 * 128256 * 2048, rel=0.01)


def write(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> None:
    """Write a file of tensors: dtype, shape and bytes of each; their content is a hole."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + place)


def test_tensors_are_counted_by_their_part(tmp_path: Path) -> None:
    write(tmp_path / "model-1.safetensors", {"model.embed_tokens.weight": ("BF16", [100, 8], 1600)})
    layer = {"model.layers.0.mlp.up_proj.weight": ("BF16", [16, 8], 256), "model.norm.weight": ("BF16", [8], 16)}
    write(tmp_path / "model-2.safetensors", {**layer, "lm_head.weight": ("BF16", [100, 8], 1600)})
    found = stored_weights(tmp_path)
    assert (found.linear, found.embedding, found.head, found.rest) == (128, 800, 800, 8)
    assert (found.stored_bytes, found.quantised) == (3472, False)


def test_matrices_that_are_packed_into_whole_numbers_are_quantised(tmp_path: Path) -> None:
    """AWQ's form: eight weights of four bits in a number of 32."""
    layer = {"model.layers.0.mlp.up_proj.qweight": ("I32", [4096, 1792], 4096 * 1792 * 4)}
    layer["model.layers.0.mlp.up_proj.scales"] = ("F16", [32, 14336], 32 * 14336 * 2)
    write(tmp_path / "model.safetensors", layer)
    found = stored_weights(tmp_path)
    assert found.quantised
    assert found.stored_bytes == 4096 * 14336 // 2 + 32 * 14336 * 2


def test_a_second_copy_in_its_makers_own_form_is_not_counted(tmp_path: Path) -> None:
    tensor = {"model.layers.0.mlp.up_proj.weight": ("BF16", [16, 8], 256)}
    for name in ("model-00001-of-00001", "consolidated"):
        write(tmp_path / f"{name}.safetensors", tensor)
    assert getattr(stored_weights(tmp_path), "linear", None) == 128
    index = {"weight_map": dict.fromkeys(tensor, "model-00001-of-00001.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    write(tmp_path / "adapter.safetensors", tensor)
    assert getattr(stored_weights(tmp_path), "linear", None) == 128


INDEX = {"weight_map": {name: f"model-{name}.safetensors" for name in "123"}}


@pytest.mark.parametrize(
    ("index", "cut", "said"),
    [
        (json.dumps(INDEX), 0, "lacks model-2.safetensors and 1 more: the download is incomplete"),
        (None, 6, "ends after 10 of 16 bytes: the download is incomplete"),
        *((text, 0, "is not an index of safetensors files") for text in ("", "[]", '{"weight_map": []}', "[" * 10**5)),
    ],
    ids=["a file is missing", "half of a file", "empty", "a list", "of a list", "levels without end"],
)
def test_what_is_no_whole_model_is_named(tmp_path: Path, index: str | None, cut: int, said: str) -> None:
    file = tmp_path / "model-1.safetensors"
    write(file, {"model.norm.weight": ("BF16", [8], 16)})
    file.write_bytes(file.read_bytes()[: file.stat().st_size - cut])
    if index is not None:
        (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UnreadableWeightsError, match=said):
        stored_weights(tmp_path)


@pytest.mark.parametrize(
    ("said", "bits"),
    [
        ({}, None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}, 8.0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.5),
    ],
)
def test_the_form_of_a_source_is_read(said: dict[str, Any], bits: float | None) -> None:
    assert source_bits(said) == bits


@pytest.mark.parametrize(
    "said",
    [
        {"quant_method": "voodoo"},
        {"quant_algo": "MIXED_PRECISION"},
        {"quant_method": ["fp8"]},
        {"quant_method": "awq", "bits": "four"},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": None}},
        {"other": 1},
    ],
)
def test_a_form_that_is_not_known_is_not_guessed(said: dict[str, Any]) -> None:
    with pytest.raises(UnknownFormatError, match="how the model is quantised is unknown"):
        source_bits(said)


VALUES = st.integers(-1, 2**70) | st.text(max_size=3) | st.none() | st.lists(st.integers(-1, 9), max_size=3)
ENTRIES = st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "other"]), VALUES)
HEADERS = st.dictionaries(st.text(max_size=3), ENTRIES | VALUES, min_size=1).map(json.dumps).map(str.encode)


@given(header=HEADERS | st.binary(max_size=64), length=st.integers(0, 2**64 - 1) | st.none())
def test_any_other_file_is_refused_or_counted(
    header: bytes, length: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header)
    with contextlib.suppress(UnreadableWeightsError):
        found = read_header(path)
        assert all(tensor["data_offsets"][1] <= path.stat().st_size for tensor in found.values())


@given(
    config=st.dictionaries(
        st.sampled_from(["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]),
        st.integers(-2, 3) | st.text(max_size=2) | st.none() | st.booleans() | st.lists(st.integers(), max_size=1),
    )
)
def test_odd_configurations_are_unknown_and_end_nothing(config: dict[str, Any]) -> None:
    found = shaped_weights(config)
    assert found is None or found.total > 0
