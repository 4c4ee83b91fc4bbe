from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.generation import (
    EngineChunk,
    EngineError,
    ErrorKind,
    GenerationRequest,
    Piece,
    SequenceAssembler,
    TokenLogprob,
    Usage,
)
from gateway.generation.engine import MalformedOutputError
from gateway.text.prompt.prompt import Prompt
from gateway.text.tokens import Tokenizer
from tests.engine_requests import generation_request
from tests.tokens.build import FIXED, all_exact, byte_level, sentence_piece

GIVEN_UP = EngineError(ErrorKind.CANCELLED, "cancelled")
PROMPT = Prompt("p", (1, 2, 3))
TOKENIZERS = st.sampled_from(all_exact())
TEXT = st.text(alphabet="ab thé你😀\n", min_size=1, max_size=25)


def request(**changes: Any) -> GenerationRequest:
    return generation_request("r", **{"prompt": PROMPT, **changes})


def chunk(ids: Sequence[int], logprobs: bool = False, **rest: Any) -> EngineChunk:
    if logprobs:
        rest |= {"logprobs": [-0.5] * len(ids), "top_logprobs": [[(i, -0.5), (i + 1, -2.0)] for i in ids]}
    return EngineChunk(ids=ids, **rest)


class Run:
    """One sequence through an assembler, kept as a client would see it."""

    def __init__(self, asked: GenerationRequest, tokenizer: Tokenizer, chunks: Sequence[EngineChunk]) -> None:
        self.assembler = SequenceAssembler(asked, tokenizer)
        fed = [self.assembler.feed(item) for item in chunks]
        self.pieces: list[Piece] = [piece for piece in [*fed, self.assembler.finish()] if piece is not None]
        self.text = "".join(piece.text for piece in self.pieces)
        self.entries: list[TokenLogprob] = [entry for piece in self.pieces for entry in piece.logprobs]
        self.usage: Usage = self.assembler.usage
        self.reason: str = self.assembler.finish_reason


def group(ids: list[int], cuts: list[int], logprobs: bool = False) -> list[EngineChunk]:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [chunk(ids[a:b], logprobs) for a, b in pairwise(edges)]


def only(tokenizer: Tokenizer, text: str) -> int:
    index = tokenizer.token_id(text)
    assert index is not None
    return index


def raw_bytes(data: bytes) -> list[int]:
    """Byte-level ids, one for each byte."""
    known = {byte_level().token_bytes(i): i for i in range(byte_level().vocab_size)}
    return [known[bytes([byte])] for byte in data]


# Text, usage and reason


@FIXED
@given(TEXT, TOKENIZERS, st.lists(st.integers(0, 40), max_size=8), st.booleans())
def test_everything_shows_when_nothing_stops(text: str, tokenizer: Tokenizer, cuts: list[int], logprobs: bool) -> None:
    ids = tokenizer.encode(text)
    run = Run(request(logprobs=logprobs), tokenizer, group(ids, cuts, logprobs))
    assert run.text == tokenizer.decode(ids)
    assert run.usage == Usage(3, len(ids))
    assert run.reason == "stop"
    assert len(run.entries) == (len(ids) if logprobs else 0)


@FIXED
@given(TEXT, st.lists(st.sampled_from(["a", "th", "é你", "\n", "😀", "b "]), min_size=1, max_size=3), st.data())
def test_a_stop_string_cuts_text_and_usage_at_its_token(text: str, stops: list[str], data: st.DataObject) -> None:
    tokenizer = data.draw(TOKENIZERS)
    ids = tokenizer.encode(text)
    run = Run(request(stop=tuple(stops)), tokenizer, group(ids, data.draw(st.lists(st.integers(0, 40), max_size=8))))
    whole = tokenizer.decode(ids)
    ends = [(whole.find(stop) + len(stop), -len(stop)) for stop in stops if stop in whole]
    if not ends:
        assert (run.text, run.usage.completion_tokens) == (whole, len(ids))
        return
    end, length = min(ends)
    assert run.text == whole[: end + length]
    assert run.reason == "stop"
    needed = next(n for n in range(1, len(ids) + 1) if tokenizer.decode(ids[:n]).startswith(whole[:end]))
    assert run.usage.completion_tokens == needed
    assert run.usage.completion_tokens + run.assembler.surplus_tokens == len(ids)


