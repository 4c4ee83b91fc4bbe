"""What cannot be found out of an encoder's configuration: each error names the setting that says it."""

from __future__ import annotations

import asyncio
import json
import math
import struct
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tokenizers
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2, service_pb2

from gateway.generation.encoder import EncoderParams, EncoderRequest
from gateway.generation.engine import EngineError, EngineFeatures, MalformedOutputError
from gateway.serving.encoder_batches import split
from gateway.settings.encoder_settings import EncoderSettings
from gateway.settings.model_settings import Task
from gateway.text.tokens.encoder_tokenizer import EncoderInput, EncoderTokenizer
from gateway.triton.abilities import EngineOptions
from gateway.triton.dialects import encoder_response
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.encoder import TritonEncoder
from gateway.triton.dialects.encoder_form import read_form
from gateway.triton.discovery import describe
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import assemble
from tests.doubles.encoders.encoder_server import Row, write_row, write_tokenizer


def _view(folder: Path, row: Row) -> ModelView:
    write_row(folder, "model", row)
    config = model_config_pb2.ModelConfig(name="model")
    text_format.Parse((folder / "model" / "config.pbtxt").read_text(), config)
    return ModelView.of(config)


@pytest.mark.parametrize(
    ("inputs", "outputs", "settings", "words"),
    [
        ("a STRING 1, b STRING 1", "v FP32 4", {}, "which input of model 'model' takes the texts, of a, b; name it in"),
        ("a STRING 1, n INT64 1", "v FP32 4", {}, "the gateway does not send: n; name them in encoder.tensors by"),
        ("a STRING 1", "v FP32 4, w FP32 4", {}, "which output of model 'model' has the vectors or scores, of v, w"),
        ("a STRING 1", "v FP32 4", {"output": "x"}, "has no output 'x' of type FP32 or"),
        ("a STRING 1", "v FP32 4", {"inputs": {"x": 1}}, "has no input x; its inputs are a"),
        ("a STRING 1", "v FP32 4", {"default_input_type": "query"}, "query is not in encoder.input_types"),
        ("a STRING 1", "v FP32 4", {"token_ids": "own"}, "token_ids: model 'model' takes texts, in its input a"),
        ("a STRING 1, n INT64 1", "v FP32 4", {"inputs": {"n": "many"}}, "encoder.inputs or encoder.parameters"),
        ("a INT64 1, b INT64 1", "v FP32 4", {"tensors": {"text": "a"}}, "input a of model 'model' has the type INT64"),
        ("input_ids INT64 -1, attention_mask BF16 -1", "v FP32 4", {}, "input attention_mask of model 'model' has"),
        ("input_ids FP16 -1", "v FP32 4", {}, "input input_ids of model 'model' has the type FP16"),
        ("input_ids INT8 -1", "v FP32 4", {}, "input input_ids of model 'model' has the type INT8"),
        ("input_ids INT64 -1, token_type_ids BOOL -1", "v FP32 4", {}, "token_type_ids of model 'model' has the type"),
        ("input_ids INT64 1 -1", "v FP32 4", {}, "input input_ids of model 'model' has the dimensions [1, -1], one"),
        ("a STRING 1", "v FP32 4, s STRING 1", {"output": "s"}, "model 'model' has no output 's' of type FP"),
        ("embedding_request STRING 1", "text_output STRING 1, v FP32 4", {"output": "v"}, "output 'v' of type BYTES"),
        ("embedding_request STRING 1", "v FP32 4", {}, "has no output 'text_output' of type BYTES; its"),
        ("a STRING 1", "v FP32 2 3 4", {}, "output v of model 'model' has the dimensions [2, 3, 4], not those of"),
        ("a STRING 1", "v FP32 4, n INT64 1", {"count": "m"}, "encoder.count: model 'model' has no output 'm' of"),
        ("a STRING 1", "v FP32 4, n FP32 1", {"output": "v", "count": "n"}, "encoder.count: model 'model'"),
        ("a STRING 1", "v FP32 4, n INT64 3", {"count": "n"}, "n of model 'model' has the dimensions [3], not"),
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


@pytest.mark.parametrize(
    ("inputs", "outputs", "settings", "words"),
    [
        ("a STRING 2", "v FP32 -1", {}, "model 'model' takes two texts or one pair; name it in encoder.tensors, as"),
        ("a STRING 4", "v FP32 10", {}, "output v of model 'model' has the dimensions [10], not those of a vector"),
        ("a STRING -1", "v FP32 4 3", {}, "output v of model 'model' has the dimensions [4, 3], not those of a"),
        ("a STRING 4", "v FP32 4 3, n INT64 3", {"count": "n"}, "n of model 'model' has the dimensions [3], not those"),
    ],
)  # fmt: skip
def test_what_cannot_be_of_a_model_without_batches(
    tmp_path: Path, inputs: str, outputs: str, settings: dict[str, Any], words: str
) -> None:
    view = _view(tmp_path, Row(inputs, outputs, {}, batch=0))
    with pytest.raises(DiscoveryError) as raised:
        read_form(view, EncoderSettings.model_validate(settings))
    assert words in str(raised.value)


def test_two_texts_without_batches_are_what_the_settings_or_the_task_say(tmp_path: Path) -> None:
    """Two inputs in each request, or one pair: the vector of two strings has the same shape."""
    view = _view(tmp_path, Row("a STRING 2", "v FP32 -1", {}, batch=0))
    tasks: tuple[tuple[str, Task, int | None, list[bytes]], ...] = (
        ("text", "embed", 2, [b"x", b"x"]),
        ("pair", "rerank", None, [b"x", b"y"]),
    )
    for content, task, rows, sent in tasks:
        settings = EncoderSettings.model_validate({"tensors": {content: "a"}})
        form = read_form(view, settings)
        assert read_form(view, EncoderSettings(), task) == form
        encoder = TritonEncoder(cast("Any", None), view, form, settings, cast("Any", None))
        wire = encoder.wire(EncoderRequest("1", [EncoderInput("x", "y")], EncoderParams()))
        assert (form.rows, list(wire.inputs[0].shape)) == (rows, [2])
        assert wire.raw_input_contents[0] == b"".join(struct.pack("<I", 1) + each for each in sent)


def test_a_named_output_may_hold_integers(tmp_path: Path) -> None:
    view = _view(tmp_path, Row("a STRING 1", "v UINT8 4, n INT64 1", {}))
    assert read_form(view, EncoderSettings(output="v")).output == "v"


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
    """A connection whose only response has numbers, a row for each text; BF16 is the upper half of FP32."""

    timeout = 5.0
    ended = True

    def __init__(self, output: str, values: Any, datatype: str = "FP32") -> None:
        self.transport = self
        self._stream = service_pb2.ModelStreamInferResponse()
        response = self._stream.infer_response
        response.outputs.add(name=output, datatype=datatype, shape=np.shape(values))
        raw = np.array(values, np.float32)
        response.raw_output_contents.append((raw.view("<u2")[..., 1::2] if datatype == "BF16" else raw).tobytes())
        response.parameters["triton_final_response"].bool_param = True

    def infer(self, *_request: Any, **_options: Any) -> OneResponse:
        return self

    async def read(self) -> bytes:
        return self._stream.SerializeToString()

    def cancel(self) -> None: ...


def _encoder(folder: Path, row: Row, connection: OneResponse, task: Task, **given: Any) -> TritonEncoder:
    view, settings = _view(folder, row), EncoderSettings(**given)
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


def test_a_request_to_vllm_has_one_text(tmp_path: Path) -> None:
    """Whatever the settings say: its vector would be split among several."""
    view = _view(tmp_path, Row("embedding_request? STRING 1", "text_output STRING -1", {}, batch=0))
    assert read_form(view, EncoderSettings(batch=4)).most_items == 1


async def test_an_infinite_score_is_not_a_certainty(tmp_path: Path) -> None:
    row = Row("pairs STRING 2", "logits FP32 1", {}, task="rerank")
    encoder = _encoder(tmp_path, row, OneResponse("logits", [[float("inf")], [0.0]]), "rerank", activation="sigmoid")
    request = EncoderRequest("1", [EncoderInput("a", "b", ids=[1]), EncoderInput("a", "c", ids=[1])], EncoderParams())
    first, second = (await encoder.encode(request)).values[:, 0].tolist()
    assert math.isnan(first)  # which the model of the registry rejects by its place
    assert second == 0.5


ROWS = [[0.25, 0.75], [1.0, 1.0]]  # probabilities of two classes, and what no two classes have


@pytest.mark.parametrize(
    ("output", "settings", "expected"),
    [
        ("logits", {}, [0.3775, 0.5]),
        ("probs", {}, [0.25, 1]),
        ("scores", {}, [0.25, 0.5]),
        ("output_0", {}, [0.25, 0.5]),
        ("scores", {"activation": "softmax"}, [0.3775, 0.5]),
        ("logits", {"activation": "none"}, [0.25, 1]),
    ],
)
async def test_only_logits_become_probabilities(
    tmp_path: Path, output: str, settings: dict[str, Any], expected: list[float]
) -> None:
    row = Row("text STRING 1", f"{output} FP32 2", {})
    encoder = _encoder(tmp_path, row, OneResponse(output, ROWS), "classify", **settings)
    items = [EncoderInput(text, ids=[1]) for text in "ab"]
    found = (await encoder.encode(EncoderRequest("1", items, EncoderParams()))).values
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-4)


def test_documents_of_a_fixed_number_cannot_be_sorted(tmp_path: Path) -> None:
    """The sorted places would include those of the padding."""
    view = _view(tmp_path, Row("query STRING 1, passage STRING 4", "index INT32 4, logit FP32 4", {}, batch=0))
    with pytest.raises(DiscoveryError, match="input passage of model 'model' has 4 rows, which index would sort"):
        read_form(view, EncoderSettings())


async def test_padding_is_left_out_of_vectors_behind_one_another(tmp_path: Path) -> None:
    row = Row(IDS.replace("-1", "4 -1"), "vectors FP32 -1", {}, batch=0)
    encoder = _encoder(tmp_path, row, OneResponse("vectors", [1, 2, 3, 4, 5, 6, 7, 8]), "embed")
    items = [EncoderInput(text, ids=[1]) for text in "ab"]
    found = (await encoder.encode(EncoderRequest("1", items, EncoderParams()))).values
    assert found.tolist() == [[1, 2], [3, 4]]


async def test_bf16_is_read_exactly(tmp_path: Path) -> None:
    exact = [[1.0, -0.0078125, 3.0e38, 2.0**-130]]
    exact = (np.array(exact, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).tolist()
    connection = OneResponse("vector", exact, "BF16")
    encoder = _encoder(tmp_path, Row("text STRING 1", "vector BF16 4", {}), connection, "embed")
    found = (await encoder.encode(EncoderRequest("1", [EncoderInput("a", ids=[1])], EncoderParams()))).values
    assert (found.dtype, found.tolist()) == (np.float32, exact)


async def test_hidden_states_are_pooled_off_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else this would wait for ever: pooling goes on only when the loop lets it."""
    going, asked = threading.Event(), EncoderRequest("1", [EncoderInput("a", ids=[1, 2])], EncoderParams())
    pooled = encoder_response._pooled

    def waits(*given: Any) -> Any:
        assert going.wait(10)
        return pooled(*given)

    monkeypatch.setattr(encoder_response, "_pooled", waits)
    row = Row("input_ids INT64 -1, attention_mask INT64 -1", "states FP32 -1 2", {})
    encoder = _encoder(tmp_path, row, OneResponse("states", [[[1.0, 0.0], [0.0, 1.0]]]), "embed", normalize=False)
    encoding = asyncio.ensure_future(encoder.encode(asked))
    asyncio.get_running_loop().call_later(0, asyncio.get_running_loop().call_soon, going.set)
    assert (await encoding).values.tolist() == [[0.5, 0.5]]


def _features(folder: Path, inputs: str, output: str, **settings: Any) -> EngineFeatures:
    view = _view(folder, Row(inputs, output, {}, batch=64))
    return describe(assemble(view, {}), "auto", EngineOptions(task="embed", encoder=EncoderSettings(**settings)))


IDS = "input_ids INT64 -1, attention_mask INT64 -1"


@pytest.mark.parametrize(
    ("output", "most"),
    [("vector FP32 1024", 16384), ("states FP32 -1 1024", 8192), ("states FP16 -1 4096", 4096), ("s FP32 -1 -1", 8192)],
)
def test_batches_have_a_bound_of_tokens_and_of_returned_bytes(tmp_path: Path, output: str, most: int) -> None:
    """32 MiB of vectors of all tokens; a dimension that the model does not say is taken for 1,024."""
    assert _features(tmp_path / "a", IDS, output).most_tokens == most
    assert _features(tmp_path / "b", IDS, output, batch_tokens=100).most_tokens == 100


def test_inputs_of_a_batch_have_about_one_length(tmp_path: Path) -> None:
    """Padding counts, whichever input it follows; one that is longer than the bound goes alone."""
    lengths = [9, 2, 100, 3, 10, 1, 2]
    features = _features(tmp_path, IDS, "vector FP32 4", batch_tokens=20)
    singles = [EncoderInput("", ids=[7] * length) for length in lengths]
    pairs = [EncoderInput("q" * 4, "d" * 4 * (length - 1)) for length in lengths]
    for inputs in (singles, pairs):
        assert [[lengths[index] for index in batch] for batch in split(inputs, features)] == [
            [1, 2, 2, 3],
            [9, 10],
            [100],
        ]


def test_without_an_attention_mask_nothing_is_padded(tmp_path: Path) -> None:
    features = _features(tmp_path, "input_ids INT64 -1", "vector FP32 4")
    inputs = [EncoderInput("", ids=[7] * length) for length in (2, 3, 2, 3, 1)]
    assert split(inputs, features) == [[4], [0, 2], [1, 3]]


def test_inputs_have_the_length_that_a_model_declares(tmp_path: Path) -> None:
    """As engines of a fixed shape want it; padding counts in a batch."""
    fixed = "input_ids INT64 512, attention_mask INT64 512"
    features = _features(tmp_path / "a", fixed, "vector FP32 4")
    assert (features.max_seq_len, features.most_items) == (512, 32)
    view, settings = _view(tmp_path / "b", Row(fixed, "vector FP32 4", {})), EncoderSettings()
    encoder = TritonEncoder(cast("Any", None), view, read_form(view, settings), settings, cast("Any", None))
    wire = encoder.wire(EncoderRequest("1", [EncoderInput("", ids=[7, 8])], EncoderParams(), pad_id=1))
    ids, mask = (np.frombuffer(raw, "<i8") for raw in wire.raw_input_contents)
    assert [list(tensor.shape) for tensor in wire.inputs] == [[1, 512], [1, 512]]
    assert (ids[:3].tolist(), int(mask.sum())) == ([7, 8, 1], 2)


@pytest.mark.parametrize(
    ("batch", "dims", "shape"),
    [(0, "-1", [3]), (0, "1", [1]), (0, "-1 -1", [3, 1]), (8, "1", [3, 1]), (8, "-1", [3, 1])],
)
def test_constants_have_a_row_for_each_item(tmp_path: Path, batch: int, dims: str, shape: list[int]) -> None:
    """Also where the model has no batches, but leaves their number open."""
    ids, settings = (
        "input_ids INT64 -1 -1" if batch == 0 else "input_ids INT64 -1",
        EncoderSettings(inputs={"n": 7}, batch=4),
    )
    view = _view(tmp_path, Row(f"{ids}, n INT64 {dims}", "vector FP32 -1 4", {}, batch=batch))
    encoder = TritonEncoder(cast("Any", None), view, read_form(view, settings), settings, cast("Any", None))
    wire = encoder.wire(EncoderRequest("1", [EncoderInput("", ids=[5])] * 3, EncoderParams()))
    assert [list(tensor.shape) for tensor in wire.inputs] == [[3, 1], shape]


def test_padding_is_the_tokenizers_own(tmp_path: Path) -> None:
    view, settings = _view(tmp_path, Row(f"{IDS}, token_type_ids INT32 -1", "vector FP32 4", {})), EncoderSettings()
    encoder = TritonEncoder(cast("Any", None), view, read_form(view, settings), settings, cast("Any", None))
    items = [EncoderInput("", ids=[5, 6, 7], type_ids=[0, 1, 1]), EncoderInput("", ids=[8], type_ids=[1])]
    wire = encoder.wire(EncoderRequest("1", items, EncoderParams(), pad_id=1))
    found = {
        tensor.name: np.frombuffer(raw, {"INT64": "<i8", "INT32": "<i4"}[tensor.datatype]).tolist()
        for tensor, raw in zip(wire.inputs, wire.raw_input_contents, strict=True)
    }
    assert found == {
        "input_ids": [5, 6, 7, 8, 1, 1],
        "attention_mask": [1, 1, 1, 1, 0, 0],
        "token_type_ids": [0, 1, 1, 1, 0, 0],
    }
    folder = write_tokenizer(tmp_path / "tokenizer")
    assert EncoderTokenizer.from_folder(folder).pad_id == 0
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<pad>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert EncoderTokenizer.from_folder(folder).pad_id == tokenizer.token_to_id("<pad>")
    tokenizer.enable_padding(pad_id=9)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert EncoderTokenizer.from_folder(folder).pad_id == 9


@pytest.mark.parametrize(("kind", "positions"), [("bert", [0, 1, 2, 0, 1, 0]), ("xlm-roberta", [2, 3, 4, 2, 3, 1])])
def test_positions_count_from_the_padding_id_where_the_model_was_made_so(
    tmp_path: Path, kind: str, positions: list[int]
) -> None:
    """As transformers numbers them: a token at a padding place has the padding id."""
    folder = write_tokenizer(tmp_path / "tokenizer")
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_padding(pad_id=1)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    view, settings = _view(tmp_path, Row(f"{IDS}, position_ids INT64 -1", "vector FP32 4", {})), EncoderSettings()
    encoder = TritonEncoder(cast("Any", None), view, read_form(view, settings), settings, cast("Any", None))
    items = EncoderTokenizer.from_folder(folder).tokenize([EncoderInput("a"), EncoderInput("", ids=[5, 6])], total=9)
    wire = encoder.wire(EncoderRequest("1", items, EncoderParams(), pad_id=1))
    by_name = dict(zip((each.name for each in wire.inputs), wire.raw_input_contents, strict=True))
    assert np.frombuffer(by_name["position_ids"], "<i8").tolist() == positions
