"""Responses to chunks."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_triton import ask, floats, ints, response, string, text, tokens

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton.dialects.answers import TextReader, TokenReader


def infer(message: Any) -> Any:
    return message.infer_response


def test_one_token_several_and_none() -> None:
    reader = TokenReader(ask())
    assert list(reader.read(infer(tokens(7)), final=False).ids) == [7]
    assert list(reader.read(infer(tokens(8, 9, 2**31 - 1)), final=False).ids) == [8, 9, 2**31 - 1]
    last = reader.read(infer(tokens(final=True)), final=True)
    assert list(last.ids) == []
    assert last.final


def test_padding_beyond_the_sequence_length_is_not_tokens() -> None:
    message = response(output_ids=ints(4, 5, -1, -1), sequence_length=ints(2))
    assert list(TokenReader(ask()).read(infer(message), final=False).ids) == [4, 5]


def test_cumulative_log_probs_are_sliced_to_the_new_tokens() -> None:
    reader = TokenReader(ask(logprobs=True))
    first = reader.read(infer(tokens(1, output_log_probs=floats(-0.5))), final=False)
    second = reader.read(infer(tokens(2, 3, output_log_probs=floats(-0.5, -1, -2))), final=False)
    # An entry for the end token beyond the tokens shown is ignored.
    third = reader.read(infer(tokens(4, output_log_probs=floats(-0.5, -1, -2, -4, -8))), final=True)
    assert [list(chunk.logprobs or ()) for chunk in (first, second, third)] == [[-0.5], [-1, -2], [-4]]


def test_missing_log_probs_are_an_error_not_an_invention() -> None:
    reader = TokenReader(ask(logprobs=True))
    reader.read(infer(tokens(1, output_log_probs=floats(-0.5))), final=False)
    with pytest.raises(EngineError) as error:
        reader.read(infer(tokens(2, output_log_probs=floats(-0.5))), final=False)
    assert error.value.kind is ErrorKind.INTERNAL


def test_unasked_log_probs_are_ignored() -> None:
    chunk = TokenReader(ask()).read(infer(tokens(1, output_log_probs=floats(0))), final=False)
    assert chunk.logprobs is None


def test_alternatives_per_token() -> None:
    message = tokens(
        1,
        2,
        output_log_probs=floats(-1, -2),
        top_log_probs_ids=ints(1, 5, 6, 2),
        top_log_probs=floats(-1, -3, -0.5, -2),
    )
    chunk = TokenReader(ask(logprobs=True, top_logprobs=2)).read(infer(message), final=False)
    assert chunk.top_logprobs == [[(1, -1), (5, -3)], [(6, -0.5), (2, -2)]]


@pytest.mark.parametrize(("word", "reason"), [(b"stop", "stop"), (b"length", "length"), (b"None", None), (b"", None)])
def test_finish_reason_of_the_engine(word: bytes, reason: str | None) -> None:
    reader = TokenReader(ask())
    assert reader.read(infer(tokens(1, finish_reason=string(b"stop"))), final=False).finish_reason is None
    assert reader.read(infer(tokens(final=True, finish_reason=string(word))), final=True).finish_reason == reason


def test_counts_of_the_server() -> None:
    assert TokenReader(ask()).read(infer(tokens(1, num_input_tokens=ints(12))), final=False).prompt_tokens == 12
    chunk = TextReader().read(infer(text(b"a b", num_input_tokens=ints(3), num_output_tokens=ints(2))), final=False)
    assert (chunk.text, chunk.prompt_tokens, chunk.output_tokens) == ("a b", 3, 2)


def test_text_of_a_broken_character_is_kept_as_replacement() -> None:
    assert TextReader().read(infer(text(b"\xf0\x9f")), final=False).text == "\ufffd"


@pytest.mark.parametrize("reader", [TokenReader(ask()), TextReader()])
def test_an_end_without_any_data_is_an_error(reader: TokenReader | TextReader) -> None:
    with pytest.raises(EngineError) as error:
        reader.read(infer(response(final=True)), final=True)
    assert error.value.kind is ErrorKind.INTERNAL