def test_a_byte_token_that_is_a_stop_is_the_last_one_counted() -> None:
    """A run of byte tokens is read as a whole, so the stop shows one token late; usage must not."""
    tokenizer = sentence_piece("llama2")
    he, newline = only(tokenizer, "he"), only(tokenizer, "<0x0A>")
    run = Run(request(stop=("\n",)), tokenizer, [chunk([i]) for i in (he, newline, newline, he)])
    assert (run.text, run.usage.completion_tokens, run.assembler.surplus_tokens) == ("he", 2, 2)
    at_the_end = Run(request(stop=("\n",)), tokenizer, [chunk([he]), chunk([newline])])
    assert (at_the_end.text, at_the_end.usage.completion_tokens, at_the_end.reason) == ("he", 2, "stop")


def test_tokens_after_a_match_are_surplus_and_unseen() -> None:
    tokenizer = byte_level()
    assembler = SequenceAssembler(request(stop=("X",)), tokenizer)
    piece = assembler.feed(chunk(raw_bytes(b"abXcd")))
    assert piece is not None
    assert piece.text == "ab"
    assert assembler.stopped
    assert assembler.feed(chunk(raw_bytes(b"efX"), final=True, failure=GIVEN_UP)) is None
    assert assembler.finish() is None
    assert (assembler.surplus_tokens, assembler.usage, assembler.finish_reason) == (5, Usage(3, 3), "stop")


@pytest.mark.parametrize("stop", [(), ("zzz",)])
def test_an_end_id_ends_the_answer_uncounted(stop: tuple[str, ...]) -> None:
    tokenizer = byte_level()
    ids = [*raw_bytes(b"hiz"), tokenizer.eos_ids[1]]
    run = Run(request(end_ids=tokenizer.eos_ids, stop=stop, max_tokens=4), tokenizer, [chunk(ids[:2]), chunk(ids[2:])])
    assert (run.text, run.usage, run.reason) == ("hiz", Usage(3, 3), "stop")
    assert run.assembler.stopped
    assert run.assembler.surplus_tokens == 0


@pytest.mark.parametrize(
    ("engine", "limit", "expected"),
    [(None, 3, "length"), (None, 4, "stop"), ("stop", 3, "stop"), ("length", 9, "length")],
)
def test_the_reason_is_the_engines_or_follows_from_the_count(engine: Any, limit: int, expected: str) -> None:
    chunks = [chunk(raw_bytes(b"abc")), EngineChunk(final=True, finish_reason=engine)]
    assert Run(request(max_tokens=limit), byte_level(), chunks).reason == expected


def test_a_request_that_someone_cancelled_has_no_reason() -> None:
    assembler = SequenceAssembler(request(), byte_level())
    assert assembler.feed(chunk(raw_bytes(b"ab"))) == Piece("ab")
    assert assembler.feed(chunk(raw_bytes(b"c"), final=True, failure=GIVEN_UP)) == Piece("c"), "what it said is shown"
    with pytest.raises(EngineError) as failure:
        assembler.finish()
    assert failure.value.kind is ErrorKind.CANCELLED
    assert assembler.usage.completion_tokens == 3


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("index", [-1, 2**31 - 1])
def test_an_id_that_no_token_has_is_no_answer(index: int, watched: bool) -> None:
    tokenizer = byte_level()
    assembler = SequenceAssembler(request(stop=("zz",) if watched else ()), tokenizer)
    assert assembler.feed_token(index) is None
    with pytest.raises(MalformedOutputError):
        assembler.feed(EngineChunk([*raw_bytes(b"a"), index]))
    padding = SequenceAssembler(request(vocab_size=tokenizer.vocab_size + 8), tokenizer)
    assert padding.feed(EngineChunk([*raw_bytes(b"a"), tokenizer.vocab_size + 7])) == Piece("a")


