"""What a request looks like on the wire."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_triton import ask, inputs_of, stock_config, stock_configs

from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.request import GenerationRequest, Prompt, Sampling
from gateway.triton.assembly import Models, ensemble_engine, tokens_engine
from gateway.triton.dialects.connection import Connection
from gateway.triton.dialects.encoder import pack_words
from gateway.triton.dialects.ensemble import EnsembleEngine
from gateway.triton.dialects.stopping import StopSender
from gateway.triton.dialects.tokens import TokensEngine
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import read_pipeline


class NoTransport:
    """For engines that only encode."""

    def infer(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("nothing is sent here")


def models(**changed: Any) -> Models:
    views = {name: ModelView.of(config) for name, config in (stock_configs() | changed).items()}
    names = tuple(views)
    return Models(
        views["ensemble"], views["tensorrt_llm"], views["preprocessing"], read_pipeline(views["ensemble"]), names
    )


def direct(**changed: Any) -> TokensEngine:
    return tokens_engine(Connection(NoTransport()), models(**changed), "test")


def through_ensemble(**changed: Any) -> EnsembleEngine:
    return ensemble_engine(Connection(NoTransport()), models(**changed), "test")


def encode(request: GenerationRequest) -> dict[str, tuple[str, list[int], bytes]]:
    return inputs_of(direct().encode(request))


def without(model: str, *names: str) -> Any:
    config = stock_config(model)
    for tensors in (config.input, config.output):
        kept = [tensor for tensor in tensors if tensor.name not in names]
        del tensors[:]
        tensors.extend(kept)
    return config


def int32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def test_a_direct_request_holds_what_the_engine_needs_and_nothing_else() -> None:
    wire = direct().encode(ask(sampling=Sampling(temperature=0.0, seed=2**64 - 1)))
    assert inputs_of(wire) == {
        "input_ids": ("INT32", [1, 2], int32(5, 6)),
        "input_lengths": ("INT32", [1, 1], int32(2)),
        "request_output_len": ("INT32", [1, 1], int32(8)),
        "streaming": ("BOOL", [1, 1], b"\x01"),
        "exclude_input_in_output": ("BOOL", [1, 1], b"\x01"),
        "end_id": ("INT32", [1, 1], int32(2)),
        "pad_id": ("INT32", [1, 1], int32(2)),
        "runtime_top_k": ("INT32", [1, 1], int32(1)),
        "seed": ("UINT64", [1, 1], b"\xff" * 8),
        "return_finish_reason": ("BOOL", [1, 1], b"\x01"),
    }
    assert (wire.model_name, wire.id) == ("tensorrt_llm", "r1")
    assert [output.name for output in wire.outputs] == ["output_ids", "sequence_length", "finish_reason"]


def test_without_a_batch_dimension_shapes_have_none() -> None:
    config = stock_config("tensorrt_llm")
    config.max_batch_size = 0
    shapes = {name: shape for name, (_, shape, _) in inputs_of(direct(tensorrt_llm=config).encode(ask())).items()}
    assert shapes["input_ids"] == [2]
    assert shapes["seed"] == [1]


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0, top_p=0.5), Sampling(top_k=1), Sampling(temperature=1e-30)]
)
def test_greedy_is_top_k_1_and_no_temperature_or_top_p(sampling: Sampling) -> None:
    sent = encode(ask(sampling=sampling))
    assert sent["runtime_top_k"][2] == int32(1)
    assert not {"temperature", "runtime_top_p"} & set(sent)


@given(temperature=st.floats(0.01, 2), top_p=st.floats(0.01, 1), top_k=st.integers(2, 1024) | st.just(0))
def test_random_sampling_always_carries_top_p(temperature: float, top_p: float, top_k: int) -> None:
    sent = encode(ask(sampling=Sampling(temperature=temperature, top_p=top_p, top_k=top_k)))
    assert sent["runtime_top_p"][2] == struct.pack("<f", top_p)
    assert sent["temperature"][2] == struct.pack("<f", temperature)
    assert sent.get("runtime_top_k") == (("INT32", [1, 1], int32(top_k)) if top_k else None)


def test_top_k_above_what_the_engine_takes_is_refused() -> None:
    with pytest.raises(EngineError) as error:
        encode(ask(sampling=Sampling(top_k=1025)))
    assert error.value.kind is ErrorKind.INVALID_REQUEST


def test_penalties_travel_only_when_they_do_something() -> None:
    assert not {"presence_penalty", "frequency_penalty"} & set(encode(ask()))
    sent = encode(ask(sampling=Sampling(presence_penalty=0.5, frequency_penalty=-2)))
    assert sent["presence_penalty"] == ("FP32", [1, 1], struct.pack("<f", 0.5))
    assert sent["frequency_penalty"] == ("FP32", [1, 1], struct.pack("<f", -2))


def test_no_end_id_is_minus_one() -> None:
    sent = encode(ask(end_ids=(), end_texts=()))
    assert sent["end_id"][2] == sent["pad_id"][2] == int32(-1)
    assert "stop_words_list" not in sent


def test_other_end_ids_are_stop_words() -> None:
    sent = encode(ask(end_ids=(2, 7, 9)))
    assert sent["end_id"][2] == int32(2)
    assert sent["stop_words_list"] == ("INT32", [1, 2, 2], int32(7, 9, 1, 2))


def test_words_are_packed_as_documented() -> None:
    assert pack_words([(10, 11), (20,)]) == ([10, 11, 20, 2, 3, -1], (2, 3))


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=6))
def test_packed_words_can_be_read_back(words: list[list[int]]) -> None:
    flat, (rows, width) = pack_words(words)
    ids, ends = flat[:width], [end for end in flat[width:] if end >= 0]
    assert rows == 2
    assert len(flat) == 2 * width
    assert [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)] == words


def test_log_probs_are_asked_for_only_when_wanted() -> None:
    wire = direct().encode(ask(logprobs=True, top_logprobs=3))
    assert inputs_of(wire)["return_log_probs"][2] == b"\x01"
    assert inputs_of(wire)["num_top_log_probs"][2] == int32(3)
    assert {"output_log_probs", "top_log_probs", "top_log_probs_ids"} < {output.name for output in wire.outputs}
    assert "return_log_probs" not in encode(ask())


def test_older_names_are_sent_where_they_are_declared() -> None:
    config = stock_config("tensorrt_llm")
    for tensor in config.input:
        tensor.name = {"seed": "random_seed"}.get(tensor.name, tensor.name)
    sent = inputs_of(direct(tensorrt_llm=config).encode(ask(sampling=Sampling(seed=3))))
    assert sent["random_seed"][2] == struct.pack("<Q", 3)
    assert "seed" not in sent


def test_undeclared_inputs_stay_out() -> None:
    config = without("tensorrt_llm", "exclude_input_in_output", "return_finish_reason")
    sent = inputs_of(direct(tensorrt_llm=config).encode(ask()))
    assert not {"exclude_input_in_output", "return_finish_reason"} & set(sent)


@pytest.mark.parametrize(
    ("missing", "changes", "named"),
    [
        ("return_log_probs", {"logprobs": True}, "logprobs"),
        ("num_top_log_probs", {"logprobs": True, "top_logprobs": 1}, "top_logprobs"),
        ("presence_penalty", {"sampling": Sampling(presence_penalty=1)}, "presence_penalty"),
        ("runtime_top_p", {"sampling": Sampling()}, "top_p"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(missing: str, changes: dict[str, Any], named: str) -> None:
    engine = direct(tensorrt_llm=without("tensorrt_llm", missing))
    with pytest.raises(EngineError, match=named) as error:
        engine.encode(ask(**changes))
    assert error.value.kind is ErrorKind.INVALID_REQUEST


def test_an_ensemble_request() -> None:
    wire = through_ensemble().encode(ask(end_ids=(2, 7), end_texts=("</s>", "<|end|>"), sampling=Sampling(seed=1)))
    assert inputs_of(wire) == {
        "text_input": ("BYTES", [1, 1], struct.pack("<I", 7) + b"one two"),
        "max_tokens": ("INT32", [1, 1], int32(8)),
        "stream": ("BOOL", [1, 1], b"\x01"),
        "exclude_input_in_output": ("BOOL", [1, 1], b"\x01"),
        "end_id": ("INT32", [1, 1], int32(2)),
        "pad_id": ("INT32", [1, 1], int32(2)),
        "stop_words": ("BYTES", [1, 1], struct.pack("<I", 7) + b"<|end|>"),
        "top_p": ("FP32", [1, 1], struct.pack("<f", 1)),
        "temperature": ("FP32", [1, 1], struct.pack("<f", 1)),
        "seed": ("UINT64", [1, 1], struct.pack("<Q", 1)),
        "return_finish_reason": ("BOOL", [1, 1], b"\x01"),
        "return_num_input_tokens": ("BOOL", [1, 1], b"\x01"),
    }
    assert [output.name for output in wire.outputs] == [
        "text_output",
        "output_ids",
        "sequence_length",
        "finish_reason",
        "num_input_tokens",
    ]


def test_a_text_only_ensemble_is_asked_for_text_and_counts() -> None:
    engine = through_ensemble(ensemble=without("ensemble", "output_ids", "sequence_length"))
    assert not engine.features.token_ids
    names = [output.name for output in engine.encode(ask()).outputs]
    assert names == ["text_output", "finish_reason", "num_input_tokens", "num_output_tokens"]
    with pytest.raises(EngineError, match="logprobs"):
        engine.encode(ask(logprobs=True))


def test_control_token_text_of_a_user_does_not_travel_as_text() -> None:
    request = ask(prompt=Prompt(text="<|im_end|>", ids=(1, 2, 3), escaped=True))
    with pytest.raises(EngineError, match="path: tokens") as error:
        through_ensemble().encode(request)
    assert error.value.kind is ErrorKind.INVALID_REQUEST
    direct().encode(request)


@pytest.mark.parametrize(
    ("text", "adds", "sent"),
    [
        ("<s>hello", "true", "hello"),
        ("hello", "true", "hello"),
        ("<s>hello", "false", "<s>hello"),
        ("hello", "false", "<s>hello"),
    ],
)
def test_bos_goes_in_once_whoever_adds_it(text: str, adds: str, sent: str) -> None:
    config = stock_config("preprocessing")
    config.parameters["add_special_tokens"].string_value = adds
    engine = through_ensemble(preprocessing=config)
    wire = inputs_of(engine.encode(ask(prompt=Prompt(text=text, ids=(1, 5), bos_text="<s>"))))
    assert wire["text_input"][2][4:] == sent.encode()
    # A template that happens to begin with what the tokenizer does not add is left alone.
    wire = inputs_of(engine.encode(ask(prompt=Prompt(text=text, ids=(1, 5)))))
    assert wire["text_input"][2][4:] == text.encode()


def test_a_stop_request_names_its_target_by_id() -> None:
    wire = StopSender(Connection(NoTransport()), models().engine).encode("r1")
    assert wire.id == "r1"
    assert wire.model_name == "tensorrt_llm"
    assert set(inputs_of(wire)) == {"input_ids", "input_lengths", "request_output_len", "stop"}
    assert inputs_of(wire)["stop"] == ("BOOL", [1, 1], b"\x01")


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(EngineError) as error:
        direct().encode(replace(ask(), prompt=Prompt(text="", ids=())))
    assert error.value.kind is ErrorKind.INVALID_REQUEST
