"""Which path is taken for which configuration, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from scripted_triton import ScriptedTriton, drop_tensors, inputs_of, resnet, stock_config, stock_configs, tokens
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.generation.engine import EngineError, EngineFeatures, ErrorKind
from gateway.triton import discovery, hints
from gateway.triton.connection import Connection
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.grpcio import GrpcioTransport, open_channel
from gateway.triton.model_view import ModelView
from gateway.triton.triton_client import TritonClient
from tests.triton.calls import of


async def discover(
    configs: dict[str, Any], model: str = "ensemble", path: Any = "auto", script: Any = None
) -> EngineFeatures:
    async with ScriptedTriton(script, configs) as server, open_channel(server.url) as channel:
        connection = Connection(GrpcioTransport(channel))
        found = await discovery.discover(TritonClient(channel), connection, model, path)
        await connection.background.drain(5)
        return found.engine.features


def step(config: Any, model: str) -> Any:
    return next(step for step in config.ensemble_scheduling.step if step.model_name == model)


async def test_a_stock_ensemble_gives_its_engine_step() -> None:
    async with ScriptedTriton() as server, open_channel(server.url) as channel:
        found = await discovery.discover(
            TritonClient(channel), Connection(GrpcioTransport(channel)), "ensemble", "auto"
        )
    assert (found.engine.features.path, found.engine.features.model) == ("tokens", "tensorrt_llm")
    assert (await discover({"tensorrt_llm": stock_config("tensorrt_llm")}, "tensorrt_llm")).path == "tokens"
    assert set(found.models) == {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"}
    # Three probes asked for a token or two: whether it answers, and whether it takes guides and drafts.
    probes = [request for request in server.requests if request.model_name != "preprocessing"]
    for probe in probes:
        assert inputs_of(probe)["request_output_len"][2] in (b"\x01\0\0\0", b"\x02\0\0\0")
        assert inputs_of(probe)["input_ids"][1] == [1, 1]
    asked = [{"guided_decoding_guide_type", "draft_input_ids"} & set(inputs_of(probe)) for probe in probes]
    assert asked == [set(), {"guided_decoding_guide_type"}, {"draft_input_ids"}]


@pytest.mark.parametrize("name", ["my_engine", "llama"])
async def test_steps_are_found_by_their_tensors_not_by_their_names(name: str) -> None:
    configs = stock_configs()
    configs[name] = configs.pop("tensorrt_llm")
    configs[name].name = name
    step(configs["ensemble"], "tensorrt_llm").model_name = name
    assert (await discover(configs)).model == name


def with_another_step(ensemble: Any) -> None:
    added = ensemble.ensemble_scheduling.step.add(model_name="guard")
    added.input_map["TEXT"] = "text_output"
    added.output_map["VERDICT"] = "verdict"


def mapped(model: str, direction: str, name: str, tensor: str) -> Any:
    """A change of an ensemble: a step reads or writes another tensor."""
    return lambda ensemble: getattr(step(ensemble, model), direction).__setitem__(name, tensor)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_another_step, "guard"),
        (mapped("preprocessing", "input_map", "QUERY", "_rewritten"), "prompt does not come directly"),
        (mapped("tensorrt_llm", "input_map", "input_ids", "_changed"), "token ids do not come directly"),
        (mapped("postprocessing", "input_map", "TOKENS_BATCH", "_filtered"), "detokenizing step"),
        (mapped("postprocessing", "output_map", "OUTPUT", "_raw_text"), "text is not returned unchanged"),
    ],
)
async def test_an_ensemble_that_does_more_is_not_bypassed(change: Any, words: str) -> None:
    configs = stock_configs()
    change(configs["ensemble"])
    configs["guard"] = model_config_pb2.ModelConfig(name="guard")
    features = await discover(configs)
    assert features.path == "ensemble"
    assert words in features.reason


def aborting(status: grpc.StatusCode, words: str) -> Any:
    async def script(_request: Any, context: Any) -> AsyncIterator[Any]:
        await context.abort(status, words)
        yield

    return script


FAILING = aborting(grpc.StatusCode.INTERNAL, "no")


async def test_what_becomes_of_the_probe_decides() -> None:
    features = await discover(stock_configs(), script=FAILING)
    assert (features.path, "probe" in features.reason) == ("ensemble", True)
    busy = aborting(grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size")
    assert (await discover(stock_configs(), script=busy)).path == "tokens"
    with pytest.raises(EngineError, check=of(ErrorKind.UNAVAILABLE)):
        await discover(stock_configs(), script=aborting(grpc.StatusCode.UNAVAILABLE, "Socket closed"))


@pytest.mark.parametrize("path", ["tokens", "ensemble"])
async def test_a_configured_path_is_honoured_without_a_probe(path: str) -> None:
    features = await discover(stock_configs(), path=path, script=FAILING)
    assert features.path == path
    assert "configured" in features.reason


KINDS = {"json", "json_schema", "regex", "ebnf_grammar"}
LISTED = "guided_decoding_guide_types"


def guided(**parameters: str) -> dict[str, Any]:
    configs = stock_configs()
    del configs["tensorrt_llm"].parameters[LISTED]
    for name, value in parameters.items():
        configs["tensorrt_llm"].parameters[name].string_value = value
    return configs


@pytest.mark.parametrize("path", ["tokens", "ensemble"])
@pytest.mark.parametrize(
    ("parameters", "kinds", "backend"),
    [
        ({}, set(), None),
        ({"guided_decoding_backend": "${guided_decoding_backend}"}, set(), None),
        ({"guided_decoding_backend": "something"}, KINDS, None),
        ({"guided_decoding_backend": "xgrammar"}, KINDS, "xgrammar"),
        ({"guided_decoding_backend": "llguidance"}, KINDS, "llguidance"),
        ({LISTED: "regex, structural_tag,telepathy"}, {"regex", "structural_tag"}, None),
        ({LISTED: "${GUIDES_OF_NOBODY}", "guided_decoding_backend": "xgrammar"}, set(), "xgrammar"),
        ({"engine": "reference"}, set(), "llguidance"),
        ({"engine": "${TRITON_ENGINE_OF_NOBODY}"}, set(), None),
        ({"engine": "llmapi", "guided_decoding_backend": "xgrammar"}, KINDS, "xgrammar"),
    ],
)
async def test_which_guides_an_engine_takes_and_what_compiles_them(
    path: str, parameters: dict[str, str], kinds: set[str], backend: str | None
) -> None:
    features = await discover(guided(**parameters), path=path)
    assert (features.guide_types, features.guide_backend) == (kinds, backend)


async def not_set_up(request: Any, _context: Any) -> AsyncIterator[Any]:
    if "guided_decoding_guide_type" in inputs_of(request):
        message = "Request has a guide for guided decoding, but GuidedDecoder is not set up"
        yield service_pb2.ModelStreamInferResponse(error_message=message)
    else:
        yield tokens(7, final=True)


async def bad_guide(request: Any, _context: Any) -> AsyncIterator[Any]:
    message = "Executor failed process requestId 1 due to the following error: Guided decoding error: no"
    yield service_pb2.ModelStreamInferResponse(error_message=message)


@pytest.mark.parametrize("path", ["auto", "tokens", "ensemble"])
async def test_an_engine_whose_guided_decoder_is_not_set_up_takes_none(path: str) -> None:
    features = await discover(stock_configs(), path=path, script=not_set_up)
    assert features.guide_types == set()
    assert features.capabilities["guided_regex"].how == "impossible"
    assert "no guided decoding" in features.capabilities["guided_regex"].note


async def test_another_failure_says_nothing_of_guides() -> None:
    assert (await discover(stock_configs(), path="tokens", script=bad_guide)).guide_types == {*KINDS, "structural_tag"}


def llmapi() -> Any:
    config = model_config_pb2.ModelConfig(name="tensorrt_llm")
    for name in ("text_input", "streaming", "sampling_param_max_tokens"):
        config.input.add(name=name)
    return config


def without_text_output() -> dict[str, Any]:
    configs = stock_configs()
    drop_tensors(configs["ensemble"], ["text_output"])
    return configs


def with_another_type(name: str, datatype: str) -> dict[str, Any]:
    configs = stock_configs()
    drop_tensors(configs["tensorrt_llm"], [name])
    configs["tensorrt_llm"].input.add(name=name, data_type=model_config_pb2.DataType.Value(datatype))
    return configs


@pytest.mark.parametrize(
    ("configs", "model", "path", "words"),
    [
        ({"tensorrt_llm": llmapi()}, "tensorrt_llm", "auto", "lacks tensors of the stock one: finish_reason"),
        ({"resnet": resnet()}, "resnet", "auto", "its inputs are image and its outputs labels"),
        ({"late": model_config_pb2.ModelConfig(name="late")}, "late", "auto",
         "no tensors.*--disable-auto-complete-con"),
        ({"tensorrt_llm": stock_config("tensorrt_llm")}, "tensorrt_llm", "ensemble", "is an engine model"),
        (without_text_output(), "ensemble", "ensemble", "text_output"),
        (with_another_type("image", "TYPE_INVALID"), "ensemble", "tokens", "image"),
        (with_another_type("seed", "TYPE_INT32"), "ensemble", "tokens", "its input seed is declared as INT32, but"),
    ],
    ids=["llmapi", "another", "not completed", "engine as ensemble", "no text", "required input", "another type"],
)  # fmt: skip
async def test_what_cannot_be_served_is_refused_by_name(
    configs: dict[str, Any], model: str, path: str, words: str
) -> None:
    with pytest.raises(DiscoveryError, match=words):
        await discover(configs, model, path)


async def test_an_ensemble_whose_engine_takes_no_stop_requests_says_what_is_lost() -> None:
    configs = stock_configs()
    assert not any("stop requests" in loss for loss in (await discover(configs, path="ensemble")).losses)
    drop_tensors(configs["tensorrt_llm"], ["stop"])
    assert any("stop requests" in loss for loss in (await discover(configs, path="ensemble")).losses)


def view(model: str = "tensorrt_llm", **parameters: str) -> ModelView:
    config = stock_config(model)
    config.parameters.clear()
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    return ModelView.of(config)


def test_parameters_are_filled_from_the_environment() -> None:
    model = view(a="/models/x", b="${FOLDER}/y", c="${NOT_SET}", d="${EMPTY}", e="")
    environ = {"FOLDER": "/data", "EMPTY": ""}
    wanted = dict.fromkeys("cdef") | {"a": "/models/x", "b": "/data/y"}
    assert {name: hints.parameter(model, name, environ) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("parameters", "config", "expected"),
    [
        ({"max_seq_len": "512"}, {"build_config": {"max_seq_len": 64}}, 512),
        ({"max_seq_len": "${UNSET_LENGTH}"}, {"build_config": {"max_seq_len": 64}}, 64),
        ({"engine": "reference"}, {"max_position_embeddings": 128}, 128),
        ({}, {"max_position_embeddings": 128}, None),
        ({"max_seq_len": "many"}, None, None),
        ({"engine": "reference"}, {"max_position_embeddings": "x"}, None),
    ],
)
def test_max_seq_len(
    tmp_path: Path, parameters: dict[str, str], config: dict[str, Any] | None, expected: int | None
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    assert hints.max_seq_len(view(gpt_model_path=str(tmp_path), **parameters)) == expected


@pytest.mark.parametrize(
    ("value", "adds"), [(None, True), ("true", True), ("${add_special_tokens}", True), ("False", False)]
)
def test_preprocessing_adds_special_tokens_unless_told_otherwise(value: str | None, adds: bool) -> None:
    parameters = {} if value is None else {"add_special_tokens": value}
    assert hints.adds_special_tokens(view("preprocessing", **parameters)) is adds


@pytest.mark.parametrize(
    ("value", "version", "relative"),
    [
        (None, None, True), (None, (1, 2, 1), True), (None, (1, 3), False), ("${normalize_log_probs}", None, True),
        *((word, None, False) for word in ("false", "False", "FALSE", "0")),
        *((word, (1, 3), True) for word in ("true", "1", "TRUE", "no", "off", "fAlSe")),
    ],
)  # fmt: skip
def test_normalize_log_probs_is_read_as_upstream_reads_it(
    value: str | None, version: tuple[int, ...] | None, relative: bool
) -> None:
    """What its backend cannot read as false or true is left at its default, true before 1.3."""
    parameters = {} if value is None else {"normalize_log_probs": value}
    assert hints.normalizes_log_probs(view(**parameters), version) is relative
    for own in ("llmapi", "transformers"):
        assert value is not None or not hints.normalizes_log_probs(view(engine=own), version)