def test_a_token_that_completes_nothing_makes_no_event() -> None:
    assembler = SequenceAssembler(request(), byte_level())
    fed = [assembler.feed(chunk([i])) for i in raw_bytes("é".encode())]
    assert fed == [None, Piece("é")]
    assert assembler.feed(EngineChunk(final=True)) is None
    assert assembler.finish() is None


def test_the_engines_count_of_the_prompt_wins() -> None:
    run = Run(request(), byte_level(), [chunk(raw_bytes(b"a"), prompt_tokens=7)])
    assert run.usage == Usage(7, 1)


# Log-probs


@FIXED
@given(TEXT, TOKENIZERS, st.lists(st.integers(0, 40), max_size=8), st.sampled_from([(), ("qq",), ("a", "th", "\n")]))
def test_entries_concatenate_to_the_text(
    text: str, tokenizer: Tokenizer, cuts: list[int], stop: tuple[str, ...]
) -> None:
    ids = tokenizer.encode(text)
    run = Run(request(logprobs=True, top_logprobs=1, stop=stop), tokenizer, group(ids, cuts, logprobs=True))
    joined = b"".join(entry.bytes for entry in run.entries)
    assert joined.startswith(run.text.encode())
    if run.assembler.stopped:
        assert len(joined) - len(run.entries[-1].bytes if run.entries else b"") <= len(run.text.encode())
    else:
        assert joined == run.text.encode()
    shown, told = 0, 0
    for piece in run.pieces:
        shown += len(piece.text.encode())
        told += sum(len(entry.bytes) for entry in piece.logprobs)
        assert told <= shown or piece is run.pieces[-1]


def test_partial_characters_have_the_bytes_form_and_come_together() -> None:
    ids = raw_bytes("x😀y".encode())
    run = Run(request(logprobs=True), byte_level(), [chunk([i], logprobs=True) for i in ids])
    assert [[entry.token for entry in piece.logprobs] for piece in run.pieces] == [
        ["x"],
        ["bytes:\\xf0", "bytes:\\x9f", "bytes:\\x98", "bytes:\\x80"],
        ["y"],
    ]
    assert [entry.bytes for entry in run.entries][1:3] == [b"\xf0", b"\x9f"]


def test_a_token_that_straddles_the_cut_keeps_its_entry_and_later_ones_do_not() -> None:
    tokenizer = byte_level()
    capital = tokenizer.encode(" capital")
    assert len(capital) == 1
    ids = [*raw_bytes(b"a"), *capital, *raw_bytes(b"ly")]
    run = Run(request(logprobs=True, stop=("pitally",)), tokenizer, [chunk([i], logprobs=True) for i in ids])
    assert run.text == "a ca"
    assert [entry.token for entry in run.entries] == ["a", " capital"]
    whole = Run(request(logprobs=True, stop=("aly",)), tokenizer, [chunk(raw_bytes(b"haly"), logprobs=True)])
    assert [entry.token for entry in whole.entries] == ["h"]


def test_a_token_without_text_rides_with_the_next_event() -> None:
    tokenizer = byte_level()
    ids = [*raw_bytes(b"a"), only(tokenizer, "<|im_start|>"), *raw_bytes(b"b")]
    run = Run(request(logprobs=True), tokenizer, [chunk([i], logprobs=True) for i in ids])
    assert [(piece.text, [(e.token, e.bytes) for e in piece.logprobs]) for piece in run.pieces] == [
        ("a", [("a", b"a")]),
        ("b", [("<|im_start|>", b""), ("b", b"b")]),
    ]


def test_entries_left_at_the_end_come_with_finish() -> None:
    tokenizer = byte_level()
    ids = [*raw_bytes(b"a"), only(tokenizer, "<|im_start|>")]
    run = Run(request(logprobs=True), tokenizer, [chunk([i], logprobs=True) for i in ids])
    assert [piece.text for piece in run.pieces] == ["a", ""]


