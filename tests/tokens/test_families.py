"""Detokenization is exact for every family: streamed text is the full decode, whatever the ids and the chunks."""

from __future__ import annotations

from itertools import accumulate, chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.generation import EngineChunk, SequenceAssembler
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import IncrementalDetokenizer, Tokenizer
from gateway.text.tokens.token_bytes import ByteLevelDecoder, SentencePieceDecoder
from tests.engine_requests import generation_request
from tests.rings import examples
from tests.tokens.build import FIXED
from tests.tokens.families import FAMILIES, WINDOWS

MANY = settings(FIXED, max_examples=examples(50, long=500))
SOURCES = [
    "The capital of France", "  a  b ", "\n\n\n", "\r\n\t x", "Don't  STOP", "naïve café", "12345", "你好世界", "😀😃",
    "👩‍👩‍👧", "🏳️‍🌈", "हिन्दी", "e\u0301", "\u00fc", "\ufeff", "\ufffd", "<|im_end|>", "</s>", "[INST]",
    "<tool_call>", "<table>", "<0x41>", "▁▁", "\u2581", "\x00\x7f", "ﾠ", "\U0010ffff",
]  # fmt: skip


@st.composite
def adversarial_ids(draw: st.DrawFn, tokenizer: Tokenizer) -> list[int]:
    """Any ids: of texts, of beginnings, ends and repeats of texts, special ones, and ids that no token has."""
    known = [tokenizer.encode(text) for text in SOURCES]
    special = [index for index in range(tokenizer.vocab_size) if tokenizer.is_special(index)]
    whole = st.sampled_from(known)
    part = whole.flatmap(lambda ids: st.integers(0, len(ids)).map(lambda n: ids[:n]))
    rest = whole.flatmap(lambda ids: st.integers(0, len(ids)).map(lambda n: ids[n:]))
    one = (st.integers(0, tokenizer.vocab_size + 2) | st.sampled_from(special)).map(lambda index: [index])
    typed = st.text(max_size=6).map(tokenizer.encode)
    return list(chain.from_iterable(draw(st.lists(one | part | rest | whole | typed, max_size=10))))


def streamed(tokenizer: Tokenizer, ids: list[int], cuts: list[int], *, skip: bool, watched: bool) -> list[str]:
    """The text of each event when the ids come in chunks cut at ``cuts``."""
    stop = ("\U0010fffe never",) if watched else ()
    # As wide as any engine's logits: ids beyond the vocabulary leave no text.
    most = tokenizer.vocab_size + 3
    request = generation_request("r", Prompt("", (1,)), 10**6, stop=stop, vocab_size=most, skip_special_tokens=skip)
    assembler = SequenceAssembler(request, tokenizer)
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    pieces = [assembler.feed(EngineChunk(ids=ids[start:end])) for start, end in pairwise(edges)]
    return [piece.text for piece in [*pieces, assembler.finish()] if piece is not None]


@pytest.mark.parametrize("family", FAMILIES)
@MANY
@given(data=st.data())
def test_any_ids_in_any_chunking_stream_to_the_full_decode(family: str, data: st.DataObject) -> None:
    tokenizer = FAMILIES[family]()
    ids = data.draw(adversarial_ids(tokenizer))
    skip, watched = data.draw(st.booleans()), data.draw(st.booleans())
    whole = tokenizer.decode(ids, skip_special_tokens=skip)
    events = streamed(tokenizer, ids, data.draw(st.lists(st.integers(0, 60), max_size=12)), skip=skip, watched=watched)
    assert "".join(events) == whole
    assert all(whole.startswith(shown) for shown in accumulate(events))
    detokenizer = IncrementalDetokenizer(tokenizer, skip)
    joined = b""
    for index in ids:
        joined += detokenizer.contribution(index)
        detokenizer.push(index)
    if "\ufffd" not in whole:
        assert joined.decode() == whole


def test_only_decoders_that_are_not_recognised_are_followed_as_a_black_box() -> None:
    pieces = dict.fromkeys(("mistral_v1", "mistral_v3", "gemma"), SentencePieceDecoder)
    wanted = dict.fromkeys(FAMILIES, ByteLevelDecoder) | pieces | dict.fromkeys(WINDOWS, type(None))
    assert {name: type(make().decoder) for name, make in (FAMILIES | WINDOWS).items()} == wanted


@pytest.mark.parametrize("family", [*FAMILIES, *WINDOWS])
@MANY
@given(data=st.data())
def test_bytes_of_entries_concatenate_to_the_text(family: str, data: st.DataObject) -> None:
    """For every kind of decoder, whatever else was asked of the places in between."""
    tokenizer = (FAMILIES | WINDOWS)[family]()
    ids = data.draw(adversarial_ids(tokenizer))
    asked = generation_request("r", Prompt("", (1,)), 10**6, logprobs=True, top_logprobs=1, vocab_size=2**31 - 1)
    assembler = SequenceAssembler(asked, tokenizer)
    fed = [assembler.feed(EngineChunk([index], logprobs=[-0.5], top_logprobs=[[(ids[0], -0.5)]])) for index in ids]
    pieces = [piece for piece in [*fed, assembler.finish()] if piece is not None]
    text = "".join(piece.text for piece in pieces)
    joined = b"".join(entry.bytes for piece in pieces for entry in piece.logprobs)
    if "\ufffd" not in text:
        assert joined.decode() == text
    assert sum(len(piece.logprobs) for piece in pieces) == len(ids)


@pytest.mark.parametrize("family", ["bytes_and_fuse", "bytes_before_spaces"])
def test_each_byte_of_a_character_is_that_of_its_token(family: str) -> None:
    tokenizer = WINDOWS[family]()
    ids = tokenizer.encode("🜚")
    detokenizer = IncrementalDetokenizer(tokenizer)
    data = []
    for index in ids:
        data.append(detokenizer.contribution(index))
        detokenizer.push(index)
    assert len(ids) > 1
    assert all(data)
    assert b"".join(data) == "🜚".encode()
