"""Recorded answers of the real Triton, spoiled: what comes of them is the answer or an error, never another answer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_triton import ask, stock_config, tokens
from tritonclient.grpc import service_pb2

from gateway.generation import GenerationRequest, SequenceAssembler
from gateway.generation.engine import EngineError, EngineFeatures, MalformedOutputError
from gateway.text.prompt.prompt import Prompt
from gateway.triton.abilities import Abilities
from gateway.triton.connection import Connection
from gateway.triton.dialects.ensemble import EnsembleEngine
from gateway.triton.dialects.tokens import TokensEngine
from gateway.triton.model_view import ModelView
from gateway.triton.tensors.answer_readers import TokenReader
from gateway.triton.text_path import TextPath
from tests.doubles.paced.spoiling import SPOILS, VOCABULARY, drop
from tests.rings import examples
from tests.tokens.build import byte_level

RECORDED = {
    name: [base64.b64decode(message) for message in messages]
    for name, messages in json.loads(Path(__file__).with_name("recorded_responses.json").read_text()).items()
}
ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "logprobs": {"logprobs": True},
    "alternatives": {"logprobs": True, "top_logprobs": 3},
    "prompt": {"logprobs": True, "prompt_logprobs": 2},
}


class Call:
    """An answer that has come already."""

    ended = False

    def __init__(self, messages: list[bytes]) -> None:
        self.tap = None
        self._messages = list(messages)

    async def read(self) -> bytes | None:
        return self._messages.pop(0) if self._messages else None

    def cancel(self) -> None:
        self._messages.clear()


class Replay:
    """A transport that answers every request with the same messages."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages

    def infer(self, _request: Any, *, timeout: float, traceparent: str | None = None) -> Call:
        del timeout, traceparent
        return Call(self._messages)


WITH_IDS = TextPath(
    token_ids=True, decoupled=True, cumulative=False, streams="pieces", whole=False, echoes=False, counts=()
)


def request(case: str) -> GenerationRequest:
    prompt = Prompt("In the beginning", tuple(range(5, 16)))
    return ask(prompt=prompt, max_tokens=4, end_ids=(), end_texts=(), vocab_size=byte_level().vocab_size, **ASKED[case])


async def answer(path: str, case: str, messages: list[bytes]) -> Any:
    """All that a client would get to see of it."""
    asked = request(case)
    features = EngineFeatures(path, "", "m", token_ids=True, prompt_ids=True, logprobs=True)  # type: ignore[arg-type]
    connection = Connection(Replay(messages))  # type: ignore[arg-type]
    if path == "tokens":
        model = ModelView.of(stock_config("tensorrt_llm"))
        chunks = TokensEngine(connection, model, features, Abilities()).generate(asked)
    else:
        model = ModelView.of(stock_config("ensemble"))
        chunks = EnsembleEngine(connection, model, features, Abilities(), WITH_IDS, engine=None).generate(asked)
    assembler = SequenceAssembler(asked, byte_level())
    pieces, ids = [], []
    try:
        async for chunk in chunks:
            ids += chunk.ids
            pieces.append(assembler.feed(chunk))
        pieces.append(assembler.finish())
    finally:
        await chunks.aclose()
    entries = [entry for piece in pieces if piece for entry in piece.logprobs]
    prompt = assembler.prompt_entries() if asked.params.prompt_logprobs else None
    text = "".join(piece.text for piece in pieces if piece)
    return ids, text, entries, prompt, assembler.usage, assembler.finish_reason


@functools.cache
def recorded_answer(name: str) -> Any:
    path, case = name.split()
    return asyncio.run(answer(path, case, RECORDED[name]))


