"""What cannot be found out of an encoder's configuration: each error names the setting that says it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.generation.encoder import EncoderParams, EncoderRequest
from gateway.generation.engine import EngineError, MalformedOutputError
from gateway.settings.encoder_settings import EncoderSettings
from gateway.settings.model_settings import Task
from gateway.text.tokens.encoder_tokenizer import EncoderInput
from gateway.triton.abilities import EngineOptions
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.encoder import TritonEncoder, read_form
from gateway.triton.discovery import describe
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble
from tests.doubles.encoders.encoder_server import Row, write_row


def _view(folder: Path, row: Row) -> ModelView:
    write_row(folder, "model", row)
    config = model_config_pb2.ModelConfig(name="model")
    text_format.Parse((folder / "model" / "config.pbtxt").read_text(), config)
    return ModelView.of(config)


@pytest.mark.parametrize(
    ("inputs", "outputs", "settings", "words"),
    [
        ("a STRING 1, b STRING 1", "v FP32 4", {}, "which input of model 'model' takes the texts, of a, b; name it in"),
        ("a STRING 1, n INT64 1", "v FP32 4", {}, "requires inputs that the gateway does not send: n; give their"),
        ("a STRING 1", "v FP32 4, w FP32 4", {}, "which output of model 'model' has the vectors or scores, of v, w"),
        ("a STRING 1", "v FP32 4", {"output": "x"}, "has no output 'x'; its outputs are v"),
        ("a STRING 1", "v FP32 4", {"inputs": {"x": 1}}, "has no input x; its inputs are a"),
        ("a STRING 1", "v FP32 4", {"default_input_type": "query"}, "query is not in encoder.input_types"),
        ("a STRING 1", "v FP32 4", {"token_ids": "own"}, "token_ids: model 'model' takes texts, in its input a"),
        ("a STRING 1, n INT64 1", "v FP32 4", {"inputs": {"n": "many"}}, "encoder.inputs or encoder.parameters"),
        (
            "a STRING 1, n INT64 1", "v FP32 4", {"input_types": {"query": {"inputs": {"n": 1}}}},
            "requires inputs that the gateway does not send: n",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_found_names_a_setting(
    tmp_path: Path, inputs: str, outputs: str, settings: dict[str, Any], words: str
) -> None:
    view = _view(tmp_path, Row(inputs, outputs, {}))
    options = EngineOptions(task="embed", encoder=EncoderSettings.model_validate(settings))
    with pytest.raises(DiscoveryError) as raised:
        describe(assemble(view, {}), "auto", options)
    assert words in str(raised.value)


def test_a_model_of_one_text_cannot_rerank(tmp_path: Path) -> None:
    """It would get the query alone, and score all documents alike."""
    view = _view(tmp_path, Row("a STRING 1", "score FP32 1", {}))
    with pytest.raises(DiscoveryError, match="takes one text, but to rerank needs a query with a document"):
        describe(assemble(view, {}), "auto", EngineOptions(task="rerank"))


def test_a_default_input_type_fills_an_input(tmp_path: Path) -> None:
    settings = {"input_types": {"query": {"inputs": {"n": 1}}}, "default_input_type": "query"}
    view = _view(tmp_path, Row("a STRING 1, n INT64 1", "v FP32 4", {}))
    assert read_form(view, EncoderSettings.model_validate(settings)).tensors == {"text": "a"}


def test_several_queries_need_a_batch_dimension(tmp_path: Path) -> None:
    """Without one a request has one query: the scores of others would be of another question."""
    for batch in (0, 4):
        view = _view(tmp_path / f"{batch}", Row("query STRING 1, passage STRING -1", "logit FP32 -1", {}, batch=batch))
        options = EngineOptions(task="rerank", encoder=EncoderSettings(batch=4))
        assert describe(assemble(view, {}), "auto", options).one_query is (batch == 0)
    view = _view(tmp_path, Row("query STRING 1, passage STRING -1", "logit FP32 -1", {}, batch=0))
    settings = EncoderSettings(batch=4)
    encoder = TritonEncoder(cast("Any", None), view, read_form(view, settings), settings, cast("Any", None))
    same = [EncoderInput("a", pair) for pair in "xyz"]
    wire = encoder.wire(EncoderRequest("1", same, EncoderParams()))
    assert [(tensor.name, list(tensor.shape)) for tensor in wire.inputs] == [("query", [1]), ("passage", [3])]
    with pytest.raises(EngineError, match="one query"):
        encoder.wire(EncoderRequest("1", [*same, EncoderInput("b", "x")], EncoderParams()))


class OneResponse:
    """A connection whose only response has FP32 numbers, a row for each text."""

    timeout = 5.0
    ended = True

    def __init__(self, output: str, values: list[list[float]]) -> None:
        self.transport = self
        self._stream = service_pb2.ModelStreamInferResponse()
        response = self._stream.infer_response
        response.outputs.add(name=output, datatype="FP32", shape=np.shape(values))
        response.raw_output_contents.append(np.array(values, np.float32).tobytes())
        response.parameters["triton_final_response"].bool_param = True

    def infer(self, *_request: Any, **_options: Any) -> OneResponse:
        return self

    async def read(self) -> bytes:
        return self._stream.SerializeToString()

    def cancel(self) -> None: ...


def _encoder(folder: Path, row: Row, connection: OneResponse, task: Task) -> TritonEncoder:
    view, settings = _view(folder, row), EncoderSettings(activation="sigmoid" if task == "rerank" else "auto")
    features = describe(assemble(view, {}), "auto", EngineOptions(task=task, encoder=settings))
    return TritonEncoder(cast("Any", connection), view, read_form(view, settings), settings, features)


async def test_tokens_that_the_model_did_not_count_are_not_invented(tmp_path: Path) -> None:
    row = Row("text STRING 1", "vector FP32 2, token_count INT32 1", {})
    encoder = _encoder(tmp_path, row, OneResponse("vector", [[0.6, 0.8]]), "embed")
    with pytest.raises(MalformedOutputError):
        await encoder.encode(EncoderRequest("1", [EncoderInput("a")], EncoderParams()))
    counted = await encoder.encode(EncoderRequest("1", [EncoderInput("a", ids=[5])], EncoderParams()))
    assert counted.token_counts is None  # those of the tokenizer count


def test_vllm_counts_only_where_it_can_be_asked(tmp_path: Path) -> None:
    for asked in ("", ", return_num_input_tokens? BOOL 1"):
        inputs, outputs = f"embedding_request? STRING 1{asked}", "text_output STRING -1, num_input_tokens UINT32 1"
        view = _view(tmp_path / f"{len(asked)}", Row(inputs, outputs, {}, batch=0))
        assert bool(read_form(view, EncoderSettings()).count) is bool(asked)


async def test_an_infinite_score_is_not_a_certainty(tmp_path: Path) -> None:
    row = Row("pairs STRING 2", "logits FP32 1", {}, task="rerank")
    encoder = _encoder(tmp_path, row, OneResponse("logits", [[float("inf")], [0.0]]), "rerank")
    request = EncoderRequest("1", [EncoderInput("a", "b", ids=[1]), EncoderInput("a", "c", ids=[1])], EncoderParams())
    first, second = (await encoder.encode(request)).values[:, 0].tolist()
    assert math.isnan(first)  # which the model of the registry rejects by its place
    assert second == 0.5
