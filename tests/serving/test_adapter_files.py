"""Adapters and prompt tables as they come in files, and as they travel."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from gateway.generation.request import LoraAdapter, Matrix
from gateway.serving.adapter_files import MODULES, AdapterFileError, read_adapter, read_prompt_table, read_size
from tests.tiny_model import write_tiny_model

make_adapter = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "lora" / "make_adapter.py"))["make_adapter"]
KEY = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path / "model")
    make_adapter(tmp_path / "model", tmp_path / "adapter", seed=1)
    return tmp_path / "adapter"


def change(folder: Path, **values: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def arrays(adapter: LoraAdapter) -> tuple[NDArray[np.float16], NDArray[np.int32]]:
    assert adapter.weights is not None
    assert adapter.config is not None
    weights = np.frombuffer(adapter.weights.values, "<f2").reshape(adapter.weights.shape)
    return weights, np.frombuffer(adapter.config.values, "<i4").reshape(adapter.config.shape)


@pytest.mark.parametrize(("rslora", "scale"), [(False, 8 / 4), (True, 8 / 2)])
def test_a_peft_folder_becomes_rows_of_a_and_scaled_b(folder: Path, rslora: bool, scale: float) -> None:
    change(folder, use_rslora=rslora)
    weights, config = arrays(read_adapter(folder, 5))
    assert config.tolist() == [[module, layer, 4] for layer in range(2) for module in range(1, 8)]
    tensors = load_file(folder / "adapter_model.safetensors")
    for row, (module, layer, rank) in zip(weights, config, strict=True):
        name = next(name for name, number in MODULES.items() if number == module)
        part = "self_attn" if module < 5 else "mlp"
        key = f"base_model.model.model.layers.{layer}.{part}.{name}.lora_"
        a, b = tensors[f"{key}A.weight"], tensors[f"{key}B.weight"] * scale
        expected = np.concatenate([a.ravel(), b.ravel()]).astype(np.float16)
        np.testing.assert_array_equal(row[: len(expected)], expected)
        assert not row[len(expected) :].any()
        assert a.shape[0] == rank


def test_bfloat16_is_read(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    floats = load_file(path)
    rounded = {name: (value.view(np.uint32) >> 16 << 16).view(np.float32) for name, value in floats.items()}
    save_file(rounded, path)
    expected = arrays(read_adapter(folder, 5))[0]
    header: dict[str, Any] = {}
    data = b""
    for name, value in rounded.items():
        raw = (value.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    np.testing.assert_array_equal(arrays(read_adapter(folder, 5))[0], expected)


@pytest.mark.parametrize("batch", [True, False])
def test_the_npy_pair_is_taken_as_it_is(tmp_path: Path, batch: bool) -> None:
    weights, config = np.arange(6, dtype=np.float16).reshape(2, 3), np.array([[1, 0, 1], [2, 0, 1]], np.int32)
    np.save(tmp_path / "model.lora_weights.npy", weights[None] if batch else weights)
    np.save(tmp_path / "model.lora_config.npy", config[None] if batch else config)
    adapter = read_adapter(tmp_path, 2**64 - 1)
    assert adapter.task_id == 2**64 - 1
    np.testing.assert_array_equal(arrays(adapter)[0], weights)
    np.testing.assert_array_equal(arrays(adapter)[1], config)
    assert adapter.by_id() == LoraAdapter(2**64 - 1)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"bias": "all"}, "bias"),
        ({"lora_alpha": None}, "lora_alpha"),
    ],
)
def test_what_cannot_travel_is_named(folder: Path, values: dict[str, Any], named: str) -> None:
    change(folder, **values)
    with pytest.raises(AdapterFileError, match=named):
        read_adapter(folder, 1)


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ({"base_model.model.lm_head.lora_A.weight": (2, 3)}, "lm_head"),
        ({f"{KEY}.lora_A.weight": (2, 3)}, "no matching pair"),
        ({f"{KEY}.lora_A.weight": (2, 3), f"{KEY}.lora_B.weight": (3, 1)}, "no matching pair"),
        ({}, "empty"),
    ],
)
def test_weights_that_are_no_adapter_are_named(folder: Path, tensors: dict[str, tuple[int, ...]], named: str) -> None:
    weights = {name: np.zeros(shape, np.float32) for name, shape in tensors.items()}
    save_file(weights, folder / "adapter_model.safetensors")
    with pytest.raises(AdapterFileError, match=named):
        read_adapter(folder, 1)


def test_values_beyond_float16_are_named(folder: Path) -> None:
    change(folder, lora_alpha=10**9)
    with pytest.raises(AdapterFileError, match="float16"):
        read_adapter(folder, 1)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterFileError, match=r"adapter_config\.json"):
        read_adapter(tmp_path, 1)
    with pytest.raises(AdapterFileError, match=r"table\.npy"):
        read_prompt_table(tmp_path / "table.npy")
    (tmp_path / "adapter_config.json").write_text('{"lora_alpha": 8}')
    (tmp_path / "adapter_model.safetensors").write_bytes(b"short")
    with pytest.raises(AdapterFileError, match=r"adapter_model\.safetensors"):
        read_adapter(tmp_path, 1)


def cut(folder: Path, *, layer: int = 0) -> None:
    """Make the adapter one of a model that is half as wide, or has more layers."""
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors = {key.replace("layers.1.", f"layers.{1 + layer}."): value for key, value in tensors.items()}
    if not layer:
        halves = {key: value[:, ::2] if "lora_A" in key else value[::2] for key, value in tensors.items()}
        tensors = {key: np.ascontiguousarray(value) for key, value in halves.items()}
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (0, r"another model: its q_proj of layer 0 has the shape 32 -> 32, but .*config\.json requires 64 -> 64"),
        (1, "changes layer 2"),
    ],
)
def test_an_adapter_of_another_model_is_named(folder: Path, layer: int, named: str) -> None:
    size = read_size(folder.parent / "model")
    assert read_adapter(folder, 1, size) == read_adapter(folder, 1)
    cut(folder, layer=layer)
    with pytest.raises(AdapterFileError, match=named):
        read_adapter(folder, 1, size)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_packed_adapter_of_another_model_is_named(folder: Path, more: int) -> None:
    weights, config = arrays(read_adapter(folder, 1))
    size, packed = read_size(folder.parent / "model"), folder.parent / "packed"
    packed.mkdir()
    np.save(packed / "model.lora_config.npy", config[None])
    np.save(packed / "model.lora_weights.npy", np.pad(weights, ((0, 0), (0, 3)))[None])
    assert read_adapter(packed, 1, size).config == read_adapter(folder, 1).config
    wrong = weights[:, :more] if more < 0 else np.pad(weights, ((0, 0), (0, 1)), constant_values=1)
    np.save(packed / "model.lora_weights.npy", wrong[None])
    with pytest.raises(AdapterFileError, match=r"another model: its row for .* values for rank 4 by"):
        read_adapter(packed, 1, size)


def test_a_prompt_table_of_another_model_is_named(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.zeros((2, 65), np.float32))
    with pytest.raises(AdapterFileError, match=r"rows of 65 values, but embeddings have 64 values by"):
        read_prompt_table(tmp_path / "table.npy", read_size(folder.parent / "model"))


@pytest.mark.parametrize(
    "config", [None, "{", '{"model_type": "deepseek_v3", "hidden_size": 64}', '{"model_type": "llama"}', "[]"]
)
def test_a_model_that_does_not_say_its_size_refuses_nothing(folder: Path, config: str | None) -> None:
    path = folder.parent / "model" / "config.json"
    path.unlink() if config is None else path.write_text(config)
    assert read_size(path.parent) is None


def test_a_prompt_table(tmp_path: Path) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.save(tmp_path / "table.npy", rows)
    table = read_prompt_table(tmp_path / "table.npy")
    assert (table.length, table.embeddings) == (2, Matrix(rows.astype("<f2").tobytes(), 2, 4))
    assert table.extra_id == read_prompt_table(tmp_path / "table.npy").extra_id
    np.save(tmp_path / "table.npy", -rows)
    assert table.extra_id != read_prompt_table(tmp_path / "table.npy").extra_id
    np.save(tmp_path / "table.npy", rows[0])
    with pytest.raises(AdapterFileError, match="virtual tokens, hidden"):
        read_prompt_table(tmp_path / "table.npy")
    np.save(tmp_path / "table.npy", np.array([["a"]]))
    with pytest.raises(AdapterFileError, match="numbers"):
        read_prompt_table(tmp_path / "table.npy")
