"""What is taken for another token of the same answer says exactly that, whatever the bytes."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineChunk
from gateway.generation.relay.response_template import ResponseTemplate, TemplateCache
from gateway.triton.tensors.answer_readers import TokenReader
from gateway.triton.tensors.known_responses import read_token
from tests.triton.scripted_triton import ask, floats, ints, tokens

IDS = st.integers(-(2**31), 2**31 - 1)


def one_token(token: int, request_id: str = "chatcmpl-1", **more: Any) -> bytes:
    message = tokens(token, final=False, **more)
    message.infer_response.id = request_id
    message.infer_response.model_name = "tensorrt_llm"
    return bytes(message.SerializeToString())


def learned(token: int, request_id: str = "chatcmpl-1") -> ResponseTemplate:
    template = ResponseTemplate(read_token)
    for _ in range(2):  # the first is not worth it
        template.learn(one_token(token, request_id), struct.pack("<i", token))
    return template


@given(IDS, IDS, st.text(max_size=40))
def test_a_response_that_differs_in_its_id_is_recognised(first: int, second: int, request_id: str) -> None:
    assert learned(first, request_id).match(one_token(second, request_id)) == second


@given(
    IDS,
    IDS,
    st.sampled_from([{}, {"output_log_probs": floats(-0.5)}, {"total_accepted_draft_tokens": ints(1)}]),
    st.sampled_from(["chatcmpl-1", "chatcmpl-2", "", "chatcmpl-1" + "x" * 100]),
    st.booleans(),
    st.integers(1, 3),
)
def test_what_is_recognised_says_no_more(
    first: int, second: int, more: Any, request_id: str, final: bool, count: int
) -> None:
    message = tokens(*[second] * count, final=final, **more)
    message.infer_response.id = request_id
    message.infer_response.model_name = "tensorrt_llm"
    data = message.SerializeToString()
    same = data == one_token(second)
    assert learned(first).match(data) == (second if same else None)


@given(IDS, st.data())
def test_no_byte_but_those_of_the_id_may_change(token: int, data: st.DataObject) -> None:
    template, message = learned(token), bytearray(one_token(token))
    place = data.draw(st.integers(0, len(message) - 1))
    message[place] ^= data.draw(st.integers(1, 255))
    found = template.match(bytes(message))
    if found is not None:
        parsed = service_pb2.ModelStreamInferResponse.FromString(bytes(message)).infer_response
        assert struct.unpack("<i", parsed.raw_output_contents[0]) == (found,)
        assert found != token


def test_an_id_whose_bytes_stand_elsewhere_too_is_found_in_its_place() -> None:
    token = struct.unpack("<i", b"same")[0]
    assert learned(token, "same-same").match(one_token(7, "same-same")) == 7


def test_a_request_with_log_probs_is_parsed_to_its_end() -> None:
    reader = TokenReader(ask(logprobs=True))
    for number in range(4):
        message = tokens(number, final=False, output_log_probs=floats(*[-0.5] * (number + 1)))
        data = message.SerializeToString()
        assert reader.template.match(data) is None
        chunk = reader.read(message.infer_response, final=False, message=data)
        assert chunk == EngineChunk((number,), logprobs=[-0.5])


def shelved(token: int, request_id: str, said_id: str) -> TemplateCache:
    """What a request has left behind whose responses said an id."""
    shelf = TemplateCache(read_token)
    template = shelf.template(request_id)
    for _ in range(2):
        template.learn(one_token(token, said_id), struct.pack("<i", token))
    return shelf


REQUEST_IDS = st.text("ab-", min_size=1, max_size=12)


@given(IDS, IDS, REQUEST_IDS, REQUEST_IDS)
def test_a_further_request_knows_its_responses_and_no_others(first: int, second: int, one: str, other: str) -> None:
    template = shelved(first, one, one).template(other)
    assert template.match(one_token(second, other)) in {second, None}
    if one != other:
        assert template.match(one_token(second, one)) is None
    assert template.match(tokens(second, final=True).SerializeToString()) is None


@given(IDS, IDS)
def test_the_next_request_need_not_learn(first: int, second: int) -> None:
    one, other = "chatcmpl-" + "a" * 16, "chatcmpl-" + "b" * 16
    assert shelved(first, one, one).template(other).match(one_token(second, other)) == second
    assert shelved(first, one, "").template(other).match(one_token(second, "")) == second  # nobody repeats the id
    template = shelved(first, one, one).template("short")
    assert template.match(one_token(second, "short")) is None
    for token in (first, first):
        template.learn(one_token(token, "short"), struct.pack("<i", token))
    assert template.match(one_token(second, "short")) == second


def test_an_id_that_something_else_holds_is_not_replaced() -> None:
    for said in ("tensorrt_llm", "output_ids", "INT32"):  # as other fields of the response are
        template = shelved(1, said, said).template("x" * len(said))
        assert template.match(one_token(2, "x" * len(said))) is None
    assert shelved(1, "output_ids", "").template("x" * 10).match(one_token(2, "")) is None
