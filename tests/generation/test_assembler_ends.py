"""Stop ids, stops that stay in the text, tokens before which nothing ends the answer, and what rides along."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation import EngineChunk, EngineError, GenerationRequest, SequenceAssembler, Usage, prompt_entries
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer
from tests.engine_requests import generation_request
from tests.tokens.build import FIXED, all_exact, byte_level

TOKENIZERS = st.sampled_from(all_exact())
TEXT = st.text(alphabet="ab thé你😀\n", min_size=1, max_size=25)


def request(**changes: Any) -> GenerationRequest:
    return generation_request("r", **{"prompt": Prompt("p", (1, 2, 3)), "return_token_ids": True, **changes})


def letters(text: str) -> list[int]:
    """Byte-level ids, one for each byte."""
    known = {byte_level().token_bytes(i): i for i in range(byte_level().vocab_size)}
    return [known[bytes([byte])] for byte in text.encode()]


def run(
    asked: GenerationRequest,
    ids: Sequence[int],
    cuts: Sequence[int] | None = None,
    tokenizer: Tokenizer | None = None,
) -> tuple[SequenceAssembler, str, list[str]]:
    """Feed ids in chunks; returns the assembler, its text and the tokens of its entries."""
    assembler = SequenceAssembler(asked, tokenizer or byte_level())
    edges = [0, *sorted(cuts), len(ids)] if cuts is not None else list(range(len(ids) + 1))
    pieces = []
    for start, end in pairwise(edges):
        logprobs = [-0.5] * (end - start) if asked.params.logprobs else None
        pieces.append(assembler.feed(EngineChunk(ids=ids[start:end], logprobs=logprobs)))
    shown = [piece for piece in [*pieces, assembler.finish()] if piece is not None]
    entries = [entry.token for piece in shown for entry in piece.logprobs]
    return assembler, "".join(piece.text for piece in shown), entries


# Stop ids


@FIXED
@given(TEXT, TOKENIZERS, st.data(), st.booleans())
def test_a_stop_id_ends_the_answer_in_any_chunking(
    text: str, tokenizer: Tokenizer, data: st.DataObject, included: bool
) -> None:
    ids = tokenizer.encode(text)
    stop = data.draw(st.sampled_from(ids))
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    assembler, shown, _ = run(
        request(stop_token_ids=(stop,), include_stop_str_in_output=included), ids, cuts, tokenizer
    )
    kept = ids[: ids.index(stop) + 1]
    assert shown == tokenizer.decode(kept if included else kept[:-1])
    assert assembler.token_ids == kept
    assert assembler.usage == Usage(3, len(kept))
    assert assembler.surplus_tokens == len(ids) - len(kept)
    assert (assembler.finish_reason, assembler.stop_reason) == ("stop", stop)


def test_an_end_id_is_no_token_of_the_answer_even_when_it_is_a_stop_id_too() -> None:
    end = byte_level().eos_ids[0]
    assembler, shown, _ = run(
        request(end_ids=(end,), stop_token_ids=(end,), include_stop_str_in_output=True), [*letters("ab"), end]
    )
    assert (shown, assembler.usage.completion_tokens, assembler.stop_reason) == ("ab", 2, None)


def test_a_special_stop_id_shows_only_when_special_tokens_do() -> None:
    end = byte_level().eos_ids[0]
    asked = request(stop_token_ids=(end,), include_stop_str_in_output=True)
    assert run(asked, [*letters("ab"), end])[1] == "ab"
    asked = request(stop_token_ids=(end,), include_stop_str_in_output=True, skip_special_tokens=False)
    assert run(asked, [*letters("ab"), end])[1] == "ab<|im_end|>"


@pytest.mark.parametrize(("included", "entries"), [(False, ["a"]), (True, ["a", "b"])])
def test_the_entry_of_a_stop_id_comes_with_its_text(included: bool, entries: list[str]) -> None:
    ids = letters("abc")
    asked = request(stop_token_ids=(ids[1],), include_stop_str_in_output=included, logprobs=True)
    assert run(asked, ids)[2] == entries


def test_text_held_back_for_a_stop_string_shows_when_a_stop_id_ends_the_answer() -> None:
    ids = letters("aENz")
    assembler, shown, _ = run(request(stop=("END",), stop_token_ids=(ids[3],)), ids)
    assert (shown, assembler.stop_reason) == ("aEN", ids[3])


# Stops that stay


@FIXED
@given(TEXT, st.lists(st.sampled_from(["a", "th", "é你", "\n", "😀", "b "]), min_size=1, max_size=3), st.data())
def test_an_included_stop_string_ends_the_text(text: str, stops: list[str], data: st.DataObject) -> None:
    tokenizer = data.draw(TOKENIZERS)
    ids = tokenizer.encode(text)
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=6))
    without, cut, _ = run(request(stop=tuple(stops)), ids, cuts, tokenizer)
    assembler, shown, _ = run(request(stop=tuple(stops), include_stop_str_in_output=True), ids, cuts, tokenizer)
    found = without.stop_reason
    assert assembler.stop_reason == found
    assert shown == (cut + found if isinstance(found, str) else cut)
    assert assembler.usage == without.usage
    assert assembler.token_ids == without.token_ids == ids[: assembler.usage.completion_tokens]


def test_entries_of_an_included_stop_string() -> None:
    asked = request(stop=("EN",), include_stop_str_in_output=True, logprobs=True)
    assert run(asked, letters("aENx"))[1:] == ("aEN", ["a", "E", "N"])


def test_an_included_stop_of_an_engine_that_answers_text() -> None:
    asked = request(stop=("STOP",), end_texts=("<|end|>",), include_stop_str_in_output=True)
    for texts, shown in ((["a ST", "OP b"], "a STOP"), (["a <|e", "nd|>"], "a ")):
        assembler = SequenceAssembler(asked, byte_level())
        pieces = [*(assembler.feed(EngineChunk(text=text)) for text in texts), assembler.finish()]
        assert "".join(piece.text for piece in pieces if piece) == shown


# Tokens before which nothing ends it


def test_min_tokens_hold_back_every_end() -> None:
    end = byte_level().eos_ids[0]
    a, b, c = letters("abc")
    asked = request(end_ids=(end,), stop_token_ids=(b,), stop=("ab",), min_tokens=4)
    assembler, shown, _ = run(asked, [a, b, end, c, a, end, c])
    assert (shown, assembler.usage.completion_tokens) == ("abca", 5)
    assert assembler.token_ids == [a, b, end, c, a]
    assert assembler.finish_reason == "stop"
    held = request(stop=("ab",), min_tokens=4)
    assert run(held, [a, b, c, c, c, a, b, c])[1] == "abccc"


@FIXED
@given(TEXT, st.integers(0, 8), st.lists(st.integers(0, 25), max_size=6))
def test_min_tokens_are_reached_in_any_chunking(text: str, least: int, cuts: list[int]) -> None:
    ids = letters(text)
    stop = ids[0]
    cuts = [min(cut, len(ids)) for cut in cuts]
    assembler, shown, _ = run(request(stop_token_ids=(stop,), min_tokens=least), ids, cuts)
    ends = [place for place, index in enumerate(ids) if index == stop and place >= least]
    kept = ids[: ends[0]] if ends else ids
    assert shown == byte_level().decode(kept)
    assert assembler.usage.completion_tokens == len(kept) + bool(ends)


def test_the_positions_of_a_stop_after_min_tokens_are_right() -> None:
    asked = request(stop=("b",), min_tokens=2, logprobs=True)
    assembler, shown, entries = run(asked, letters("bbab!"))
    assert (shown, entries, assembler.usage.completion_tokens) == ("bba", ["b", "b", "a"], 4)


# What rides along


def test_cached_tokens_are_told_only_where_they_were_asked_for() -> None:
    last = EngineChunk(ids=letters("a"), final=True, cached_tokens=2)
    for asked, told in ((request(cached_tokens=True), 2), (request(), None)):
        assembler = SequenceAssembler(asked, byte_level())
        assembler.feed(last)
        assembler.finish()
        assert assembler.usage == Usage(3, 1, told)


def test_log_probs_of_the_prompt() -> None:
    tokenizer = byte_level()
    bos = tokenizer.bos_id
    assert bos is not None
    ids = (bos, *letters("xé"))
    asked = request(prompt=Prompt("", ids), prompt_logprobs=1)
    assembler = SequenceAssembler(asked, tokenizer)
    with pytest.raises(EngineError):
        assembler.prompt_entries()
    top = [[(ids[1], -1.0)], [(bos, -0.5)], [(ids[2], -0.25)]]
    assembler.feed(EngineChunk(ids=letters("a"), prompt_logprobs=[-1.0, -2.0, -float("inf")], prompt_top_logprobs=top))
    entries = assembler.prompt_entries()
    assert [entry.index for entry in entries] == list(ids)
    assert [entry.token for entry in entries] == [tokenizer.bos_token, "x", "bytes:\\xc3", "bytes:\\xa9"]
    assert [entry.logprob for entry in entries] == [None, -1.0, -2.0, -9999.0]
    assert entries[2].top == ((bos, tokenizer.bos_token, (tokenizer.bos_token or "").encode(), -0.5),)
    assert b"".join(entry.bytes for entry in entries).decode() == f"{tokenizer.bos_token}xé"
    hidden = assembler.prompt_entries(skip_special_tokens=True)
    assert (hidden[0].token, hidden[0].bytes) == (tokenizer.bos_token, b"")


@FIXED
@given(TEXT, TOKENIZERS)
def test_entries_of_a_prompt_concatenate_to_its_text(text: str, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(text)
    entries = prompt_entries(tokenizer, ids, [-1.0] * (len(ids) - 1))
    assert b"".join(entry.bytes for entry in entries).decode() == tokenizer.decode(ids, skip_special_tokens=False)


@FIXED
@given(TEXT, TEXT, st.lists(st.integers(0, 40), max_size=4), st.integers(0, 40), st.sampled_from([(), ("a",), ("th",)]))
def test_predicted_tokens_are_accepted_where_the_answer_begins_with_them(
    text: str, other: str, cuts: list[int], kept: int, stop: tuple[str, ...]
) -> None:
    ids = letters(text)
    draft = (*ids[:kept], *letters(other))
    asked = request(draft=draft, draft_limit=1, stop=stop, end_ids=(500,), vocab_size=501)
    assembler = SequenceAssembler(asked, byte_level())
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids) + 1]
    for start, end in pairwise(edges):
        if end - start != 1 or assembler.feed_token(([*ids, 500])[start]) is None:
            assembler.feed(EngineChunk([*ids, 500][start:end]))
    assembler.finish()
    pairs = zip(assembler.token_ids, draft, strict=False)
    same = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    expected = min(len(assembler.token_ids), len(draft)) if same is None else same
    assert assembler.usage.predicted == (expected, len(draft) - expected)


def test_what_became_of_a_prediction_is_unknown_without_ids() -> None:
    assembler = SequenceAssembler(request(draft=tuple(letters("abc"))), byte_level())
    assembler.feed(EngineChunk(text="abc", final=True))
    assembler.finish()
    assert assembler.usage.predicted is None
