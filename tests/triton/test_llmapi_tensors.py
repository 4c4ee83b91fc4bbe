"""The stock model of the LLM API: what is sent to each version, what is read of its responses, what is refused."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted_triton import ask, inputs_of, play, response, string, text
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.generation import SamplingParams
from gateway.generation.engine import Capability, EngineChunk, EngineError, EngineFeatures, MalformedOutputError
from gateway.generation.request import LoraAdapter
from gateway.text.contract import LLMAPI
from gateway.text.prompt.prompt import Prompt
from gateway.triton import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.llmapi import LlmApiDialect, LlmApiEngine, LlmApiReader, TextForm
from gateway.triton.dialects.registry import check
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble
from tests.doubles.llmapi.versions import VERSIONS
from tests.triton.calls import rejected_by_page

GREEDY = SamplingParams(temperature=0.0)


def llmapi_config(version: str, *, decoupled: bool = True, without: tuple[str, ...] = (), batch: int = 0) -> Any:
    """The configuration of upstream's model."""
    config = model_config_pb2.ModelConfig(name="llm", backend="python", max_batch_size=batch)
    config.model_transaction_policy.decoupled = decoupled
    kind = model_config_pb2.DataType.Value
    for name, datatype, dims in VERSIONS[version].inputs():
        if name not in without:
            config.input.add(name=name, data_type=kind(f"TYPE_{datatype}"), dims=[dims], optional=name != "text_input")
    for name, datatype in VERSIONS[version].outputs():
        if name not in without:
            config.output.add(name=name, data_type=kind(f"TYPE_{datatype}"), dims=[-1])
    return config


def make(version: str, options: EngineOptions | None = None, **changes: Any) -> LlmApiEngine:
    models = assemble(ModelView.of(llmapi_config(version, **changes)), {})
    check(models, "auto")
    return LlmApiDialect().make(Connection(None), models, "test", options or EngineOptions())  # type: ignore[arg-type]


def features(version: str, options: EngineOptions | None = None, **changes: Any) -> EngineFeatures:
    return make(version, options, **changes).features


def sent(version: str, options: EngineOptions | None = None, **changes: Any) -> dict[str, Any]:
    """The values that a request becomes, by tensor; every tensor has the shape [1]."""
    described = make(version, options).describe(ask(**changes))
    assert all(tensor["shape"] == [1] for tensor in described)
    return {tensor["name"].removeprefix("sampling_param_"): tensor["data"][0] for tensor in described}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_contract_has_the_tensors_of_each_version(version: str) -> None:
    known = {name: tensor for tensor in LLMAPI.inputs for name in tensor.names}
    for name, datatype, dims in VERSIONS[version].inputs():
        assert (known[name].datatype, known[name].optional) == (datatype, name != "text_input")
        assert known[name].dims == (dims,) or name == "text_input"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_model_would_fill_in_by_itself_is_always_sent(version: str) -> None:
    greedy = sent(version, max_tokens=8, params=GREEDY)
    assert greedy == {
        "text_input": "one two", "streaming": version == "1.3", "max_tokens": 8, "exclude_input_from_output": True,
        "return_finish_reason": True, "top_k": 1,
    }  # fmt: skip
    sampled = sent(version, params=SamplingParams(temperature=0.5))
    assert (sampled["temperature"], sampled["top_p"]) == (0.5, 1.0)
    unsaid = sent(version, params=SamplingParams(top_k=5))
    assert (unsaid["temperature"], unsaid["top_p"], unsaid["top_k"]) == (1.0, 1.0, 5)
    assert not {"top_k", "seed"} & sampled.keys()
    assert sent(version, params=SamplingParams(temperature=0.0, num_draft_tokens=0)) == sent(version, params=GREEDY)


@pytest.mark.parametrize("version", VERSIONS)
def test_bos_is_there_once_whoever_adds_it(version: str) -> None:
    prompt = Prompt(text="<s>a<s>b", ids=(1, 5, 1, 6), bos_text="<s>")
    assert sent(version, prompt=prompt)["text_input"] == ("<s>a<s>b" if version == "0.19" else "a<s>b")
    assert sent(version, prompt=Prompt(text="a", ids=(5,)))["text_input"] == "a"


def test_the_form_of_streams_follows_from_policy_inputs_and_setting() -> None:
    forms = {version: features(version).streams for version in VERSIONS}
    assert forms == {"0.19": "whole", "1.0": "whole", "1.2": "whole", "1.3": "pieces"}
    assert features("1.3", decoupled=False).streams == "whole"
    assert features("1.2", EngineOptions(llmapi_text="cumulative")).streams == "pieces"
    assert features("1.2", EngineOptions(llmapi_text="delta"), decoupled=False).streams == "whole"
    assert sent("1.2", EngineOptions(llmapi_text="delta"))["streaming"] is True


