"""What a request looks like on the wire."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted_triton import NoTransport, ask, configured, inputs_of, models, stock_config, without
from tritonclient.grpc import model_config_pb2

from gateway.generation import SamplingParams
from gateway.generation.engine import EngineError, ErrorKind
from gateway.generation.request import GenerationRequest, LoraAdapter, Matrix, PromptTable
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from gateway.triton import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.ensemble import EnsembleDialect, EnsembleEngine, StopSender
from gateway.triton.dialects.tokens import TokensDialect, TokensEngine
from gateway.triton.tensors.request_encoder import pack_words
from tests.triton.calls import of


def direct(options: EngineOptions | None = None, **changed: Any) -> TokensEngine:
    return TokensDialect().make(Connection(NoTransport()), models(**changed), "test", options or EngineOptions())


def through_ensemble(**changed: Any) -> EnsembleEngine:
    return EnsembleDialect().make(Connection(NoTransport()), models(**changed), "test")


def encode(request: GenerationRequest) -> dict[str, tuple[str, list[int], bytes]]:
    return inputs_of(direct().encode(request))


def int32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


ADAPTER = LoraAdapter(2**64 - 1, Matrix(b"abcd", 1, 2), Matrix(int32(1, 0, 1), 1, 3))
TABLE = PromptTable(Matrix(b"abcdef", 3, 1), 2**64 - 1)


def test_a_direct_request_holds_what_the_engine_needs_and_nothing_else() -> None:
    wire = direct().encode(ask(params=SamplingParams(temperature=0.0, seed=2**64 - 1)))
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


@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0.0, top_p=0.5), SamplingParams(top_k=1)])
def test_greedy_is_top_k_1_and_no_temperature_or_top_p(sampling: SamplingParams) -> None:
    sent = encode(ask(params=sampling))
    assert sent["runtime_top_k"][2] == int32(1)
    assert not {"temperature", "runtime_top_p"} & set(sent)


@example(temperature=1.0, top_p=1.0, top_k=1024)
@given(temperature=st.floats(0.01, 2), top_p=st.floats(0.01, 1), top_k=st.integers(2, 1024) | st.just(0))
def test_random_sampling_always_carries_top_p(temperature: float, top_p: float, top_k: int) -> None:
    sent = encode(ask(params=SamplingParams(temperature=temperature, top_p=top_p, top_k=top_k)))
    assert sent["runtime_top_p"][2] == struct.pack("<f", top_p)
    assert sent["temperature"][2] == struct.pack("<f", temperature)
    assert sent.get("runtime_top_k") == (("INT32", [1, 1], int32(top_k)) if top_k else None)


def beside_a_plain_one(engine: Any, **changes: Any) -> dict[str, Any]:
    """What a request sends that one without the changes does not, or sends otherwise."""
    plain, changed = (inputs_of(engine.encode(ask(**more))) for more in ({}, changes))
    return {name: tensor for name, tensor in changed.items() if plain.get(name) != tensor}


def fp32(value: float) -> tuple[str, list[int], bytes]:
    return ("FP32", [1, 1], struct.pack("<f", value))


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        (
            {"presence_penalty": 0.5, "frequency_penalty": -2},
            {"presence_penalty": fp32(0.5), "frequency_penalty": fp32(-2)},
        ),
        ({"repetition_penalty": 1.5, "min_p": 0.25}, {"repetition_penalty": fp32(1.5), "min_p": fp32(0.25)}),
        ({"end_ids": (2, 7), "stop_token_ids": (9, 7)}, {"stop_words_list": ("INT32", [1, 2, 2], int32(7, 9, 1, 2))}),
        (
            {"bad_word_ids": ((5, 6), (7,)), "bad_words": ("cat",)},
            {"bad_words_list": ("INT32", [1, 2, 3], int32(5, 6, 7, 2, 3, -1))},
        ),
        ({"logit_bias": {1: 2.0}, "vocab_size": 3}, {"embedding_bias": ("FP32", [1, 3], struct.pack("<3f", 0, 2, 0))}),
        ({"vocab_size": 3, "length_penalty": 0.5}, {}),
        ({"end_ids": (), "end_texts": ()}, dict.fromkeys(("end_id", "pad_id"), ("INT32", [1, 1], int32(-1)))),
        (
            {"logprobs": True, "top_logprobs": 3},
            {"return_log_probs": ("BOOL", [1, 1], b"\x01"), "num_top_log_probs": ("INT32", [1, 1], int32(3))},
        ),
        ({"prompt_logprobs": 0}, {"num_prompt_log_probs": ("INT32", [1, 1], int32(0))}),
        ({"prompt_logprobs": 3}, {"num_prompt_log_probs": ("INT32", [1, 1], int32(3))}),
    ],
    ids=",".join,
)
def test_a_parameter_travels_only_when_it_does_something(changes: dict[str, Any], sent: dict[str, Any]) -> None:
    assert beside_a_plain_one(direct(), **changes) == sent


def test_with_min_tokens_only_the_end_id_ends_it_in_the_engine() -> None:
    sent = encode(ask(end_ids=(2, 7), stop_token_ids=(9,), min_tokens=5))
    assert sent["min_tokens"] == ("INT32", [1, 1], int32(5))
    assert sent["end_id"][2] == int32(2)
    assert "stop_words_list" not in sent
    through = inputs_of(through_ensemble().encode(ask(end_ids=(2, 7), end_texts=("</s>", "<|x|>"), min_tokens=5)))
    assert "stop_words" not in through


def test_bad_words_are_texts_through_the_ensemble() -> None:
    sent = beside_a_plain_one(through_ensemble(), bad_word_ids=((5, 6), (7,)), bad_words=("cat",))
    words = struct.pack("<I", 3) + b"cat" + struct.pack("<I", 4) + b" cat"
    assert sent == {"bad_words": ("BYTES", [1, 2], words)}


def test_a_logit_bias_is_dense_and_as_wide_as_the_engine_says() -> None:
    config = configured("tensorrt_llm", vocab_size="4")
    engine = direct(tensorrt_llm=config)
    assert engine.features.vocab_size == 4
    sent = inputs_of(engine.encode(ask(logit_bias={2: -100.0, 0: 1.5}, vocab_size=9)))
    assert sent["embedding_bias"] == ("FP32", [1, 4], struct.pack("<4f", 1.5, 0, -100, 0))
    with pytest.raises(EngineError, match="4 is not a token id"):
        engine.encode(ask(logit_bias={4: 1.0}))


def test_a_logit_bias_of_unknown_width_is_refused() -> None:
    with pytest.raises(EngineError, match="logit_bias"):
        encode(ask(logit_bias={1: 2.0}))


def test_beams_where_the_engine_has_them_do_not_stream() -> None:
    config = configured("tensorrt_llm", max_beam_width="4")
    sent = inputs_of(direct(tensorrt_llm=config).encode(ask(beam_width=3, length_penalty=0.5)))
    assert sent["beam_width"] == ("INT32", [1, 1], int32(3))
    assert sent["len_penalty"] == ("FP32", [1, 1], struct.pack("<f", 0.5))
    assert sent["streaming"][2] == b"\x00"
    through = inputs_of(through_ensemble(tensorrt_llm=config).encode(ask(beam_width=2)))
    assert (through["beam_width"][2], through["stream"][2]) == (int32(2), b"\x00")
    for engine, words in ((direct(tensorrt_llm=config), "at most 4"), (direct(), "does not support beam search")):
        with pytest.raises(EngineError, match=words, check=of(ErrorKind.INVALID_REQUEST)):
            engine.encode(ask(beam_width=5))


def test_log_probs_are_asked_for_by_their_outputs() -> None:
    def outputs(engine: TokensEngine, **changes: Any) -> set[str]:
        names = [{output.name for output in engine.encode(ask(**more)).outputs} for more in ({}, changes)]
        return names[1] - names[0]

    older = direct(tensorrt_llm=without("tensorrt_llm", "prompt_log_probs_ranks"))
    alternatives = {"prompt_top_log_probs_ids", "prompt_top_log_probs"}
    assert outputs(direct(), prompt_logprobs=0) == {"prompt_log_probs", "prompt_log_probs_ranks"}
    assert outputs(direct(), prompt_logprobs=3) == {"prompt_log_probs", "prompt_log_probs_ranks"} | alternatives
    assert outputs(older, prompt_logprobs=3) == {"prompt_log_probs"} | alternatives
    of_answer = {"output_log_probs", "top_log_probs", "top_log_probs_ids"}
    assert of_answer <= outputs(direct(), logprobs=True, top_logprobs=3)


def test_a_salt_is_sent_where_it_is_taken() -> None:
    for engine in (direct(), through_ensemble()):
        assert inputs_of(engine.encode(ask(cache_salt="secret")))["cache_salt"][0] == "BYTES"
        assert "cache_salt" not in inputs_of(engine.encode(ask()))


def test_cached_tokens_come_from_the_best_output_that_there_is() -> None:
    def asked_for(config: Any) -> set[str]:
        wire = direct(tensorrt_llm=config).encode(ask(cached_tokens=True))
        return {output.name for output in wire.outputs} & {"num_cached_tokens", "kv_cache_reused_blocks"}

    assert asked_for(stock_config("tensorrt_llm")) == {"num_cached_tokens"}
    config = without("tensorrt_llm", "num_cached_tokens")
    assert asked_for(config) == {"kv_cache_reused_blocks"}
    del config.parameters["tokens_per_block"]
    assert asked_for(config) == set()
    assert "return_perf_metrics" not in inputs_of(direct(tensorrt_llm=config).encode(ask(cached_tokens=True)))


UPSTREAM = ("num_top_log_probs", "top_log_probs", "num_prompt_log_probs", "prompt_log_probs")


def test_logits_are_asked_for_only_where_they_are_allowed() -> None:
    config = without("tensorrt_llm", *UPSTREAM)
    asked = ask(logprobs=True, top_logprobs=2, prompt_logprobs=1)
    for options in (EngineOptions(), EngineOptions(generation_logits=True), EngineOptions(context_logits_tokens=9)):
        with pytest.raises(EngineError):
            direct(options, tensorrt_llm=config).encode(asked)
    engine = direct(EngineOptions(generation_logits=True, context_logits_tokens=2), tensorrt_llm=config)
    wire = engine.encode(asked)
    assert {"return_generation_logits", "return_context_logits"} < set(inputs_of(wire))
    assert {"generation_logits", "context_logits"} < {output.name for output in wire.outputs}
    assert "return_log_probs" not in inputs_of(wire)
    assert engine.features.max_top_logprobs == 20
    with pytest.raises(EngineError, match="2 tokens"):
        engine.encode(ask(prompt=Prompt("", (1, 2, 3)), prompt_logprobs=0))
    # Without alternatives the engine's own log-probs do, and nothing heavy travels.
    assert "return_generation_logits" not in inputs_of(engine.encode(ask(logprobs=True)))


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=6))
def test_packed_words_can_be_read_back(words: list[list[int]]) -> None:
    flat, (rows, width) = pack_words(words)
    ids, ends = flat[:width], [end for end in flat[width:] if end >= 0]
    assert rows == 2
    assert len(flat) == 2 * width
    assert [ids[start:end] for start, end in zip([0, *ends], ends, strict=False)] == words


def test_older_names_are_sent_where_they_are_declared_and_nothing_that_is_not() -> None:
    config = without("tensorrt_llm", "exclude_input_in_output", "return_finish_reason")
    for tensor in config.input:
        tensor.name = {"seed": "random_seed", "min_tokens": "min_length"}.get(tensor.name, tensor.name)
    sent = inputs_of(direct(tensorrt_llm=config).encode(ask(params=SamplingParams(seed=3), min_tokens=4)))
    assert sent["random_seed"][2] == struct.pack("<Q", 3)
    assert sent["min_length"][2] == int32(4)
    assert not {"seed", "min_tokens", "exclude_input_in_output", "return_finish_reason"} & set(sent)


@pytest.mark.parametrize(
    ("missing", "changes", "named"),
    [
        ("return_log_probs", {"logprobs": True}, "logprobs"),
        ("num_top_log_probs", {"logprobs": True, "top_logprobs": 1}, "top_logprobs"),
        ("presence_penalty", {"params": SamplingParams(presence_penalty=1)}, "presence_penalty"),
        ("runtime_top_p", {"params": SamplingParams()}, "top_p"),
        ("repetition_penalty", {"params": SamplingParams(repetition_penalty=2)}, "repetition_penalty"),
        ("min_p", {"params": SamplingParams(min_p=0.5)}, "min_p"),
        ("min_tokens", {"min_tokens": 2}, "min_tokens"),
        ("bad_words_list", {"bad_word_ids": ((1,),)}, "bad_words"),
        ("embedding_bias", {"logit_bias": {1: 1.0}, "vocab_size": 9}, "logit_bias"),
        ("prompt_log_probs", {"prompt_logprobs": 0}, "prompt_logprobs"),
        ("cache_salt", {"cache_salt": "secret"}, "cache_salt"),
    ],
)
def test_what_the_model_cannot_do_is_refused_by_name(missing: str, changes: dict[str, Any], named: str) -> None:
    engine = direct(tensorrt_llm=without("tensorrt_llm", missing))
    with pytest.raises(EngineError, match=named) as error:
        engine.encode(ask(**changes))
    told = (error.value.kind, error.value.param, error.value.code)
    assert told == (ErrorKind.INVALID_REQUEST, named, "unsupported_parameter")


def test_an_ensemble_request() -> None:
    wire = through_ensemble().encode(ask(end_ids=(2, 7), end_texts=("</s>", "<|end|>"), params=SamplingParams(seed=1)))
    assert inputs_of(wire) == {
        "text_input": ("BYTES", [1, 1], struct.pack("<I", 7) + b"one two"),
        **dict.fromkeys(("end_id", "pad_id"), ("INT32", [1, 1], int32(2))),
        **dict.fromkeys(("top_p", "temperature"), fp32(1)),
        **dict.fromkeys(
            ("stream", "exclude_input_in_output", "return_finish_reason", "return_num_input_tokens"),
            ("BOOL", [1, 1], b"\x01"),
        ),
        "max_tokens": ("INT32", [1, 1], int32(8)),
        "stop_words": ("BYTES", [1, 1], struct.pack("<I", 7) + b"<|end|>"),
        "seed": ("UINT64", [1, 1], struct.pack("<Q", 1)),
    }
    assert [output.name for output in wire.outputs] == [
        "text_output", "output_ids", "sequence_length", "finish_reason", "num_input_tokens",
    ]  # fmt: skip


def test_a_text_only_ensemble_is_asked_for_text_and_counts() -> None:
    engine = through_ensemble(ensemble=without("ensemble", "output_ids", "sequence_length"))
    assert not engine.features.token_ids
    names = [output.name for output in engine.encode(ask()).outputs]
    assert names == ["text_output", "finish_reason", "num_input_tokens", "num_output_tokens"]
    for rejected in ({"logprobs": True}, {"stop_token_ids": (5,)}, {"prompt_logprobs": 0}):
        named = next(iter(rejected))
        with pytest.raises(EngineError, match=re.escape(named)) as error:
            engine.encode(ask(**rejected))
        assert error.value.param == named


@pytest.mark.parametrize(
    ("make", "changes", "param", "code"),
    [
        (direct, {"prompt": Prompt("", ())}, "prompt", None),
        (direct, {"beam_width": 2}, "use_beam_search", "unsupported_parameter"),
        (direct, {"logit_bias": {9: 1.0}, "vocab_size": 9}, "logit_bias", "invalid_value"),
        (direct, {"params": SamplingParams(top_k=1025)}, "top_k", "integer_above_max_value"),
        (direct, {"num_draft_tokens": 2}, "num_draft_tokens", "unsupported_parameter"),
        (direct, {"prompt_table": TABLE, "vocab_size": 9, "prompt_logprobs": 0}, "prompt_logprobs",
         "unsupported_parameter"),
        (through_ensemble, {"prompt": Prompt("<|im_end|>", (1,), escaped=True)}, "prompt", None),
        (through_ensemble, {"logit_bias": {1: 1.0}}, "logit_bias", "unsupported_parameter"),
        (direct, {"prompt_table": TABLE}, "prompt_table", "unsupported_parameter"),
        (through_ensemble, {"prompt_table": TABLE}, "prompt_table", "unsupported_parameter"),
        (through_ensemble, {"bad_word_ids": ((1,),)}, "bad_words", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_every_refusal_tells_the_parameter(make: Any, changes: dict[str, Any], param: str, code: str | None) -> None:
    with pytest.raises(EngineError) as error:
        make().encode(ask(**changes))
    assert (error.value.kind, error.value.param, error.value.code) == (ErrorKind.INVALID_REQUEST, param, code)


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
    config = configured("preprocessing", add_special_tokens=adds)
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


def string(text: str) -> tuple[str, list[int], bytes]:
    raw = text.encode()
    return ("BYTES", [1, 1], struct.pack("<I", len(raw)) + raw)


@pytest.mark.parametrize("make", [direct, through_ensemble])
def test_a_guide_goes_as_its_kind_and_its_text(make: Any) -> None:
    wire = inputs_of(make().encode(ask(guide=Guide("json_schema", '{"const": "é"}'))))
    assert wire["guided_decoding_guide_type"] == string("json_schema")
    assert wire["guided_decoding_guide"] == string('{"const": "é"}')
    wire = inputs_of(make().encode(ask(guide=Guide("json"))))
    assert wire["guided_decoding_guide_type"] == string("json")
    assert "guided_decoding_guide" not in wire
    assert "guided_decoding_guide_type" not in inputs_of(make().encode(ask()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"guide": Guide("structural_tag", "{}")}, "structural_tag is not supported"),
        ({"guide": Guide("json"), "beam_width": 2}, "beam search"),
    ],
)
@pytest.mark.parametrize("make", [direct, through_ensemble])
def test_a_guide_that_the_engine_would_ignore_is_never_sent(make: Any, changes: dict[str, Any], words: str) -> None:
    config = configured(
        "tensorrt_llm", guided_decoding_guide_types="json,json_schema,regex,ebnf_grammar", max_beam_width="8"
    )
    with pytest.raises(EngineError, match=words) as error:
        make(tensorrt_llm=config).encode(ask(**changes))
    assert (error.value.kind, error.value.param) == (ErrorKind.INVALID_REQUEST, "guide")


@pytest.mark.parametrize("by_text", [False, True])
def test_an_adapter_goes_with_its_weights_or_by_its_number(by_text: bool) -> None:
    engine = through_ensemble() if by_text else direct()
    sent = inputs_of(engine.encode(ask(lora=ADAPTER)))
    assert sent["lora_task_id"] == ("UINT64", [1, 1], b"\xff" * 8)
    assert sent["lora_weights"] == ("FP16", [1, 1, 2], b"abcd")
    assert sent["lora_config"] == ("INT32", [1, 1, 3], int32(1, 0, 1))
    again = inputs_of(engine.encode(ask(lora=ADAPTER.by_id())))
    assert {name for name in again if name.startswith("lora")} == {"lora_task_id"}
    assert not any(name.startswith("lora") for name in inputs_of(engine.encode(ask())))
    bare = direct(tensorrt_llm=without("tensorrt_llm", "lora_task_id", "lora_weights", "lora_config"))
    with pytest.raises(EngineError, match="LoRA is not supported", check=lambda error: error.param == "model"):
        bare.encode(ask(lora=ADAPTER))


def test_virtual_tokens_follow_the_vocabulary_and_go_first() -> None:
    sent = encode(ask(prompt_table=TABLE, vocab_size=100))
    assert sent["prompt_embedding_table"] == ("FP16", [1, 3, 1], b"abcdef")
    assert sent["prompt_vocab_size"] == ("INT32", [1, 1], int32(3))
    assert sent["input_ids"] == ("INT32", [1, 5], int32(100, 101, 102, 5, 6))
    assert sent["input_lengths"] == ("INT32", [1, 1], int32(5))
    assert sent["prompt_table_extra_ids"] == ("UINT64", [1, 5], b"\xff" * 24 + bytes(16))


# 1, the smallest number above it that FP16 has, and one that lies between two of BF16, of which the even one is taken.
NUMBERS = (1.0, 1 + 2**-10, 1 + 2**-8)


@pytest.mark.parametrize(
    ("datatype", "packed"),
    [
        ("FP16", struct.pack("<3e", *NUMBERS)),
        ("FP32", struct.pack("<3f", *NUMBERS)),
        ("BF16", struct.pack("<3H", 0x3F80, 0x3F80, 0x3F80)),
    ],
)
def test_a_prompt_table_has_the_type_that_the_model_declares(datatype: str, packed: bytes) -> None:
    table = PromptTable(Matrix(struct.pack("<3e", *NUMBERS), 3, 1), 1)
    engine = direct(tensorrt_llm=declared_as("prompt_embedding_table", datatype))
    request = ask(prompt_table=table, vocab_size=100)
    assert inputs_of(engine.encode(request))["prompt_embedding_table"] == (datatype, [1, 3, 1], packed)
    (told,) = [tensor for tensor in engine.describe(request) if tensor["name"] == "prompt_embedding_table"]
    assert told["data"] == pytest.approx(NUMBERS, abs=2**-8)


@pytest.mark.parametrize(
    ("name", "datatype", "asked", "words"),
    [
        ("prompt_embedding_table", "INT8", {"prompt_table": TABLE, "vocab_size": 9}, "declared as INT8, but the"),
        ("temperature", "INT32", {"params": SamplingParams(seed=1, temperature=0.5)},
         "its input temperature is declared"),
        ("temperature", "FP16", {"params": SamplingParams(seed=1, temperature=1e5)},
         "FP16, which is too small for a number"),
        ("temperature", "BF16", {"params": SamplingParams(seed=1, temperature=3.4e38)},
         "BF16, which is too small for a number"),
    ],
)  # fmt: skip
def test_a_type_without_a_place_for_the_values_is_named(
    name: str, datatype: str, asked: dict[str, Any], words: str
) -> None:
    engine = direct(tensorrt_llm=declared_as(name, datatype))
    with pytest.raises(EngineError, match=words) as error:
        engine.encode(ask(**asked))
    assert error.value.kind is ErrorKind.INVALID_REQUEST
    assert error.value.param == ("prompt_table" if "table" in name else name)
    said = engine.features.capabilities["prompt_table" if "table" in name else name]
    assert said.how == ("native" if "16" in datatype else "impossible")


def declared_as(name: str, datatype: str) -> Any:
    config = stock_config("tensorrt_llm")
    for tensor in config.input:
        if tensor.name == name:
            tensor.data_type = model_config_pb2.DataType.Value(f"TYPE_{datatype}")
    return config
