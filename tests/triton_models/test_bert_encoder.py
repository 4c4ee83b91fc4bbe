"""The encoder of the model ``embedding`` by itself: its numbers, its truncation, and what it does not load."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gateway_ops.local_stack.minilm import ensure_embedding_folder
from tests.triton_models.tiny_bert import HIDDEN, POSITIONS, Reference, write_tiny_bert

LABELS = ("no", "yes", "maybe")
TEXTS = ["", "a", "What is the capital?", "The teaching of reading, 42 times.", "öl und käse", "x" * 30]
PAIRS = [["what is the sum?", "the sum is 7"], ["a", ""], ["reading", "the teaching of reading"]]


@pytest.fixture(scope="module")
def encoder_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def cross_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bert(tmp_path_factory.mktemp("cross"), labels=LABELS)


@pytest.fixture
def encoder(bert: ModuleType, encoder_dir: Path) -> Any:
    return bert.Bert(encoder_dir, task="embed")


def tokens(texts: ModuleType, folder: Path, rows: list[list[str]], truncate: str = "NONE") -> Any:
    return texts.TextsToTokens(folder, POSITIONS).read(rows, truncate)


def test_vectors_are_those_of_an_independent_implementation(texts: ModuleType, encoder: Any, encoder_dir: Path) -> None:
    read = tokens(texts, encoder_dir, [[text] for text in TEXTS])
    reference = Reference(encoder_dir)
    found = encoder.outputs(read)
    np.testing.assert_allclose(found, [reference.vector(*text) for text in read], atol=1e-5, rtol=0)
    assert found[0].dtype == np.float32
    distances = np.stack(found) @ np.stack(found).T - np.eye(len(found))
    assert distances.max() < 0.95  # else any vector would do


def test_logits_are_those_of_an_independent_implementation(
    bert: ModuleType, texts: ModuleType, cross_dir: Path
) -> None:
    read = tokens(texts, cross_dir, PAIRS)
    reference = Reference(cross_dir)
    found = bert.Bert(cross_dir, task="rerank").outputs(read)
    np.testing.assert_allclose(found, [reference.logits(*text) for text in read], atol=1e-5, rtol=0)
    assert np.ptp(found, axis=0).min() > 0.01


def test_all_minilm_agrees_with_an_independent_implementation(bert: ModuleType, texts: ModuleType) -> None:
    folder = ensure_embedding_folder()
    recorded = json.loads((Path(__file__).parent / "minilm.json").read_text())  # see record_minilm.py
    read = texts.TextsToTokens(folder, 256).read([[each["text"]] for each in recorded], "NONE")
    assert [len(ids) for ids, _ in read] == [each["tokens"] for each in recorded]
    found = bert.Bert(folder, task="embed").outputs(read)
    np.testing.assert_allclose(found, [each["vector"] for each in recorded], atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_weights_of_16_bits_load(bert: ModuleType, tmp_path: Path, dtype: Any) -> None:
    stored = bert.Bert(write_tiny_bert(tmp_path / "stored", dtype=dtype), task="embed")
    folder = write_tiny_bert(tmp_path / "widened")
    weights = load_file(folder / "model.safetensors")
    rounded = {name: array.astype(dtype).astype(np.float32) for name, array in weights.items()}
    save_file(rounded, folder / "model.safetensors")
    text = [([2, 9, 12, 3], [0, 0, 0, 0])]
    np.testing.assert_array_equal(stored.outputs(text), bert.Bert(folder, task="embed").outputs(text))


@pytest.mark.parametrize(("pooling", "pool"), [("cls", lambda rows: rows[0]), ("max", lambda rows: rows.max(axis=0))])
def test_other_poolings_and_vectors_as_long_as_they_are(
    bert: ModuleType, encoder_dir: Path, pooling: str, pool: Any
) -> None:
    text = ([2, 9, 12, 30, 3], [0] * 5)
    (found,) = bert.Bert(encoder_dir, task="embed", pooling=pooling, normalize=False).outputs([text])
    np.testing.assert_allclose(found, pool(Reference(encoder_dir).hidden(*text)), atol=1e-5)
    assert found.shape == (HIDDEN,)


@pytest.mark.parametrize(
    ("config", "arguments", "said"),
    [
        ({}, {"task": "rerank"}, "architectures is ['BertModel'], the parameter task 'rerank'"),
        ({"architectures": ["RobertaModel"]}, {}, "architectures is ['RobertaModel']"),
        ({"hidden_act": "relu"}, {}, "hidden_act 'relu' is not computed, only 'gelu'"),
        ({"position_embedding_type": "relative_key"}, {}, "position_embedding_type 'relative_key' is not computed"),
        ({"num_hidden_layers": 3}, {}, "no tensor encoder.layer.2.attention.self.query.weight"),
        ({}, {"pooling": "last"}, "the parameter pooling is 'last'; it may be cls, mean, max"),
        ({}, {"pooling": "cls"}, "does not pool by 'cls'"),
    ],
)
def test_a_folder_that_cannot_be_served_is_a_load_error(
    bert: ModuleType, tmp_path: Path, config: dict[str, Any], arguments: dict[str, str], said: str
) -> None:
    folder = write_tiny_bert(tmp_path, **config)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    with pytest.raises(bert.LoadError) as caught:
        bert.Bert(folder, **{"task": "embed", **arguments})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": 384}, "the model gives 32 numbers for a text, config.pbtxt says 384"),
        ({"max_seq_len": 49}, "max_seq_len is 49, the model has 48 positions"),
        ({"vocab": 500}, "the tokenizer has 500 tokens, the model "),
    ],
)
def test_a_configuration_for_another_model_is_a_load_error(
    bert: ModuleType, texts: ModuleType, encoder: Any, encoder_dir: Path, change: dict[str, int], said: str
) -> None:
    own = {"width": HIDDEN, "max_seq_len": POSITIONS, "vocab": texts.TextsToTokens(encoder_dir, POSITIONS).vocab}
    encoder.check(**own)
    with pytest.raises(bert.LoadError, match=said):
        encoder.check(**own | change)


def test_files_that_are_damaged_or_missing_are_load_errors(
    bert: ModuleType, texts: ModuleType, encoder_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text((encoder_dir / "config.json").read_text())
    with pytest.raises(bert.LoadError, match=r"model\.safetensors"):
        bert.Bert(tmp_path, task="embed")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(bert.LoadError, match="not a safetensors file"):
        bert.Bert(tmp_path, task="embed")
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"], "num_attention_heads": 2}')
    with pytest.raises(bert.LoadError, match=r"config\.json: num_hidden_layers is missing"):
        bert.Bert(tmp_path, task="embed")
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(bert.LoadError, match="not a JSON object"):
        bert.Bert(tmp_path, task="embed")
    with pytest.raises(bert.LoadError, match=r"tokenizer\.json cannot be read"):
        texts.TextsToTokens(tmp_path, 8)


def test_of_a_pair_the_longer_text_is_cut_first(texts: ModuleType, cross_dir: Path) -> None:
    ((ids, types),) = texts.TextsToTokens(cross_dir, 8).read([["a b", "c d e f g"]], "END")
    whole, kinds = tokens(texts, cross_dir, [["a b", "c d e"]])[0]
    assert (ids, types) == (whole, kinds)
    assert types == [0, 0, 0, 0, 1, 1, 1, 1]