def test_what_is_lost_is_told_by_version() -> None:
    def words(version: str) -> str:
        return " ".join(features(version).losses)

    assert "ignores cancellation" in words("0.19")
    assert "ignores cancellation" not in words("1.0")
    assert "the whole text in one event" in words("1.2")
    assert "the whole text in one event" not in words("1.3")
    between = features("1.0", without=("stop", "sampling_param_return_perf_metrics"))  # 0.20 and 0.21
    assert any("BOS" in loss for loss in between.losses)


@pytest.mark.parametrize("name", ["seed", "presence_penalty", "frequency_penalty"])
def test_what_a_version_ignores_in_silence_is_refused_by_it(name: str) -> None:
    def how(version: tuple[int, ...] | None) -> Capability:
        return features("1.3", EngineOptions(version=version)).capabilities[name]

    assert how((1, 3, 0)).how == "native"
    assert how((1, 2, 1)) == Capability(
        "impossible", "TensorRT-LLM before 1.3 silently ignores it, and this version is 1.2.1."
    )
    assert "set `engine_version`" in how(None).note
    wanted: dict[str, Any] = {name: 1}
    asked = ask(params=SamplingParams(**wanted), seed=1)
    assert f"sampling_param_{name}" in str(make("1.3", EngineOptions(version=(1, 3))).describe(asked))
    # Also where the operator's defaults ask for it, which no check of the request sees.
    with pytest.raises(EngineError) as caught:
        make("1.3").describe(asked)
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")


def test_the_page_names_what_is_refused() -> None:
    by_name, by_version = (
        rejected_by_page("The stock model of the LLM API", start) for start in ("Rejected", "Rejected by version")
    )
    known = {name: each.how for name, each in features("1.3", EngineOptions(version=(1, 3))).capabilities.items()}
    unknown = {name: each.how for name, each in features("1.3").capabilities.items()}
    assert {"logit_bias", "min_p"} < by_name
    assert {known[name] for name in by_name} == {"impossible"}
    assert {name for name in unknown if unknown[name] != known[name]} == by_version & set(known)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"params": SamplingParams(logprobs=True)}, "logprobs"),
        ({"params": SamplingParams(min_tokens=2)}, "min_tokens"),
        ({"params": SamplingParams(logit_bias={1: 1.0})}, "logit_bias"),
        ({"params": SamplingParams(ignore_eos=True)}, "ignore_eos"),
        ({"params": SamplingParams(stop_token_ids=(5,))}, "stop_token_ids"),
        ({"params": SamplingParams(repetition_penalty=1.1)}, "repetition_penalty"),
        ({"params": SamplingParams(beam_width=2)}, "use_beam_search"),
        ({"params": SamplingParams(skip_special_tokens=False)}, "skip_special_tokens"),
        ({"num_draft_tokens": 2}, "num_draft_tokens"),
        ({"prompt": Prompt(text="<s>", ids=(5, 6), escaped=True)}, "prompt"),
    ],
)
def test_nothing_is_dropped_on_the_way_to_the_model(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(EngineError) as caught:
        make("1.3").describe(ask(**changes))
    assert caught.value.param == param


def test_an_adapter_goes_by_id_name_and_path() -> None:
    adapter = LoraAdapter(7, name="pirate", path="/adapters/pirate")
    tensors = sent("1.3", lora=adapter)
    assert tensors["lora_id"] == 7
    assert (tensors["lora_name"], tensors["lora_path"]) == ("pirate", "/adapters/pirate")
    assert tensors["lora_ckpt_source"] == "hf"
    for version, lora in (("1.2", adapter), ("1.3", LoraAdapter(7))):
        with pytest.raises(EngineError):
            make(version).describe(ask(lora=lora))


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        (llmapi_config("1.3"), "tokens", "path: tokens is configured, but 'llm' is a model of the LLM API"),
        (llmapi_config("1.3", without=("return_finish_reason",)), "auto", "lacks tensors .* return_finish_reason"),
        (llmapi_config("1.3", without=("text_output",)), "auto", "lacks tensors .* text_output"),
        (model_config_pb2.ModelConfig(name="llm"), "llmapi", "has no inputs sampling_param"),
        (llmapi_config("1.2", batch=8), "auto", "max_batch_size"),
    ],
)
def test_a_model_that_is_not_upstream_s_is_refused(config: Any, path: Any, words: str) -> None:
    with pytest.raises(DiscoveryError, match=words):
        check(assemble(ModelView.of(config), {}), path)


