"""The headers of safetensors files: counted where they are right, refused by name where not."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_ops.engines.config_sizes import shaped_weights
from gateway_ops.engines.source_format import UnknownFormatError, source_bits
from gateway_ops.engines.weights import UnreadableWeightsError, read_header, stored_weights


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
