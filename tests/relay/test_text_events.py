"""Chunks that go straight to the socket are, byte by byte, those that go the long way."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.openai.chat.answer import ChatChunkWriter as ChatWriter
from gateway.api.openai.chat.choice import ChunkExtras
from gateway.api.openai.completions.answer import CompletionChunkWriter as CompletionsWriter
from gateway.api.openai.generation_fields import StreamOptions
from gateway.generation import Piece, TokenLogprob
from gateway.generation.relay.text_events import PassthroughTemplate, one_line, parsed_events

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4)
MODEL = "a model\u2028of two lines"


def written(writer: Any, pieces: list[Piece]) -> list[Any]:
    """What goes straight to the socket."""
    sent: list[Any] = []
    writer.forward(sent.append)(pieces)
    return sent


@given(TEXTS, st.booleans())
def test_of_a_chat_and_of_a_completion(texts: list[str], usage: bool) -> None:
    pieces = [Piece(text) for text in texts]
    chat = ChatWriter({"model": MODEL}, StreamOptions(include_usage=usage))
    assert written(chat, pieces) == [one_line(b"".join(chat.piece(0, piece) for piece in pieces))]
    completion = CompletionsWriter({"model": MODEL}, StreamOptions(include_usage=usage))
    assert written(completion, pieces) == [one_line(b"".join(completion.choice(0, text) for text in texts))]


def test_log_probs_of_a_chat_go_with_their_text() -> None:
    writer = ChatWriter({"model": "m"})
    piece = Piece("a", [TokenLogprob(index=1, token="a", bytes=b"a", logprob=-0.5, top=())])
    assert written(writer, [piece]) == [writer.piece(0, piece)]
    assert b'"logprob":-0.5' in writer.piece(0, piece)


@given(TEXTS, st.booleans(), st.sampled_from([("content",), ("reasoning_content", "reasoning")]))
def test_of_texts_that_pass_a_parser(texts: list[str], usage: bool, fields: tuple[str, ...]) -> None:
    writer = ChatWriter({"model": MODEL}, StreamOptions(include_usage=usage))
    reading: Any = SimpleNamespace(passing=object(), passed=[*texts])
    kept, others = ["before"], [Piece("x")]
    sent: list[bytes] = []
    shown = PassthroughTemplate(writer.around(fields), [kept])
    forward = parsed_events(reading, lambda: shown, lambda pieces: repr(pieces).encode(), sent.append)
    forward(others)
    forward(texts)
    events = [writer.chunk(0, dict.fromkeys(fields, text), ChunkExtras()) for text in texts]
    assert sent == [repr(others).encode(), one_line(b"".join(events))]
    assert (kept, reading.passed) == (["before", *texts], [])


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_of_texts_that_are_one_event_with_a_number(turns: list[list[str]]) -> None:
    reading: Any = SimpleNamespace(passing=None, passed=[])
    ways: list[PassthroughTemplate | None] = [None, PassthroughTemplate((b'{"a":', b""), [])]
    sent: list[bytes] = []
    others: list[Any] = []
    forward = parsed_events(
        reading, lambda: ways.pop(0), others.append, sent.append, joined=True, numbers=itertools.count(7)
    )
    for texts in [["not yet"], *turns]:
        reading.passing = reading.passing or object()
        forward(texts)
    assert others == [["not yet"]], "nothing tells how it is shown"
    said = [one_line(orjson.dumps("".join(texts))) for texts in turns]
    assert sent == [b'{"a":%s,"sequence_number":%d}\n\n' % (each, 7 + turn) for turn, each in enumerate(said)]


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\u0085"])
def test_no_event_has_what_some_clients_take_for_the_end_of_a_line(text: str) -> None:
    for writer in (ChatWriter({"model": MODEL}), CompletionsWriter({"model": MODEL})):
        (event,) = written(writer, [Piece(text)])
        assert event.decode().splitlines() == [event.decode().rstrip("\n"), ""]
