"""A log-prob is the same, whether the response that has it was parsed or is like one that was."""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_triton import ask, floats, ints, tokens
from tritonclient.grpc import service_pb2

from gateway.triton.tensors.answer_readers import TokenReader
from gateway.triton.tensors.known_responses import KnownResponses, ResponseForms

IDS = st.integers(0, 99)
VALUES = st.floats(width=32)
NAMES = ["output_ids", "sequence_length", "output_log_probs"]
_parse = service_pb2.ModelStreamInferResponse.FromString


def entry(token: int, values: Sequence[float], top: Sequence[tuple[int, float]] = (), said_id: str = "r1") -> Any:
    """A response of one token with all log-probs so far, and with alternatives."""
    more = {"output_log_probs": floats(*values)}
    if top:
        (kind, _, ids), (other, _, numbers) = ints(*[each for each, _ in top]), floats(*[each for _, each in top])
        more["top_log_probs_ids"] = (kind, [1, 1, len(top)], ids)
        more["top_log_probs"] = (other, [1, 1, len(top)], numbers)
    message = tokens(token, final=False, **more)
    message.infer_response.id = said_id
    message.infer_response.model_name = "tensorrt_llm"
    return message


def taken(messages: Sequence[bytes], known: KnownResponses | None, **wanted: Any) -> list[Any]:
    """What a tap makes of responses, a comparable form of each token, up to the first that it leaves."""
    found: list[Any] = []
    request = ask(logprobs=True, vocab_size=100, **wanted)
    tap = TokenReader(request, known=known).tap(lambda tokens: found.extend(tokens) or len(tokens))  # type: ignore[func-returns-value]
    for message in messages:
        if not tap([message]):
            break
    return [repr((index, logprob, top)) for index, logprob, top in found]


ANSWERS = st.lists(st.tuples(IDS, VALUES, st.lists(st.tuples(st.integers(-2, 110), VALUES), min_size=2, max_size=2)))


@given(st.lists(ANSWERS, min_size=2, max_size=4), st.booleans(), st.sampled_from(["r1", "r2", "", "tensorrt_llm"]))
def test_answers_one_after_the_other(answers: list[Any], with_top: bool, said_id: str) -> None:
    known = KnownResponses()
    wanted = {"top_logprobs": 2} if with_top else {}
    for answer in answers:
        values = [value for _, value, _ in answer]
        messages = [
            entry(token, values[: place + 1], top if with_top else (), said_id).SerializeToString()
            for place, (token, _, top) in enumerate(answer)
        ]
        assert taken(messages, known, **wanted) == taken(messages, None, **wanted)


def learned(messages: Sequence[Any], request_id: str = "r1") -> ResponseForms:
    forms = ResponseForms()
    for message in messages:
        forms.learn(message.SerializeToString(), NAMES, request_id)
    return forms


def test_what_was_learned_of_one_answer_is_known_of_the_next() -> None:
    forms = learned([entry(7, [-0.5] * count) for count in range(1, 300)])
    for count in range(1, 300):
        message = entry(8, [*[-0.25] * (count - 1), -0.75], said_id="r2").SerializeToString()
        form = forms.match(message)
        assert (form.length, *form.read(message, count - 1)) == (count, 8, -0.75, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda other: other.infer_response.parameters["triton_final_response"].__setattr__("bool_param", True),
        lambda other: other.__setattr__("error_message", "x"),
        lambda other: other.infer_response.__setattr__("model_name", "tensorrt_llM"),
        lambda other: other.infer_response.raw_output_contents.__setitem__(1, struct.pack("<i", 2)),
        lambda other: other.infer_response.outputs[0].__setattr__("name", "output_idz"),
        lambda other: other.infer_response.outputs[2].shape.__setitem__(0, 2),
    ],
)
def test_a_response_that_says_anything_else_is_not_known(change: Any) -> None:
    message = entry(7, [-0.5, -0.5])
    forms = learned([message])
    other = copy.deepcopy(message)
    change(other)
    assert forms.match(message.SerializeToString()) is not None
    assert forms.match(other.SerializeToString()) is None


@given(st.integers(0, 10_000), st.integers(1, 255), IDS, st.integers(1, 4))
def test_a_known_response_differs_in_what_varies_alone(place: int, bits: int, token: int, count: int) -> None:
    message = entry(token, [-0.5] * count)
    data = bytearray(message.SerializeToString())
    place %= len(data)
    own = message.SerializeToString().index(b"r1")
    # The bytes of the request's id may be any, as nobody reads them; parsed, they must be UTF-8.
    data[place] ^= bits & 0x7F if place in range(own, own + 2) else bits
    if learned([message]).match(bytes(data)) is not None:
        changed = _parse(bytes(data)).infer_response
        for index in (0, 2):
            changed.raw_output_contents[index] = message.infer_response.raw_output_contents[index]
        changed.id = message.infer_response.id
        assert changed == message.infer_response


def test_a_list_that_is_too_short_and_a_response_of_no_token_are_left_to_be_refused() -> None:
    known = KnownResponses()
    whole = [entry(7, [-0.5] * count).SerializeToString() for count in (1, 2, 3)]
    assert len(taken(whole, known)) == 3
    assert len(taken([whole[0], whole[0]], known)) == 1
    message = entry(7, [-0.5])
    message.infer_response.outputs[0].shape[-1] = 0
    message.infer_response.raw_output_contents[0] = b""
    assert taken([message.SerializeToString()], KnownResponses()) == []


def test_outputs_that_nobody_asked_for_teach_no_alternatives() -> None:
    message = entry(7, [-0.5], [(8, -1.0)])
    del message.infer_response.outputs[3]
    del message.infer_response.raw_output_contents[3]
    assert [output.name for output in message.infer_response.outputs][3:] == ["top_log_probs"]
    known = KnownResponses()
    data = message.SerializeToString()
    assert taken([data], known) == taken([data], known) == taken([data], None) != []


def test_a_number_that_is_none_is_passed_on() -> None:
    known = KnownResponses()
    message = entry(7, [math.nan]).SerializeToString()
    assert taken([message], known) == taken([message], known) == taken([message], None)


def test_most_forms_are_bounded() -> None:
    forms = learned([entry(7, [-0.5] * count) for count in range(1, 200)])
    for count in range(200, 4500):
        forms.learn(entry(7, [-0.5] * count).SerializeToString(), NAMES, "r1")
    assert len(forms._forms) <= 4096
