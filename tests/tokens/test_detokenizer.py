from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.text.tokens import IncrementalDetokenizer, Tokenizer
from gateway.text.tokens.token_bytes import ByteLevelDecoder
from tests.tokens.build import FIXED, all_exact, byte_level, sentence_piece, word_piece

TOKENIZERS = st.sampled_from(all_exact())


def stream(tokenizer: Tokenizer, ids: list[int], skip: bool = True) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer, skip)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def any_ids(data: st.DataObject, tokenizer: Tokenizer) -> list[int]:
    """Any ids at all, with byte tokens often enough to make and break characters."""
    one = st.integers(0, tokenizer.vocab_size + 2)
    special = st.sampled_from([i for i in range(tokenizer.vocab_size) if tokenizer.is_special(i)])
    raw = [tokenizer.encode(text) for text in ("😀", "你", "é", " ", "\n", "  a", "ﾠ")]
    pieces = st.sampled_from(raw).flatmap(
        lambda ids: st.sampled_from([ids[:k] for k in range(1, len(ids) + 1)] + [ids[1:]])
    )
    drawn = data.draw(st.lists(one.map(lambda i: [i]) | special.map(lambda i: [i]) | pieces, max_size=14))
    return list(chain.from_iterable(drawn))


@FIXED
@given(st.data(), TOKENIZERS)
def test_some_special_tokens_may_leave_their_text(data: st.DataObject, tokenizer: Tokenizer) -> None:
    ids = any_ids(data, tokenizer)
    special = [index for index in range(tokenizer.vocab_size) if tokenizer.is_special(index)]
    visible = data.draw(st.frozensets(st.sampled_from(special), min_size=1))
    detokenizer = IncrementalDetokenizer(tokenizer, visible=visible)
    text = "".join([*map(detokenizer.push, ids), detokenizer.flush()])
    shown = [index for index in ids if index in visible or not tokenizer.is_special(index)]
    assert text == tokenizer.decode(shown, skip_special_tokens=False)


@FIXED
@given(st.binary(max_size=12))
@example(b"\xf0\x9f\x98")
@example(b"\xf0\x90\xe4\xbd\xff\xed\xa0\x80\xc0\x80")
def test_invalid_utf8_becomes_as_many_replacement_characters_as_in_the_full_decode(raw: bytes) -> None:
    tokenizer = byte_level()
    by_byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1}
    ids = [by_byte[bytes([byte])] for byte in raw]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids) == raw.decode("utf-8", "replace")


@FIXED
@given(st.data(), TOKENIZERS)
def test_characters_counts_what_is_complete(data: st.DataObject, tokenizer: Tokenizer) -> None:
    ids = any_ids(data, tokenizer)
    whole = tokenizer.decode(ids)
    detokenizer = IncrementalDetokenizer(tokenizer)
    shown = 0
    for index in ids:
        shown += len(detokenizer.push(index))
        assert shown <= detokenizer.characters <= len(whole)
    if isinstance(tokenizer.decoder, ByteLevelDecoder):
        assert detokenizer.characters == shown
    assert detokenizer.characters + detokenizer.unfinished <= len(whole)
    detokenizer.flush()
    assert detokenizer.characters == len(whole)
    assert not detokenizer.unfinished


def test_a_character_shows_when_its_last_byte_comes() -> None:
    tokenizer = byte_level()
    by_byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1}
    detokenizer = IncrementalDetokenizer(tokenizer)
    shown = [(detokenizer.push(by_byte[bytes([b])]), detokenizer.unfinished) for b in "x🦜".encode()]
    assert shown == [("x", False), ("", True), ("", True), ("", True), ("🦜", False)]


def test_a_run_of_byte_tokens_waits_for_its_end() -> None:
    tokenizer = sentence_piece("llama2")
    newline, he = tokenizer.token_id("<0x0A>"), tokenizer.token_id("he")
    assert newline is not None
    assert he is not None
    assert stream(tokenizer, [he, newline, he]) == ["he", "", "\nhe", ""]


def test_only_the_first_space_of_the_text_is_stripped() -> None:
    tokenizer = sentence_piece("llama2")
    ids = tokenizer.encode("hello the capital")
    assert tokenizer.token_bytes(ids[0]) == b" hello"
    assert IncrementalDetokenizer(tokenizer).contribution(ids[0]) == b"hello"
    assert stream(tokenizer, ids)[:2] == ["hello", " the"]


@FIXED
@given(st.lists(st.integers(0, 9), max_size=20))
def test_other_decoders_stream_by_window(ids: list[int]) -> None:
    tokenizer = word_piece()
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("style", ["byte", "llama2", "words"])
def test_cost_per_token_does_not_grow(style: str) -> None:
    """A window that grew would call the library's decode with more and more ids."""
    tokenizer = {"byte": byte_level, "words": word_piece}.get(style, lambda: sentence_piece(style))()
    calls: list[int] = []
    original = Tokenizer.decode

    def counting(self: Tokenizer, ids: list[int], skip_special_tokens: bool = True) -> str:
        calls.append(len(ids))
        return original(self, ids, skip_special_tokens)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "decode", counting)
        stream(tokenizer, tokenizer.encode("hello") * 200)
    assert max(calls, default=0) <= 2
