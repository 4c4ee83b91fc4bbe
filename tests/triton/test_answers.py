"""Responses to chunks."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import pytest
from scripted_triton import ask, floats, ints, response, string, text, tokens

from gateway.generation.engine import EngineError, ErrorKind
from gateway.text.prompt.prompt import Prompt
from gateway.triton.abilities import Abilities
from gateway.triton.tensors.answer_readers import TextReader, TokenReader
from tests.triton.calls import of


def infer(message: Any) -> Any:
    return message.infer_response


def table(tensor: tuple[str, list[int], bytes], rows: int) -> tuple[str, list[int], bytes]:
    """The same values in rows."""
    datatype, shape, raw = tensor
    return datatype, [1, rows, shape[-1] // rows], raw


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


def test_the_first_of_several_beams_is_the_answer() -> None:
    """All beams come at once, side by side and padded; the first is the best."""
    message = response(
        output_ids=("INT32", [1, 2, 3], ints(4, 5, -1, 7, 8, 9)[2]),
        sequence_length=("INT32", [1, 2], ints(2, 3)[2]),
        output_log_probs=("FP32", [1, 2, 3], floats(-1, -2, 0, -3, -4, -5)[2]),
    )
    chunk = TokenReader(ask(logprobs=True, beam_width=2)).read(infer(message), final=True)
    assert list(chunk.ids) == [4, 5]
    assert chunk.logprobs == [-1, -2]


def test_cumulative_log_probs_are_sliced_to_the_new_tokens() -> None:
    reader = TokenReader(ask(logprobs=True))
    first = reader.read(infer(tokens(1, output_log_probs=floats(-0.5))), final=False)
    second = reader.read(infer(tokens(2, 3, output_log_probs=floats(-0.5, -1, -2))), final=False)
    # An entry for the end token beyond the tokens shown is ignored.
    third = reader.read(infer(tokens(4, output_log_probs=floats(-0.5, -1, -2, -4, -8))), final=True)
    assert [list(chunk.logprobs or ()) for chunk in (first, second, third)] == [[-0.5], [-1, -2], [-4]]


def test_unasked_log_probs_are_ignored() -> None:
    chunk = TokenReader(ask()).read(infer(tokens(1, output_log_probs=floats(0))), final=False)
    assert chunk.logprobs is None


def test_alternatives_per_token() -> None:
    message = tokens(
        1,
        2,
        output_log_probs=floats(-1, -2),
        top_log_probs_ids=table(ints(1, 5, 6, 2), 2),
        top_log_probs=table(floats(-1, -3, -0.5, -2), 2),
    )
    chunk = TokenReader(ask(logprobs=True, top_logprobs=2)).read(infer(message), final=False)
    assert chunk.top_logprobs == [[(1, -1), (5, -3)], [(6, -0.5), (2, -2)]]


@pytest.mark.parametrize("reader", [TokenReader, lambda _: TextReader()], ids=["tokens", "text"])
@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        (b"stop", "stop"),
        (b"STOP", "stop"),
        (b"end_id", "stop"),
        (b"stop_words", "stop"),
        (b"length", "length"),
        (b"", None),
        (b"timeout", ErrorKind.TIMEOUT),
        (b"TIMED_OUT", ErrorKind.TIMEOUT),
        (b"cancelled", ErrorKind.CANCELLED),
        (b"None", ErrorKind.INTERNAL),  # it has ended and says that it has not
        (b"not_finished", ErrorKind.INTERNAL),
        (b"content_filter", ErrorKind.INTERNAL),
        (b"\xff\xfe", ErrorKind.INTERNAL),
    ],
)
def test_only_reasons_that_are_known_make_a_whole_answer(reader: Any, word: bytes, meaning: Any) -> None:
    chunk = reader(ask()).read(
        infer(tokens(1, final=True, text_output=string(b"a"), finish_reason=string(word))), final=True
    )
    kind = None if chunk.failure is None else chunk.failure.kind
    assert (chunk.finish_reason or kind) == meaning


@pytest.mark.parametrize("word", [b"None", b"not_finished", b""])
def test_a_response_before_the_last_may_say_that_it_is_not(word: bytes) -> None:
    chunk = TokenReader(ask()).read(infer(tokens(1, finish_reason=string(word))), final=False)
    assert (chunk.finish_reason, chunk.failure) == (None, None)


def test_an_end_may_be_told_before_or_after_the_last_token() -> None:
    before = TokenReader(ask()).read(infer(tokens(1, finish_reason=string(b"timed_out"))), final=False)
    assert before.failure is not None
    reader = TokenReader(ask())
    reader.read(infer(tokens(1)), final=False)
    after = reader.read(infer(response(final=True, finish_reason=string(b"length"))), final=True)
    assert after.finish_reason == "length"


def test_counts_of_the_server() -> None:
    assert TokenReader(ask()).read(infer(tokens(1, num_input_tokens=ints(12))), final=False).prompt_tokens == 12
    chunk = TextReader().read(infer(text(b"a b", num_input_tokens=ints(3), num_output_tokens=ints(2))), final=False)
    assert (chunk.text, chunk.prompt_tokens, chunk.output_tokens) == ("a b", 3, 2)


def test_text_of_a_broken_character_is_kept_as_replacement() -> None:
    assert TextReader().read(infer(text(b"\xf0\x9f")), final=False).text == "\ufffd"


def logits(*rows: list[float], shape: list[int], datatype: str = "FP32") -> tuple[str, list[int], bytes]:
    values = [value for row in rows for value in row]
    return datatype, shape, struct.pack(f"<{len(values)}{'f' if datatype == 'FP32' else 'e'}", *values)


def softmax(row: list[float]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in row))
    return [value - total for value in row]


LOGITS = Abilities(top_logprobs="logits", logprobs="tensor", prompt_logprobs="logits", vocab_size=3)


@pytest.mark.parametrize("datatype", ["FP32", "FP16"])
@pytest.mark.parametrize("shape", [[1, 2, 1, 4], [1, 1, 2, 4]], ids=["streaming", "whole"])
def test_alternatives_from_logits(shape: list[int], datatype: str) -> None:
    """In either order of the axes; what pads the vocabulary is no candidate."""
    rows = [0.5, 1.0, -2.0, 99.0], [3.0, -1.0, 0.25, 99.0]
    message = tokens(1, 0, generation_logits=logits(*rows, shape=shape, datatype=datatype))
    chunk = TokenReader(ask(logprobs=True, top_logprobs=2), LOGITS).read(infer(message), final=False)
    first, second = softmax(rows[0][:3]), softmax(rows[1][:3])
    assert chunk.logprobs == pytest.approx([first[1], second[0]])
    assert chunk.top_logprobs is not None
    assert [[index for index, _ in best] for best in chunk.top_logprobs] == [[1, 0], [0, 2]]
    assert [value for best in chunk.top_logprobs for _, value in best] == pytest.approx(
        [first[1], first[0], second[0], second[2]]
    )


def test_more_alternatives_than_there_are_tokens() -> None:
    message = tokens(1, generation_logits=logits([0.5, 1.0, -2.0], shape=[1, 1, 1, 3]))
    chunk = TokenReader(ask(logprobs=True, top_logprobs=20), LOGITS).read(infer(message), final=False)
    assert len(chunk.top_logprobs[0]) == 3


def test_log_probs_of_the_prompt_come_once() -> None:
    asked = ask(prompt=Prompt("", (5, 6, 7)), prompt_logprobs=2)
    message = tokens(
        1,
        prompt_log_probs=floats(-1, -2),
        prompt_top_log_probs_ids=table(ints(6, 9, 7, 8), 2),
        prompt_top_log_probs=table(floats(-1, -3, -2, -4), 2),
    )
    reader = TokenReader(asked)
    chunk = reader.read(infer(message), final=False)
    assert chunk.prompt_logprobs == [-1, -2]
    assert chunk.prompt_top_logprobs == [[(6, -1), (9, -3)], [(7, -2), (8, -4)]]
    assert reader.read(infer(tokens(2, final=True)), final=True).prompt_logprobs is None


def test_log_probs_of_the_prompt_from_context_logits() -> None:
    """Each row predicts the token after it."""
    rows = [0.5, 1.0, -2.0], [3.0, -1.0, 0.25], [0.0, 0.0, 0.0]
    asked = ask(prompt=Prompt("", (0, 1, 2)), prompt_logprobs=1)
    message = tokens(1, context_logits=logits(*rows, shape=[1, 3, 3]))
    chunk = TokenReader(asked, LOGITS).read(infer(message), final=False)
    assert chunk.prompt_logprobs == pytest.approx([softmax(rows[0])[1], softmax(rows[1])[2]])
    assert chunk.prompt_top_logprobs is not None
    assert [best[0][0] for best in chunk.prompt_top_logprobs] == [1, 0]


PROMPT = Prompt("", (0, 1, 2))
PLAIN = Abilities()
ALTERNATIVES = {"logprobs": True, "top_logprobs": 1}
MISSING: dict[str, tuple[Abilities, dict[str, Any], Any, str]] = {
    "an end without any data": (PLAIN, {}, response(final=True), "ended before it was complete"),
    "too few log-probs": (
        PLAIN,
        {"logprobs": True},
        tokens(1, 2, output_log_probs=floats(-0.5)),
        "requested log-probs.",
    ),
    "no logits": (LOGITS, ALTERNATIVES, tokens(2), "requested logits."),
    "logits that are too narrow": (
        LOGITS,
        ALTERNATIVES,
        tokens(2, generation_logits=logits([1.0, 2.0], shape=[1, 1, 1, 2])),
        "logits that do not fit its tokens",
    ),
    "logits of another type": (
        LOGITS,
        ALTERNATIVES,
        tokens(2, generation_logits=("INT32", [1, 1, 1, 3], b"\0" * 12)),
        "logits that do not fit its tokens",
    ),
    "no log-probs of the prompt": (PLAIN, {"prompt_logprobs": 2}, tokens(1, final=True), "log-probs of the prompt"),
    "too few of the prompt": (
        PLAIN,
        {"prompt_logprobs": 2},
        tokens(1, prompt_log_probs=floats(-1)),
        "log-probs of every prompt token",
    ),
    "no alternatives in the prompt": (
        PLAIN,
        {"prompt_logprobs": 2},
        tokens(1, prompt_log_probs=floats(-1, -2), prompt_top_log_probs=floats(-1)),
        "alternatives of the prompt",
    ),
    "logits of a prompt that was cached": (
        LOGITS,
        {"prompt_logprobs": 0},
        tokens(1, context_logits=logits([0.0, 1.0, 2.0], shape=[1, 1, 3])),
        "logits of the whole prompt",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_an_error_not_an_invention(name: str) -> None:
    abilities, asked, message, said = MISSING[name]
    with pytest.raises(EngineError, match=re.escape(said), check=of(ErrorKind.INTERNAL)):
        TokenReader(ask(prompt=PROMPT, **asked), abilities).read(infer(message), final=True)


def test_log_probs_that_do_not_reach_a_later_token_are_an_error() -> None:
    reader = TokenReader(ask(logprobs=True))
    reader.read(infer(tokens(1, output_log_probs=floats(-0.5))), final=False)
    with pytest.raises(EngineError, check=of(ErrorKind.INTERNAL)):
        reader.read(infer(tokens(2, output_log_probs=floats(-0.5))), final=False)


def test_text_without_any_data_is_an_error() -> None:
    with pytest.raises(EngineError, check=of(ErrorKind.INTERNAL)):
        TextReader().read(infer(response(final=True)), final=True)


def test_cached_tokens_are_exact_or_whole_blocks_and_never_more_than_the_prompt() -> None:
    def cached(abilities: Abilities, **outputs: Any) -> int | None:
        asked = ask(prompt=Prompt("", tuple(range(100))), cached_tokens=True)
        return TokenReader(asked, abilities).read(infer(tokens(1, **outputs)), final=True).cached_tokens

    blocks = Abilities(cached_tokens="blocks", tokens_per_block=32)
    assert cached(Abilities(), num_cached_tokens=ints(70)) == 70
    assert cached(blocks, kv_cache_reused_blocks=ints(2)) == 64
    assert cached(blocks, kv_cache_reused_blocks=ints(4)) == 100
    assert cached(blocks) is None
    unasked = TokenReader(ask()).read(infer(tokens(1, num_cached_tokens=ints(70))), final=True)
    assert unasked.cached_tokens is None
