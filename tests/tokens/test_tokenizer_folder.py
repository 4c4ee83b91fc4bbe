from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.text.tokens import Tokenizer, TokenizerError
from tests.tokens.build import CONTROL, FIXED, all_exact, byte_level, sentence_piece, unigram, word_piece, write_folder


def load(folder: Path, tokenizer: Tokenizer | None = None, **files: Any) -> Tokenizer:
    return Tokenizer.from_folder(write_folder(folder, tokenizer or byte_level(), **files))


def end(text: str) -> int:
    index = byte_level().token_id(text)
    assert index is not None
    return index


def test_ends_are_those_of_the_first_file_that_tells_any(tmp_path: Path) -> None:
    ids = [end("<|im_end|>"), end("<|eot_id|>")]
    tokenizer = load(tmp_path / "a", generation_config={"eos_token_id": ids}, config={"eos_token_id": 0})
    assert (tokenizer.eos_ids, tokenizer.eos_token) == (tuple(ids), "<|im_end|>")
    assert load(tmp_path / "b", config={"text_config": {"eos_token_id": ids[1]}}).eos_ids == (ids[1],)
    only_token = load(tmp_path / "c", tokenizer_config={"eos_token": {"content": "<|im_end|>", "special": True}})
    assert only_token.eos_ids == (ids[0],)
    assert load(tmp_path / "d").eos_ids == ()


def test_tokenizer_config_wins_over_the_special_tokens_map(tmp_path: Path) -> None:
    tokenizer = load(
        tmp_path,
        special_tokens_map={"bos_token": "<|eot_id|>", "pad_token": "<|im_end|>"},
        tokenizer_config={"bos_token": CONTROL[0]},
    )
    assert (tokenizer.bos_token, tokenizer.bos_id) == (CONTROL[0], end(CONTROL[0]))
    assert tokenizer.special_tokens["pad_token"] == "<|im_end|>"
    assert tokenizer.adds_bos
    without = load(tmp_path / "none", tokenizer_config={"bos_token": None, "eos_token": "<|im_end|>"})
    assert (without.bos_token, without.bos_id, without.adds_bos) == (None, None, False)


def test_templates_of_every_place_are_found(tmp_path: Path) -> None:
    assert load(tmp_path / "a", tokenizer_config={"chat_template": "one"}).chat_template == "one"
    listed = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "three"}]
    tokenizer = load(tmp_path / "b", tokenizer_config={"chat_template": listed})
    assert tokenizer.chat_template == "two"
    assert tokenizer.named_templates == {"default": "two", "tool_use": "three"}
    (tmp_path / "b" / "chat_template.json").write_text('{"chat_template": "processor"}', encoding="utf-8")
    assert Tokenizer.from_folder(tmp_path / "b").chat_template == "two"
    (tmp_path / "b" / "chat_template.jinja").write_text("file", encoding="utf-8")
    assert Tokenizer.from_folder(tmp_path / "b").chat_template == "file"
    bare = load(tmp_path / "c", config={"max_position_embeddings": 64})
    assert (bare.chat_template, bare.max_position_embeddings) == (None, 64)
    assert load(tmp_path / "e").max_position_embeddings is None
    assert load(tmp_path / "d", chat_template={"chat_template": "processor"}).chat_template == "processor"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"generation_config": {"eos_token_id": "2"}}, ["generation_config.json", "eos_token_id"]),
        ({"generation_config": {"eos_token_id": 10**6}}, ["eos_token_id", "1000000"]),
        ({"config": {"max_position_embeddings": "long"}}, ["config.json", "max_position_embeddings"]),
        ({"tokenizer_config": {"bos_token": 5}}, ["tokenizer_config.json", "bos_token"]),
        ({"tokenizer_config": {"bos_token": "<unknown>"}}, ["bos_token", "<unknown>"]),
        ({"tokenizer_config": {"chat_template": 7}}, ["tokenizer_config.json", "chat_template"]),
        ({"tokenizer_config": {"chat_template": [{"name": "x"}]}}, ["tokenizer_config.json", "template"]),
        ({"tokenizer_config": ["no object"]}, ["tokenizer_config.json", "object"]),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, files: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(TokenizerError) as failure:
        load(tmp_path, **files)
    assert all(word in str(failure.value) for word in named)


def test_a_missing_or_broken_tokenizer_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"has no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read"):
        Tokenizer.from_folder(tmp_path)
    write_folder(tmp_path, byte_level())
    (tmp_path / "config.json").write_bytes(b"\xff{")
    with pytest.raises(TokenizerError, match=r"config\.json cannot be read"):
        Tokenizer.from_folder(tmp_path)


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level())
    spec = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    spec["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    assert len(Tokenizer.from_folder(tmp_path).encode("q w e r t y")) > 2


def test_encode_parses_special_tokens_and_adds_none() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("<|im_start|>hello<|im_end|>")
    assert [ids[0], ids[-1]] == [end("<|im_start|>"), end("<|im_end|>")]
    assert tokenizer.bos_id not in ids
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode("a\ud800")


@FIXED
@given(st.text(max_size=20), st.sampled_from(CONTROL), st.sampled_from(all_exact()), st.booleans())
def test_literal_ids_hold_no_control_token(text: str, control: str, tokenizer: Tokenizer, at_start: bool) -> None:
    ids = tokenizer.encode_literal(text + control + text, at_start=at_start)
    assert not {tokenizer.token_id(token) for token in CONTROL} & set(ids)


@FIXED
@given(st.lists(st.sampled_from(["</s>", "<s>", "a", " ", "<", "é", "<|im_end|>", "<think>"]), max_size=6))
def test_literal_ids_of_a_unigram_hold_no_control_token(parts: list[str]) -> None:
    """Its pieces are found anywhere in a text, those of control tokens among them."""
    tokenizer, text = unigram(), "".join(parts)
    control = {index for index in range(tokenizer.vocab_size) if tokenizer.is_special(index)} - {0}
    assert not control & set(tokenizer.encode_literal(text))
    assert ("<think>" in text) == (tokenizer.token_id("<think>") in tokenizer.encode_literal(text))


def test_token_bytes_are_exact() -> None:
    sentence = sentence_piece("llama2")

    def of(tokenizer: Tokenizer, token: str) -> bytes:
        index = tokenizer.token_id(token)
        assert index is not None
        return tokenizer.token_bytes(index)

    assert of(sentence, "<0xF0>") == b"\xf0"
    assert of(sentence, "▁the") == b" the"
    assert of(sentence, "<s>") == b"<s>"
    assert of(byte_level(), "Ġ") == b" "
    assert of(byte_level(), "<|ünïcode \uff5cend|>") == "<|ünïcode \uff5cend|>".encode()
    assert of(word_piece(), "##ing") == b"##ing"  # what its decoder makes of it alone
    assert byte_level().token_bytes(10**7) == b""


def test_token_text_reads_well() -> None:
    tokenizer = byte_level()
    assert tokenizer.token_text(end("<|im_end|>")) == "<|im_end|>"
    assert tokenizer.token_text(tokenizer.encode("hello")[0]) in {"h", "he", "hel", "hell", "hello"}
    assert tokenizer.is_special(end("<|im_end|>"))
    assert not tokenizer.is_special(end("<think>"))
    assert "<think>" not in tokenizer.control_tokens
    assert set(CONTROL) < set(tokenizer.control_tokens)
    assert tokenizer.vocab_size > max(map(end, CONTROL))
