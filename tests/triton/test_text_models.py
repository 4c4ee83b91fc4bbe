"""Models of Triton's vLLM backend and plain text models: recognised or refused by name, by what they declare."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from scripted_triton import ScriptedTriton, ask, inputs_of, play, response, stock_config, string, text
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.api.openai.parameters.table import PARAMETERS
from gateway.generation import SamplingParams
from gateway.generation.engine import Capability, EngineError, EngineFeatures
from gateway.text.contract import VLLM
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from gateway.triton import discovery
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.plain_text import PlainTextDialect
from gateway.triton.dialects.registry import check
from gateway.triton.dialects.vllm import VllmDialect
from gateway.triton.grpcio import GrpcioTransport, open_channel
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble
from gateway.triton.triton_client import TritonClient
from gateway_ops.check.findings import Severity
from gateway_ops.check.repository import check_repository
from tests.doubles.text.text_server import vllm_config
from tests.doubles.text.vllm_sampling import VERSIONS
from tests.triton.calls import rejected_by_page

Tensor = tuple[str, str]
TEXT: tuple[Tensor, Tensor] = (("text_input", "STRING"), ("text_output", "STRING"))


def config_of(inputs: Iterable[Tensor], outputs: Iterable[Tensor], *, decoupled: bool = True, dims: int = 1) -> Any:
    config = model_config_pb2.ModelConfig(name="m", backend="python")
    config.model_transaction_policy.decoupled = decoupled
    for kind, tensors in (("input", inputs), ("output", outputs)):
        for name, datatype in tensors:
            number = model_config_pb2.DataType.Value(f"TYPE_{datatype}")
            tensor = getattr(config, kind).add(name=name, data_type=number, dims=[dims])
            if kind == "input":
                tensor.optional = name != "text_input"
    return config


def vllm(version: str, *, decoupled: bool = True) -> Any:
    config = vllm_config(version)
    config.name = "m"
    config.model_transaction_policy.decoupled = decoupled
    return config


def plain_config(*inputs: Tensor, outputs: tuple[Tensor, ...] = (), **more: Any) -> Any:
    return config_of((TEXT[0], *inputs), (TEXT[1], *outputs), **more)


async def discover(config: Any, script: Any = None, path: Any = "auto") -> tuple[EngineFeatures, ScriptedTriton]:
    script = script or (lambda *_: play(vllm_text(b"a")))
    async with ScriptedTriton(script, {"m": config}) as server, open_channel(server.url) as channel:
        connection = Connection(GrpcioTransport(channel))
        found = await discovery.discover(TritonClient(channel), connection, "m", path)
        await connection.background.drain(5)
        return found.engine.features, server


def vllm_text(words: bytes) -> Any:
    return text(words, final=True, finish_reason=string(b"stop"))


def parameters_of(request: Any) -> dict[str, Any]:
    """The sampling parameters of a request to the vLLM backend."""
    found: dict[str, Any] = json.loads(inputs_of(request)["sampling_parameters"][2][4:])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_contract_has_the_tensors_of_each_version(version: str) -> None:
    inputs = {tensor.name: (tensor.datatype, tensor.dims) for tensor in VLLM.inputs}
    outputs = {tensor.name: (tensor.datatype, tensor.dims) for tensor in VLLM.outputs}
    assert all(inputs[name] == (kind, (dim,)) for name, kind, dim in VERSIONS[version].inputs())
    assert all(outputs[name] == (kind, (dim,)) for name, kind, dim in VERSIONS[version].outputs())


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_vllm_backend_is_known_by_its_tensors(version: str) -> None:
    features, _ = await discover(vllm(version))
    told = version != "24.11"
    assert (features.path, features.streams, features.adds_special_tokens) == ("vllm", "pieces", True)
    assert (features.token_ids, features.logprobs, features.max_top_logprobs) == (told, told, 20 if told else 0)
    assert features.estimates == (set() if told else {"completion_tokens", "finish_reason"})
    assert features.capabilities["logit_bias"].how == "impossible"


def takes_guides_as(field: str | None) -> Any:
    async def script(request: Any, _context: Any) -> AsyncIterator[Any]:
        asked = {"structured_outputs", "guided_decoding"} & parameters_of(request).keys()
        if asked - {field}:
            words = "Error generating stream: 'NoneType' object has no attribute 'lora_name'"
            yield service_pb2.ModelStreamInferResponse(error_message=words)
        else:
            yield vllm_text(b"a")

    return script


@pytest.mark.parametrize("version", ["24.12", "26.01"])
@pytest.mark.parametrize("field", ["structured_outputs", "guided_decoding", None])
async def test_the_form_of_guides_is_found_by_asking(version: str, field: str | None) -> None:
    features, _ = await discover(vllm(version), takes_guides_as(field))
    assert bool(features.guide_types) == (field is not None)
    how = features.capabilities["guided_regex"]
    assert how.how == ("native" if field else "impossible")
    assert field is None or field in how.note


async def test_a_backend_that_is_older_than_guides_is_not_asked_for_any() -> None:
    features, server = await discover(vllm("24.11"))
    assert features.guide_types == set()
    assert server.requests == []


def plain(**more: Any) -> Any:
    return plain_config(("max_tokens", "INT32"), ("temperature", "FP32"), **more)


@pytest.mark.parametrize("decoupled", [True, False])
async def test_a_plain_text_model_is_known_by_its_two_tensors(decoupled: bool) -> None:
    features, server = await discover(plain(decoupled=decoupled))
    assert (features.path, features.whole) == ("text", not decoupled)
    assert features.estimates == {"completion_tokens", "finish_reason"}
    assert features.capabilities["max_tokens"] == Capability(
        "native", "By the model's input max_tokens, whose meaning the model defines."
    )
    assert features.capabilities["seed"].note == "The Triton model 'm' has no input seed."
    assert server.requests == []  # an answer without a limit may be long: nothing is asked for nothing


async def test_what_further_tensors_of_a_plain_text_model_say() -> None:
    features, _ = await discover(plain_config(("random_seed", "UINT64"), outputs=(("num_output_tokens", "INT32"),)))
    assert features.estimates == {"finish_reason"}
    assert any("does not report finish reasons" in loss for loss in features.losses)
    assert features.capabilities["seed"].how == "native"  # by an older name


def with_more(config: Any, name: str, datatype: str, *dims: int, optional: bool = True) -> Any:
    """A configuration with a further input."""
    number = model_config_pb2.DataType.Value(f"TYPE_{datatype}")
    config.input.add(name=name, data_type=number, dims=dims, optional=optional)
    return config


def stock(name: str) -> Any:
    config = stock_config(name)
    config.name = "m"
    return config


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        (vllm("26.01"), "text", "is a model of the vLLM backend"),
        (vllm("26.01"), "tokens", "is a model of the vLLM backend"),
        (vllm("26.01", decoupled=False), "auto", "must be decoupled"),
        (plain(), "vllm", "is a plain text model"),
        (plain(), "llmapi", "is a plain text model"),
        (stock("tensorrt_llm"), "vllm", "not a model of the vLLM backend"),
        (stock("tensorrt_llm"), "text", "not a plain text model"),
        (plain_config(dims=2), "auto", "is of an unsupported kind"),
        (config_of((("text_input", "UINT8"),), (TEXT[1],)), "auto", "is of an unsupported kind"),
        (config_of((TEXT[0],), (("text_output", "UINT8"),)), "auto", "is of an unsupported kind"),
        (config_of((TEXT[0],), (("scores", "FP32"),)), "auto", "set its task to embed, rerank or classify"),
        (plain_config(("temperature", "INT64")), "auto", "its input temperature is declared as INT64"),
        (with_more(config_of((), TEXT[1:]), *TEXT[0], 1, 1), "auto", "is of an unsupported kind"),
        (with_more(plain_config(), "seed", "UINT64", 1, 1), "auto", "more than one element for seed"),
        (plain_config(outputs=(("num_output_tokens", "INT64"),)), "auto", "num_output_tokens .* declared as INT64"),
        (plain_config(outputs=(("finish_reason", "INT32"),)), "auto", "finish_reason .* declared as INT32"),
        (plain_config(("max_tokens", "INT32"), ("end_id", "INT32")), "auto", "without its parameter accumulate_tokens"),
        (with_more(plain(), "persona", "STRING", 1, optional=False), "auto", "does not send: persona"),
    ],
)
async def test_what_cannot_be_served_is_refused_by_name(config: Any, path: str, words: str) -> None:
    with pytest.raises(DiscoveryError, match=words):
        await discover(config, path=path)


def test_an_input_that_must_be_there_is_sent_whatever_is_answered() -> None:
    config = plain_config(("return_finish_reason", "BOOL"), ("temperature", "FP32"))
    config.input[1].optional = False
    models = assemble(ModelView.of(config), {})
    sent = PlainTextDialect().make(Connection(None), models, "test").describe(ask())  # type: ignore[arg-type]
    assert "return_finish_reason" in {tensor["name"] for tensor in sent}


@pytest.mark.parametrize("config", [vllm("24.11"), vllm("26.01"), plain_config(), plain()])
async def test_every_parameter_of_the_engine_is_decided_on(config: Any) -> None:
    found = (await discover(config))[0].capabilities
    undecided = {row.name for row in PARAMETERS if row.kind == "engine" and row.asks_engine} - found.keys()
    # What the template, the family and the operator's settings decide; see serving.capabilities.
    assert undecided <= {"tools", "functions", "documents", "reasoning_effort", "chat_template", "best_of"}
    for name, capability in found.items():
        assert capability.note.endswith("."), name
        assert capability.note[0].isupper(), name


@pytest.mark.parametrize(
    ("title", "config"), [("Triton's vLLM backend", vllm("26.01")), ("Plain text models", plain_config())]
)
async def test_the_page_names_what_is_refused(title: str, config: Any) -> None:
    named = rejected_by_page(title)
    found = (await discover(config))[0].capabilities
    assert "logit_bias" in named
    assert {found[name].how for name in named & found.keys()} == {"impossible"}


def engine() -> Any:
    models = assemble(ModelView.of(vllm("26.01")), {})
    check(models, "auto")
    return VllmDialect().make(Connection(None), models, "test")  # type: ignore[arg-type]


def test_bos_is_left_to_the_backend() -> None:
    [sent] = [
        tensor["data"]
        for tensor in engine().describe(ask(prompt=Prompt(text="<s>a<s>b", ids=(1, 5, 1, 6), bos_text="<s>")))
        if tensor["name"] == "text_input"
    ]
    assert sent == ["a<s>b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": Prompt(text="a", ids=(1,), escaped=True)},
        {"params": SamplingParams(guide=Guide("regex", "a"))},
        {"params": SamplingParams(logit_bias={1: 2.0})},
        {"params": SamplingParams(beam_width=2)},
        {"num_draft_tokens": 2},
    ],
)
def test_what_no_check_of_the_request_sees_is_refused_as_well(changes: dict[str, Any]) -> None:
    with pytest.raises(EngineError) as caught:
        engine().encode(ask(**changes))
    assert caught.value.code == "unsupported_parameter"


async def test_an_answer_without_a_token_is_that_of_a_prompt_without_room() -> None:
    number = ("UINT32", [1], bytes(4))
    nothing = response(final=True, text_output=string(b""), finish_reason=string(b"length"), num_output_tokens=number)
    async with ScriptedTriton(lambda *_: play(nothing), {}) as server, open_channel(server.url) as channel:
        models = assemble(ModelView.of(vllm("24.12")), {})
        asked = VllmDialect().make(Connection(GrpcioTransport(channel)), models, "test")
        with pytest.raises(EngineError) as caught:
            [chunk async for chunk in asked.generate(ask())]
    assert caught.value.kind.value == "context_length_exceeded"


@pytest.mark.parametrize("heeds", [True, False], ids=["heeds its limit", "goes on"])
async def test_a_probe_of_a_plain_model_waits_for_the_end_that_a_limit_brings(connect: Any, *, heeds: bool) -> None:
    """A cancel that meets the end can kill Triton 2.51."""
    ended = asyncio.Event()

    async def script(*_: Any) -> AsyncIterator[Any]:
        try:
            yield text(b"a")
            await asyncio.sleep(0.1)  # while a cancel would arrive
            yield response(final=True) if heeds else text(b"b")
            await asyncio.sleep(0 if heeds else 60)
        finally:
            ended.set()

    server, connection = await connect(script)
    models = assemble(ModelView.of(plain_config(("max_tokens", "INT32"))), {})
    dialect = PlainTextDialect()
    assert await dialect.ask(dialect.make(connection, models, "test")) is None
    await asyncio.wait_for(ended.wait(), 10)
    await server.until(lambda: len(server.cancelled) == (not heeds))


def test_a_repository_of_the_vllm_backend_is_reviewed_as_it_will_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "chat" / "1").mkdir(parents=True)
    (tmp_path / "chat" / "1" / "model.json").write_text("{}")
    (tmp_path / "chat" / "config.pbtxt").write_text('backend: "vllm"\n')
    found = check_repository(tmp_path)
    assert {finding.severity for finding in found} == {Severity.INFO}