def test_alternatives_are_as_many_as_asked_for_and_named_like_tokens() -> None:
    tokenizer = byte_level()
    a, half, end = *raw_bytes(b"a\xc3"), tokenizer.eos_ids[0]
    top = [[(a, -0.1), (half, -2.5), (end, -math.inf), (a, -9.0)]]
    run = Run(
        request(logprobs=True, top_logprobs=3),
        tokenizer,
        [EngineChunk(ids=[a], logprobs=[-0.1], top_logprobs=top)],
    )
    assert run.entries[0].top == (
        ("a", b"a", -0.1),
        ("bytes:\\xc3", b"\xc3", -2.5),
        ("<|im_end|>", b"<|im_end|>", -9999.0),
    )
    assert Run(request(logprobs=True), tokenizer, [chunk([a], logprobs=True)]).entries[0].top == ()


def test_the_list_may_lack_the_end_id_and_have_one_more() -> None:
    tokenizer = byte_level()
    a, end = raw_bytes(b"a")[0], tokenizer.eos_ids[1]
    asked = request(logprobs=True, end_ids=tokenizer.eos_ids)
    assert len(Run(asked, tokenizer, [EngineChunk(ids=[a, end], logprobs=[-1.0])]).entries) == 1
    assert len(Run(asked, tokenizer, [EngineChunk(ids=[a], logprobs=[-1.0, -2.0])]).entries) == 1


@pytest.mark.parametrize("bad", [None, [-1.0], [-1.0, math.nan]])
def test_missing_or_broken_log_probs_are_an_error(bad: list[float] | None) -> None:
    assembler = SequenceAssembler(request(logprobs=True), byte_level())
    with pytest.raises(EngineError) as failure:
        assembler.feed(EngineChunk(ids=raw_bytes(b"ab"), logprobs=bad))
    assert failure.value.kind is ErrorKind.INTERNAL


def test_missing_alternatives_are_an_error() -> None:
    assembler = SequenceAssembler(request(logprobs=True, top_logprobs=2), byte_level())
    with pytest.raises(EngineError):
        assembler.feed(EngineChunk(ids=raw_bytes(b"a"), logprobs=[-1.0]))


# Engines that answer in text only


def test_text_only_answers_are_cut_and_counted() -> None:
    texts = ["Hel", "lo wo", "rld STO", "P here"]
    counted = Run(request(stop=("STOP",)), byte_level(), [EngineChunk(text=t, output_tokens=2) for t in texts])
    # Of the last two tokens one at least is of the stop string, and nobody says whether both are.
    assert (counted.text, counted.usage, counted.reason) == ("Hello world ", Usage(3, 7, estimated=True), "stop")
    again = Run(request(stop=("STOP",)), byte_level(), [EngineChunk(text=t) for t in texts])
    assert again.usage == Usage(3, len(byte_level().encode("Hello world STOP")), estimated=True)


def test_a_count_up_to_a_stop_string_is_exact_where_no_token_follows_it_in_its_response() -> None:
    for chunks in ([("Hello STOP", 4)], [("Hello S", 2), ("TOP", 1), ("x", 1)], [("Hello ", 3), ("STOP!", 1)]):
        run = Run(request(stop=("STOP",)), byte_level(), [EngineChunk(text=t, output_tokens=n) for t, n in chunks])
        assert not run.usage.estimated
        assert run.usage.completion_tokens == sum(n for t, n in chunks if t != "x")


def test_no_estimate_is_above_the_limit() -> None:
    ended = EngineChunk(text="abcd", finish_reason="stop", final=True)  # as three tokens, or four
    run = Run(request(max_tokens=3), byte_level(), [ended])
    assert (run.usage, run.reason) == (Usage(3, 3, estimated=True), "stop")


