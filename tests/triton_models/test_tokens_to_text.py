"""Streamed text is the text of the whole, piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers

BYTE_LEVEL_VOCABULARY = 267


@pytest.fixture(scope="module")
def byte_level(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


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
def streamed(post: ModuleType) -> Callable[[Tokenizer, list[list[int]]], list[str]]:
    def run(tokenizer: Tokenizer, pieces: list[list[int]]) -> list[str]:
        text = post.IncrementalText(tokenizer.decode, hold_run=post.holds_whole_run(tokenizer))
        return [text.push(piece) for piece in pieces] + [text.push([], last=True)]

    return run


@given(ids=st.lists(st.integers(0, BYTE_LEVEL_VOCABULARY - 1), max_size=60), data=st.data())
def test_any_ids_in_any_pieces_give_the_text_of_the_whole(byte_level, streamed, ids: list[int], data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=10)))
    pieces = [ids[a:b] for a, b in zip([0, *cuts], [*cuts, len(ids)], strict=True)]
    assert "".join(streamed(byte_level, pieces)) == byte_level.decode(ids)


@given(text=st.text(st.sampled_from("ab é你🙂\u0627"), max_size=40))
def test_a_byte_fallback_tokenizer_loses_no_space_and_breaks_no_character(byte_fallback, streamed, text: str) -> None:
    ids = byte_fallback.encode(text).ids
    pieces = streamed(byte_fallback, [[token] for token in ids])
    assert "".join(pieces) == byte_fallback.decode(ids) == text
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("text", ["Grüße, 你好 🙂🙂 مرحبا!", "  two  spaces ", "a\n\n b\t c", "👩‍👩‍👧"])
def test_one_token_at_a_time_no_character_is_broken(byte_level, streamed, text: str) -> None:
    pieces = streamed(byte_level, [[token] for token in byte_level.encode(text).ids])
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_a_character_is_given_out_with_the_token_that_completes_it(byte_level, streamed) -> None:
    ids = byte_level.encode("🙂x").ids
    assert streamed(byte_level, [[token] for token in ids]) == ["", "", "", "🙂", "x", ""]


def test_an_unfinished_character_at_the_end_becomes_a_replacement(byte_level, streamed) -> None:
    ids = byte_level.encode("ok🙂").ids[:-1]
    assert "".join(streamed(byte_level, [ids])) == byte_level.decode(ids) == "ok\ufffd"


def test_garbage_is_not_held_back_for_long(byte_level, streamed) -> None:
    (lone,) = byte_level.encode("🙂").ids[1:2]
    pieces = streamed(byte_level, [[lone]] * 50)
    assert "".join(pieces[:-1]) == "\ufffd" * 49


def test_a_space_after_skipped_special_tokens_is_kept(post: ModuleType, byte_fallback) -> None:
    skipped = 0  # decodes to nothing, as special tokens do

    def decode(ids: list[int]) -> str:
        return str(byte_fallback.decode([token for token in ids if token != skipped]))

    (word,) = byte_fallback.encode("b").ids
    text = post.IncrementalText(decode, hold_run=True)
    assert [text.push([token]) for token in (word, skipped, skipped, word)] == ["b", "", "", " b"]


def test_long_streams_decode_only_a_window(post: ModuleType, byte_level) -> None:
    decoded: list[int] = []

    def decode(ids: list[int]) -> str:
        decoded.append(len(ids))
        return str(byte_level.decode(ids))

    text = post.IncrementalText(decode, hold_run=False)
    for token in byte_level.encode("some words of text " * 50).ids:
        text.push([token])
    assert max(decoded) <= 4


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def states(post: ModuleType, byte_level, clock: Clock):
    return post.TextStates(
        lambda: post.IncrementalText(byte_level.decode, hold_run=False), capacity=3, expiry_s=60, clock=clock
    )


def test_interleaved_answers_do_not_mix(states, byte_level) -> None:
    one, two = byte_level.encode("🙂").ids, byte_level.encode("你你").ids[:4]
    texts = {"one": "", "two": ""}
    for index in range(4):
        for key, ids in (("one", one), ("two", two)):
            texts[key] += states.push(key, [ids[index]], last=index == 3)
    assert texts == {"one": "🙂", "two": "你\ufffd"}
    assert len(states) == 0


def test_the_least_recently_used_state_goes_first(states, byte_level) -> None:
    ids = byte_level.encode("🙂").ids
    for key in ("a", "b", "c"):
        states.push(key, ids[:1], last=False)
    states.push("a", ids[1:2], last=False)
    states.push("d", ids[:1], last=False)
    assert len(states) == 3
    assert states.push("a", ids[2:], last=False) == "🙂"
    assert "🙂" not in states.push("b", ids[1:], last=True)


def test_a_state_expires(states, byte_level, clock: Clock) -> None:
    ids = byte_level.encode("🙂").ids
    states.push("gone", ids[:2], last=False)
    clock.now = 59.0
    states.push("kept", ids[:2], last=False)
    clock.now = 61.0
    assert states.push("kept", ids[2:], last=False) == "🙂"
    assert len(states) == 1