def read(form: TextForm, *texts: bytes, finish: bytes = b"stop") -> list[EngineChunk]:
    """The chunks of responses with these texts, the last of them final."""
    reader = LlmApiReader(form)
    chunks = []
    for place, words in enumerate(texts, 1):
        final = place == len(texts)
        message = text(words, finish_reason=string(finish if final else b"None"))
        chunks.append(reader.read(message.infer_response, final=final))
    return chunks


def joined(chunks: list[EngineChunk]) -> str:
    return "".join(chunk.text or "" for chunk in chunks)


@given(st.lists(st.text(max_size=4), min_size=1, max_size=12))
@example(["ha", "ha"])  # nothing is guessed from the texts
def test_any_chunking_gives_the_text(pieces: list[str]) -> None:
    whole = "".join(pieces)
    so_far = ["".join(pieces[: place + 1]).encode() for place in range(len(pieces))]
    assert joined(read("cumulative", *so_far)) == whole  # also where a step adds nothing
    assert joined(read("delta", *(piece.encode() for piece in pieces))) == whole
    assert joined(read("whole", whole.encode())) == whole


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("cumulative", (b"Hello", b"Hallo")),
        ("cumulative", (b"Hello", b"Hell")),
        ("whole", (b"Hello", b" you")),
        ("delta", (b"\xf0\x9f", b"\x98\x80")),
        ("cumulative", (b"\xf0\x9f", b"\xf0\x9f\x98\x80")),
    ],
    ids=["another text", "a shorter text", "a second text", "half a character", "half a character so far"],
)
def test_what_contradicts_the_form_is_malformed(form: TextForm, texts: tuple[bytes, ...]) -> None:
    with pytest.raises(MalformedOutputError):
        read(form, *texts)


@pytest.mark.parametrize("name", ["text_output", "finish_reason"])
def test_a_second_string_is_malformed(name: str) -> None:
    """It would be another answer, or more of this one: nothing tells which."""
    outputs = {"text_output": string(b"Hello"), "finish_reason": string(b"stop")}
    outputs[name] = ("BYTES", [2], string(b"Hello")[2] + string(b" you")[2])
    with pytest.raises(MalformedOutputError) as error:
        LlmApiReader("whole").read(response(final=True, **outputs).infer_response, final=True)
    assert f"{name} has 2 strings" in error.value.detail


def test_why_an_answer_ended_is_the_engine_s_own_word() -> None:
    assert read("whole", b"a", finish=b"length")[-1].finish_reason == "length"
    for word in (b"timeout", b"cancelled"):
        last = read("whole", b"a", finish=word)[-1]
        assert (last.finish_reason, last.failure is not None) == (None, True)
    with pytest.raises(MalformedOutputError):
        LlmApiReader("whole").read(text(b"a").infer_response, final=True)
    with pytest.raises(EngineError, match="before it was complete"):
        LlmApiReader("whole").read(service_pb2.ModelInferResponse(), final=True)
    reader = LlmApiReader("whole")
    reader.read(text(b"a", finish_reason=string(b"stop")).infer_response, final=False)
    assert reader.read(service_pb2.ModelInferResponse(), final=True).final


async def test_a_stream_left_early_ends_in_triton(connect: Any) -> None:
    async def silent_after_one(request: Any, context: Any) -> AsyncIterator[Any]:
        yield text(b"a", finish_reason=string(b"None"))
        await asyncio.Event().wait()

    server, connection = await connect(silent_after_one)
    models = assemble(ModelView.of(llmapi_config("1.3")), {})
    stream = LlmApiDialect().make(connection, models, "test").generate(ask("left"))
    assert (await anext(stream)).text == "a"
    await stream.aclose()
    await server.until(lambda: server.cancelled == ["left"])


async def test_requests_reach_triton_as_described(connect: Any) -> None:
    server, connection = await connect(lambda *_: play(text(b"Hi", finish_reason=string(b"stop"), final=True)))
    engine = LlmApiDialect().make(connection, assemble(ModelView.of(llmapi_config("1.2")), {}), "test")
    assert joined([chunk async for chunk in engine.generate(ask())]) == "Hi"
    got = inputs_of(server.requests[0])
    assert got["text_input"] == ("BYTES", [1], struct.pack("<I", 7) + b"one two")
    assert got["sampling_param_max_tokens"] == ("INT32", [1], struct.pack("<i", 8))
    assert {output.name for output in server.requests[0].outputs} == {"text_output", "finish_reason"}