def test_an_answer_that_is_counted_at_each_event_is_not_tokenized_anew_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer, sizes = byte_level(), list[int]()
    encode = tokenizer.encode

    def noted(text: str) -> list[int]:
        sizes.append(len(text))
        return encode(text)

    monkeypatch.setattr(tokenizer, "encode", noted)
    assembler = SequenceAssembler(request(max_tokens=10_000), tokenizer)
    counts = []
    for _ in range(1000):
        assembler.feed(EngineChunk(text=" word"))
        counts.append(assembler.usage)
    assert counts == [Usage(3, len(encode(" word")) * (place + 1), estimated=True) for place in range(1000)]
    assert max(sizes) < 1000
    assembler.finish()
    assert assembler.usage == Usage(3, len(encode(" word" * 1000)), estimated=True)
    assert sizes[-1] == 5000  # exactly as an answer that is not streamed


def test_a_whole_answer_is_not_counted_beyond_its_stop_string() -> None:
    whole = EngineChunk(text="one STOP and much more", output_tokens=22, final=True)
    run = Run(request(stop=("STOP",), max_tokens=22), byte_level(), [whole])
    assert (run.text, run.reason) == ("one ", "stop")
    assert run.usage == Usage(3, len(byte_level().encode("one STOP")), estimated=True)
    assert not run.assembler.finish_estimated


def test_an_answer_that_the_engine_has_cut_has_as_many_tokens_as_were_asked_for() -> None:
    cut = EngineChunk(text="ab", finish_reason="length", final=True)
    run = Run(request(max_tokens=5), byte_level(), [cut])
    assert (run.usage, run.reason, run.assembler.finish_estimated) == (Usage(3, 5), "length", False)
    ended = EngineChunk(text="ab", finish_reason="stop", final=True)
    run = Run(request(max_tokens=5), byte_level(), [ended])
    assert (run.usage, run.reason) == (Usage(3, 2, estimated=True), "stop")
    assert not run.assembler.finish_estimated


def test_text_of_an_end_id_is_trimmed_and_not_counted() -> None:
    chunks = [EngineChunk(text="Hi<|eot", output_tokens=3), EngineChunk(text="_id|>", output_tokens=1, final=True)]
    run = Run(request(end_texts=("<|im_end|>", "<|eot_id|>")), byte_level(), chunks)
    assert (run.text, run.usage, run.reason) == ("Hi", Usage(3, 3), "stop")


def test_text_only_surplus_and_length() -> None:
    assembler = SequenceAssembler(request(stop=("X",)), byte_level())
    assembler.feed(EngineChunk(text="aX", output_tokens=2))
    assembler.feed(EngineChunk(text="b", output_tokens=1))
    assembler.finish()
    assert (assembler.surplus_tokens, assembler.usage.completion_tokens) == (1, 2)
    chunks = [EngineChunk(text="abc", output_tokens=3, prompt_tokens=9), EngineChunk(final=True)]
    full = Run(request(max_tokens=3), byte_level(), chunks)
    assert (full.reason, full.usage) == ("length", Usage(9, 3))


def test_text_cannot_stand_for_log_probs() -> None:
    assembler = SequenceAssembler(request(logprobs=True), byte_level())
    with pytest.raises(EngineError):
        assembler.feed(EngineChunk(text="a"))


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("cuts", "message"), [([], "more tokens than the 3"), ([1, 2, 3], "more tokens than the 3"), ([2], "than the 3")]
)
def test_more_tokens_than_were_asked_for_are_an_error(plain: bool, cuts: list[int], message: str) -> None:
    tokenizer = byte_level()
    asked = request(max_tokens=3, stop=() if plain else ("zz",))
    with pytest.raises(EngineError, match=message) as failure:
        Run(asked, tokenizer, group(tokenizer.encode("aaaa"), cuts))
    assert failure.value.kind is ErrorKind.INTERNAL


