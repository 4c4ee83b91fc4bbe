"""Weights and forward pass, against what an independent implementation computed (see record_reference.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cpu_double.llama import Chunk, Llama
from cpu_double.safetensors import ModelError
from gateway_ops.local_stack.smollm2 import ensure_model_folder
from tests.tiny_model import write_tiny_model


def _assert_matches(model: Llama, recorded: Path) -> None:
    positions = 0
    for sequence in json.loads(recorded.read_text())["sequences"]:
        ids, top_ids = sequence["ids"], np.array(sequence["top_ids"])
        top = np.array(sequence["top_log_probs"])
        logits = model.forward([Chunk(ids, model.new_cache(), len(ids))]).astype(np.float64)
        log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        np.testing.assert_allclose(np.take_along_axis(log_probs, top_ids, 1), top, atol=1e-3, rtol=0)
        clear = top[:, 0] - top[:, 1] > 1e-3
        assert (log_probs.argmax(axis=1) == top_ids[:, 0])[clear].all()
        positions += len(ids)
    assert positions >= 200


def test_tiny_model_agrees_with_an_independent_implementation(tiny) -> None:
    _assert_matches(tiny, Path(__file__).parent / "reference_tiny.json")


@pytest.mark.smollm2
def test_smollm2_agrees_with_an_independent_implementation() -> None:
    _assert_matches(Llama(ensure_model_folder()), Path(__file__).parent / "reference_smollm2.json")


def test_chunked_prefill_equals_one_pass(tiny) -> None:
    ids = np.random.default_rng(1).integers(3, 259, 150).tolist()
    whole = tiny.forward([Chunk(ids, tiny.new_cache(), len(ids))])
    cache = tiny.new_cache()
    pieces = [ids[start : start + 37] for start in range(0, len(ids), 37)]
    parts = [tiny.forward([Chunk(piece, cache, len(piece))]) for piece in pieces]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-3)


def test_sequences_in_one_pass_do_not_see_each_other(tiny) -> None:
    first, second = [20, 21, 22, 23], [90, 91]
    together = tiny.forward([Chunk(first, tiny.new_cache(), 1), Chunk(second, tiny.new_cache(), 2)])
    np.testing.assert_allclose(together[:1], tiny.forward([Chunk(first, tiny.new_cache(), 1)]), atol=1e-4)
    np.testing.assert_allclose(together[1:], tiny.forward([Chunk(second, tiny.new_cache(), 2)]), atol=1e-4)


def test_the_tiny_model_is_small_and_the_same_each_time(tiny_model_dir, tmp_path) -> None:
    write_tiny_model(tmp_path / "again")
    files = sorted(path.name for path in tiny_model_dir.iterdir())
    assert sum((tiny_model_dir / name).stat().st_size for name in files) < 1_000_000
    for name in files:
        assert (tmp_path / "again" / name).read_bytes() == (tiny_model_dir / name).read_bytes(), name


def test_shards_half_precision_and_tied_embeddings_load(tiny_model_dir, tiny, tmp_path) -> None:
    weights = load_file(tiny_model_dir / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    tied = {name: array for name, array in weights.items() if name != "lm_head.weight"}
    for name, arrays, is_tied in (("untied", weights, False), ("tied", tied, True)):
        folder = _copy_config(tiny_model_dir, tmp_path / name, tie_word_embeddings=is_tied)
        names = sorted(arrays)
        shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for shard, members in shards.items():
            save_file({member: arrays[member].astype(np.float16) for member in members}, folder / shard)
        index = {"weight_map": {member: shard for shard, members in shards.items() for member in members}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    logits = [
        model.forward([Chunk([20, 21, 22], model.new_cache(), 1)])
        for model in (Llama(tmp_path / "tied"), Llama(tmp_path / "untied"))
    ]
    np.testing.assert_array_equal(*logits)
    assert not np.allclose(logits[0], tiny.forward([Chunk([20, 21, 22], tiny.new_cache(), 1)]))


def test_bfloat16_is_read_exactly(tiny_model_dir, tmp_path) -> None:
    folders = [_copy_config(tiny_model_dir, tmp_path / name) for name in ("bf16", "f32")]
    weights = load_file(tiny_model_dir / "model.safetensors")
    upper = {name: array.view(np.uint32) >> 16 for name, array in weights.items()}
    header, raw = {}, b""
    for name, bits in upper.items():
        data = bits.astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(bits.shape), "data_offsets": [len(raw), len(raw) + len(data)]}
        raw += data
    text = json.dumps(header).encode()
    (folders[0] / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + raw)
    save_file({name: (bits << 16).view(np.float32) for name, bits in upper.items()}, folders[1] / "model.safetensors")
    logits = [model.forward([Chunk([20, 21, 22], model.new_cache(), 3)]) for model in map(Llama, folders)]
    np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["MistralForCausalLM"]}, "MistralForCausalLM"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling of type llama3"),
        ({"rope_parameters": {"rope_type": "yarn"}, "rope_scaling": None}, "rope_scaling of type yarn"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_hidden_layers": 3}, "model.layers.2"),
        ({"intermediate_size": 127}, "gate_proj"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(tiny_model_dir, tmp_path, change, named) -> None:
    folder = _copy_config(tiny_model_dir, tmp_path / "changed", **change)
    (folder / "model.safetensors").write_bytes((tiny_model_dir / "model.safetensors").read_bytes())
    with pytest.raises(ModelError, match=named):
        Llama(folder)


def test_damaged_or_missing_files_are_load_errors(tiny_model_dir, tmp_path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        Llama(tmp_path)
    folder = _copy_config(tiny_model_dir, tmp_path / "damaged")
    for content in (b"", b"\x00" * 4, b"\xff" * 64, b"\x02" + bytes(7) + b"{}"):
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(ModelError):
            Llama(folder)


def _copy_config(source: Path, folder: Path, **changes: object) -> Path:
    folder.mkdir()
    config = json.loads((source / "config.json").read_text()) | changes
    kept = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(kept))
    return folder
