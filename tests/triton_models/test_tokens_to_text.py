"""Streamed text is the text of the whole, piece by piece."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

BYTE_LEVEL_VOCABULARY = 267


@pytest.fixture(scope="module")
def byte_level(tiny_model_dir) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_model_dir / "tokenizer.json"))


@pytest.fixture(scope="module")
def byte_fallback() -> Tokenizer:
    """Like Llama 2's: a word's space is part of its token, unknown characters are bytes, a first space is dropped."""
    pieces = ["<unk>", *(f"<0x{value:02X}>" for value in range(256)), "▁", "a", "b", "▁a", "▁b", "é", "▁é"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁", "b"), ("▁", "é")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


@pytest.fixture(scope="module")
def streamed(post) -> Callable[[Tokenizer, list[list[int]]], list[str]]:
    def run(tokenizer: Tokenizer, pieces: list[list[int]]) -> list[str]:
        text = post.IncrementalText(tokenizer.decode, hold_run=post.holds_whole_run(tokenizer))
        return [text.push(piece) for piece in pieces] + [text.push([], last=True)]

    return run


@given(ids=st.lists(st.integers(0, BYTE_LEVEL_VOCABULARY - 1), max_size=60), data=st.data())
def test_any_ids_in_any_pieces_give_the_text_of_the_whole(byte_level, streamed, ids, data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=10)))
    pieces = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    assert "".join(streamed(byte_level, pieces)) == byte_level.decode(ids)


@given(text=st.text(st.sampled_from("ab é你🙂\u0627"), max_size=40))
def test_a_byte_fallback_tokenizer_loses_no_space_and_breaks_no_character(byte_fallback, streamed, text) -> None:
    ids = byte_fallback.encode(text).ids
    pieces = streamed(byte_fallback, [[token] for token in ids])
    assert "".join(pieces) == byte_fallback.decode(ids) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_garbage_is_not_held_back_for_long(byte_level, streamed) -> None:
    (lone,) = byte_level.encode("🙂").ids[1:2]
    pieces = streamed(byte_level, [[lone]] * 50)
    assert "".join(pieces[:-1]) == "\ufffd" * 49


def test_a_space_after_skipped_special_tokens_is_kept(post, byte_fallback) -> None:
    skipped = 0  # decodes to nothing, as special tokens do

    def decode(ids: list[int]) -> str:
        return str(byte_fallback.decode([token for token in ids if token != skipped]))

    (word,) = byte_fallback.encode("b").ids
    text = post.IncrementalText(decode, hold_run=True)
    assert [text.push([token]) for token in (word, skipped, skipped, word)] == ["b", "", "", " b"]


def test_long_streams_decode_only_a_window(post, byte_level) -> None:
    decoded: list[int] = []

    def decode(ids: list[int]) -> str:
        decoded.append(len(ids))
        return str(byte_level.decode(ids))

    text = post.IncrementalText(decode, hold_run=False)
    for token in byte_level.encode("some words of text " * 50).ids:
        text.push([token])
    assert max(decoded) <= 4


def test_a_state_expires(post, byte_level) -> None:
    now = 0.0
    states = post.TextStates(
        lambda: post.IncrementalText(byte_level.decode, hold_run=False), capacity=3, expiry_s=60, clock=lambda: now
    )
    ids = byte_level.encode("🙂").ids
    states.push("gone", ids[:2], last=False)
    now = 59.0
    states.push("kept", ids[:2], last=False)
    now = 61.0
    assert states.push("kept", ids[2:], last=False) == "🙂"
    assert len(states) == 1