def test_a_token_that_came_alone_is_left_where_it_is_wrong() -> None:
    tokenizer = byte_level()
    (index,) = tokenizer.encode("a")
    assembler = SequenceAssembler(request(max_tokens=1), tokenizer)
    assert assembler.feed_token(-1) is None
    assert assembler.feed_token(index) == "a"
    assert assembler.feed_token(index) is None
    assert assembler.usage.completion_tokens == 1


# Tokens that come alone


def alone(
    asked: GenerationRequest, tokenizer: Tokenizer, scored: Sequence[tuple[int, float]]
) -> tuple[list[Piece], SequenceAssembler, int]:
    """The pieces of tokens, each with its log-prob, of which as many as possible take the short way; how many did."""
    assembler = SequenceAssembler(asked, tokenizer)
    feed_alone, taken = assembler.feed_alone, 0
    pieces: list[Piece | None] = []
    for index, logprob in scored:
        top = [(index, logprob), (index + 1, -2.0)]
        short = assembler.feed_scored((index, logprob, top)) if asked.params.logprobs else feed_alone(index)
        if short is None:
            said = EngineChunk([index], logprobs=[logprob], top_logprobs=[top])
            pieces.append(assembler.feed(said if asked.params.logprobs else EngineChunk([index])))
        else:
            taken += 1
            pieces.append(short if isinstance(short, Piece) else Piece(short) if short else None)
    pieces.append(assembler.finish())
    return [piece for piece in pieces if piece is not None], assembler, taken


@FIXED
@given(
    TOKENIZERS,
    TEXT,
    st.sampled_from([{}, {"stop": ("b", "th")}, {"stop": ("ab a", "é你")}, {"logprobs": True},
                     {"logprobs": True, "top_logprobs": 1}, {"logprobs": True, "top_logprobs": 2}]),
    st.lists(st.floats(max_value=0, allow_nan=False, width=32), min_size=1, max_size=3),
    st.integers(1, 60),
)  # fmt: skip
def test_the_short_way_of_a_token_says_the_same(
    tokenizer: Tokenizer, text: str, fields: dict[str, Any], values: list[float], most: int
) -> None:
    ids = tokenizer.encode(text * 2)[:most]
    scored = [(index, values[place % len(values)]) for place, index in enumerate(ids)]
    asked = request(max_tokens=most, **fields)
    short, assembler, _ = alone(asked, tokenizer, scored)
    chunks = [
        EngineChunk([index], logprobs=[value], top_logprobs=[[(index, value), (index + 1, -2.0)]])
        if asked.params.logprobs
        else EngineChunk([index])
        for index, value in scored
    ]
    long = Run(asked, tokenizer, chunks)
    assert short == long.pieces
    assert (assembler.usage, assembler.finish_reason) == (long.usage, long.reason)
    assert (assembler.stop_reason, assembler.surplus_tokens) == (
        long.assembler.stop_reason,
        long.assembler.surplus_tokens,
    )


@pytest.mark.parametrize("fields", [{"stop": ("zz",)}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2}])
def test_most_tokens_take_the_short_way(fields: dict[str, Any]) -> None:
    tokenizer = byte_level()
    scored = [(index, -0.5) for index in raw_bytes(b"a text of some letters")]
    alone(request(), tokenizer, scored)
    assert alone(request(**fields), tokenizer, scored)[2] == len(scored)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("of_other", [True, False])
def test_a_token_alone_whose_log_prob_is_no_number_is_left(value: float, *, of_other: bool) -> None:
    tokenizer = byte_level()
    ids = raw_bytes(b"ab")
    alone(request(), tokenizer, [(index, -0.5) for index in ids])
    assembler = SequenceAssembler(request(logprobs=True, top_logprobs=1), tokenizer)
    token = (ids[0], -0.5, [(ids[1], value)]) if of_other else (ids[0], value, [(ids[1], -0.5)])
    assert assembler.feed_scored(token) is None
    with pytest.raises(MalformedOutputError):
        assembler.feed(EngineChunk([token[0]], logprobs=[token[1]], top_logprobs=[token[2]]))
