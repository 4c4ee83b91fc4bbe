"""The headers of safetensors files: counted where they are right, refused by name where not."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_ops.engines.weights import UnreadableWeightsError, read_header, shaped_weights, stored_weights


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
    assert found is not None
    assert (found.linear, found.embedding, found.head, found.rest) == (128, 800, 800, 8)
    assert (found.stored_bytes, found.quantised) == (3472, False)


def test_a_quantised_source_is_told_by_its_types(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", {"model.layers.0.mlp.up_proj.weight": ("F8_E4M3", [16, 8], 128)})
    found = stored_weights(tmp_path)
    assert found is not None
    assert found.quantised


def test_half_of_a_download_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write(file, {"model.norm.weight": ("BF16", [8], 16)})
    file.write_bytes(file.read_bytes()[:-6])
    with pytest.raises(UnreadableWeightsError, match="ends after 10 of 16 bytes: it was not downloaded whole"):
        stored_weights(tmp_path)


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
