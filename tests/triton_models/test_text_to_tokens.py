"""Prompts, word lists and biases as the engine gets them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing


@pytest.fixture(scope="module")
def text(pre, tiny_model_dir):
    return pre.TextToTokens(str(tiny_model_dir), add_special_tokens=False)


@pytest.fixture(scope="module")
def encode(tiny_model_dir):
    tokenizer = Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))
    return lambda words: tokenizer.encode(words, add_special_tokens=False).ids


@pytest.fixture
def with_bos(tiny_model_dir, tmp_path) -> Path:
    folder = tmp_path / "bos"
    shutil.copytree(tiny_model_dir, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_prompts_of_a_batch_are_padded_at_the_end(text, encode) -> None:
    ids, lengths = text.prompts(["hello there", "hi"])
    assert ids.dtype == lengths.dtype == np.int32
    assert lengths.tolist() == [[len(encode("hello there"))], [len(encode("hi"))]]
    assert ids[0].tolist() == encode("hello there")
    assert ids[1].tolist() == encode("hi") + [text.pad_id] * (len(ids[0]) - len(encode("hi")))


def test_word_lists_are_packed_with_cumulative_ends(text, encode) -> None:
    one, two = encode("stop"), encode(" the")
    packed = text.word_lists([["stop", " the"]])
    assert packed.dtype == np.int32
    assert packed[0, 0].tolist() == one + two
    ends = [len(one), len(one) + len(two)]
    assert packed[0, 1].tolist() == ends + [-1] * (len(one + two) - len(ends))


def test_rows_of_different_width_are_padded(text, encode) -> None:
    packed = text.word_lists([["a"], ["abc"]])
    width = len(encode("abc"))
    assert packed.shape == (2, 2, width)
    assert packed[0].tolist() == [encode("a") + [0] * (width - 1), [1] + [-1] * (width - 1)]


def test_special_tokens_are_in_prompts_when_asked_in_biases_and_in_no_word_list(pre, with_bos, encode) -> None:
    plain, special = (pre.TextToTokens(str(with_bos), add_special_tokens=adds) for adds in (False, True))
    assert plain.prompts(["hi"])[0].tolist() == [encode("hi")]
    assert special.prompts(["hi"])[0].tolist() == [[1, *encode("hi")]]
    assert special.word_lists([["hi"]])[0, 0].tolist() == encode("hi")
    assert plain.embedding_bias([["a"]], [[3.0]])[0, 1] == 3.0


def test_bias_falls_on_every_token_of_a_word(pre, text, encode) -> None:
    bias = text.embedding_bias([["ab", "b"]], [[2.0, -0.5]])
    assert bias.dtype == np.float32
    assert bias.shape == (1, text.vocab_size)
    (a,), (b,) = encode("a"), encode("b")
    assert bias[0, a] == 2.0
    assert bias[0, b] == 1.5
    assert np.count_nonzero(bias) == 2
    with pytest.raises(pre.InputError, match="embedding_bias_weights"):
        text.embedding_bias([["a", "b"]], [[1.0]])


@pytest.mark.parametrize(
    ("generation", "tokenizer", "end", "pad"),
    [
        ({"eos_token_id": [2, 0]}, {"eos_token": "<|endoftext|>"}, 2, 2),
        ({"eos_token_id": 1, "pad_token_id": 0}, {}, 1, 0),
        ({}, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, 2, 0),
        ({}, {"eos_token": {"content": "<|im_end|>"}}, 2, 2),
        ({}, {}, -1, -1),
    ],
)
def test_end_and_pad_ids_come_from_the_model_folder(
    pre, tiny_model_dir, tmp_path, generation, tokenizer, end, pad
) -> None:
    shutil.copy(tiny_model_dir / "tokenizer.json", tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    text = pre.TextToTokens(str(tmp_path), add_special_tokens=False)
    assert (text.end_id, text.pad_id) == (end, pad)


def test_the_folder_comes_from_the_environment_or_is_named(pre, post, tiny_model_dir, tmp_path, monkeypatch) -> None:
    def check(words: str) -> None:
        for module, load in ((pre, pre.tokenizer_file), (post, post.load_tokenizer)):
            with pytest.raises(module.LoadError, match=words):
                load("${MODEL_DIR}")

    monkeypatch.delenv("MODEL_DIR", raising=False)
    check("MODEL_DIR is not set")
    monkeypatch.setenv("MODEL_DIR", str(tmp_path))
    check(r"MODEL_DIR has no tokenizer\.json")
    shutil.copy(tiny_model_dir / "tokenizer.json", tmp_path)
    assert pre.TextToTokens("${MODEL_DIR}", add_special_tokens=False).vocab_size > 256
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(pre.LoadError, match=r"generation_config\.json is not JSON"):
        pre.TextToTokens("${MODEL_DIR}", add_special_tokens=False)