@settings(max_examples=examples(150))
@given(st.sampled_from(sorted(RECORDED)), st.sampled_from(SPOILS), st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_spoiled_answer_is_an_error_or_the_same(name: str, spoil: Any, which: int, pick: random.Random) -> None:
    path, case = name.split()
    messages = list(RECORDED[name])
    spoiled = service_pb2.ModelStreamInferResponse.FromString(messages[which])
    spoil(spoiled.infer_response, pick.randrange(len(spoiled.infer_response.outputs)), pick)
    messages[which] = spoiled.SerializeToString()
    with contextlib.suppress(EngineError):  # anything else would be a traceback in the log
        assert asyncio.run(answer(path, case, messages)) == recorded_answer(name)


@settings(max_examples=examples(100))
@given(st.sampled_from(sorted(RECORDED)), st.integers(0, 3), st.randoms(use_true_random=False))
def test_no_bytes_are_more_than_an_error(name: str, which: int, pick: random.Random) -> None:
    path, case = name.split()
    messages = list(RECORDED[name])
    data = bytearray(messages[which])
    for _ in range(pick.choice((1, 1, 2, 8))):
        data[pick.randrange(len(data))] = pick.randrange(256)
    messages[which] = bytes(data[: pick.choice((len(data), pick.randrange(len(data) + 1)))])
    with contextlib.suppress(EngineError):
        asyncio.run(answer(path, case, messages))


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_recorded_answers_are_answers(name: str) -> None:
    assert byte_level().vocab_size == VOCABULARY
    case = name.split()[1]
    ids, _, entries, prompt, usage, reason = recorded_answer(name)
    assert (len(ids), usage.prompt_tokens, usage.completion_tokens, reason) == (4, 11, 4, "length")
    assert len(entries) == (4 if ASKED[case] else 0)
    assert len(prompt or ()) == (11 if case == "prompt" else 0)


@pytest.mark.parametrize(
    "outputs",
    [
        pytest.param({"output_ids": ("FP32", [1, 1, 1], b"\1\0\0\0")}, id="a datatype"),
        pytest.param({"sequence_length": ("INT32", [1, 2], b"\1\0\0\0\1\0\0\0")}, id="more lengths than beams"),
        pytest.param({"sequence_length": ("INT32", [1, 1], struct.pack("<i", -1))}, id="a negative length"),
        pytest.param({"sequence_length": ("INT32", [1, 1], struct.pack("<i", 2))}, id="a length beyond the ids"),
        pytest.param({"output_ids": ("INT32", [1, 2, 1], b"\1\0\0\0" * 2)}, id="two beams"),
        pytest.param({"output_log_probs": ("BYTES", [1, 1, 1], b"\0\0\0\0")}, id="bytes for floats"),
        pytest.param({"output_log_probs": ("FP32", [1, 2, 1], b"\0\0\0\0" * 2)}, id="log-probs of two beams"),
        pytest.param({"num_input_tokens": ("INT32", [1, 1], struct.pack("<i", -5))}, id="a negative count"),
    ],
)
def test_what_is_not_as_the_contract_says_is_named_in_the_log_alone(outputs: Any) -> None:
    message = tokens(7, output_log_probs=("FP32", [1, 1, 1], b"\0\0\0\0")).infer_response
    for place in reversed([place for place, output in enumerate(message.outputs) if output.name in outputs]):
        drop(message, place, random.Random())
    for name, (datatype, shape, raw) in outputs.items():
        message.outputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_output_contents.append(raw)
    with pytest.raises(MalformedOutputError) as error:
        TokenReader(ask(logprobs=True)).read(message, final=False)
    (name,) = outputs
    assert name in error.value.detail
    assert name not in error.value.message


def test_a_response_without_outputs_after_a_malformed_one_is_read() -> None:
    """What is known of the forms of outputs is shared by requests."""
    spoiled = tokens(7, output_log_probs=("INT32", [1, 1, 1], b"\0\0\0\0")).infer_response
    with pytest.raises(MalformedOutputError):
        TokenReader(ask(logprobs=True)).read(spoiled, final=False)
    reader = TokenReader(ask(logprobs=True))
    assert not reader.read(service_pb2.ModelInferResponse(), final=False).ids
