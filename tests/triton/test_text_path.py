"""Answers as text: what follows from the declarations of stock models, what is asked of them, how it is counted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from bls_exchange import BLS, exchange, upstream_configs
from google.protobuf import text_format
from scripted_triton import ask, drop_tensors, floats, ints, response, string, text
from tritonclient.grpc import model_config_pb2

from gateway.generation import SamplingParams
from gateway.generation.engine import EngineError, MalformedOutputError
from gateway.triton import EngineOptions
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.dialects.ensemble import check_text
from gateway.triton.dialects.registry import check
from gateway.triton.dialects.tokens import TokensDialect
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models, assemble, called_models
from gateway.triton.tensors.answer_readers import TextReader
from gateway.triton.text_path import read_text_path
from tests.doubles.stock.repository import BLS as STOCK_BLS
from tests.doubles.stock.repository import TRIO, VERSIONS, Stock, write_stock

LOSSY = EngineOptions(text_streaming="lossy")
WHOLE = EngineOptions(text_streaming="whole")
STREAMED = SamplingParams(temperature=0.0, stream=True)


def stock(version: str, entry: str = "ensemble", *, accumulate: bool = False, **options: Any) -> Models:
    """The models of a stock repository as a gateway reads them."""
    names = {name: name for name in (*TRIO, "ensemble", STOCK_BLS)}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        write_stock(at, Stock(version, **options), names, tokenizer=at, engine_dir=at, accumulate=accumulate)
        configs = {
            name: text_format.Parse((at / name / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())
            for name in names
        }
    views = {name: ModelView.of(config) for name, config in configs.items()}
    return assemble(views[entry], {name: views[name] for name in called_models(views[entry])})


def losses(models: Models, options: EngineOptions) -> dict[str, str]:
    return check(models, "auto").losses(models, options)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_stock_ensemble_gives(version: str) -> None:
    models = stock(version, exclude_input=True)
    assert (
        TokensDialect().losses(models, EngineOptions()) == losses(stock(version, "tensorrt_llm"), EngineOptions()) == {}
    )
    path = read_text_path(models, EngineOptions())
    assert (path.streams, path.whole, path.cumulative, path.echoes) == ("rejected", True, False, False)
    assert path.counts == (("tokens",) if version.startswith("1.") else ("logprobs",))
    assert read_text_path(models, WHOLE).streams == "whole"
    assert read_text_path(models, LOSSY).streams == "damaged"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_stock_bls_model_gives(version: str) -> None:
    plain = read_text_path(stock(version, STOCK_BLS, exclude_input=True), EngineOptions())
    assert (plain.streams, plain.whole, plain.cumulative) == ("rejected", True, False)
    models = stock(version, STOCK_BLS, accumulate=True, exclude_input=True)
    path = read_text_path(models, EngineOptions())
    assert (path.streams, path.whole, path.cumulative) == ("pieces", True, True)
    assert not any(
        "stream" in loss.split(":")[0] for loss in losses(models, EngineOptions()) if "not streamed" not in loss
    )
    for lost in ("does not forward cancellation", "does not forward engine errors during an answer"):
        assert any(lost in loss for loss in losses(models, EngineOptions()))
    # What a BLS model declares since 1.0 it returns since 1.2 only.
    assert path.counts == (("tokens", "logprobs") if version.startswith("1.") else ("logprobs",))


def test_a_whole_answer_that_would_begin_with_the_prompt_is_refused_by_rule() -> None:
    for models in (stock("0.12"), stock("0.12", decoupled=False), stock("0.12", STOCK_BLS)):
        with pytest.raises(DiscoveryError, match="parameter exclude_input_in_output of its engine model to true"):
            check_text(models, EngineOptions())
    for models in (stock("0.12", exclude_input=True), stock("0.16")):
        check_text(models, EngineOptions())


def test_a_stream_never_holds_the_prompt_and_may_stand_for_a_whole_answer() -> None:
    cumulative = stock("0.12", STOCK_BLS, accumulate=True)
    check_text(cumulative, EngineOptions())
    assert not read_text_path(cumulative, EngineOptions()).whole
    check_text(stock("0.12"), LOSSY)
    assert any("answers that are not streamed are damaged as well" in loss for loss in losses(stock("0.12"), LOSSY))


@pytest.mark.parametrize("entry", ["ensemble", STOCK_BLS, "tensorrt_llm"])
def test_a_repository_that_is_not_decoupled_streams_one_event(entry: str) -> None:
    models = stock("1.0", entry, decoupled=False)
    check(models, "auto")
    assert any("is not decoupled" in loss or "are not decoupled" in loss for loss in losses(models, EngineOptions()))
    if entry != "tensorrt_llm":
        path = read_text_path(models, EngineOptions())
        assert (path.streams, path.whole) == ("whole", True)


def test_a_bls_model_cannot_call_an_engine_that_is_decoupled_unless_it_is() -> None:
    mixed = upstream_configs()
    mixed[BLS].model_transaction_policy.decoupled = False
    views = {name: ModelView.of(config) for name, config in mixed.items()}
    models = assemble(views[BLS], {name: views[name] for name in called_models(views[BLS])})
    with pytest.raises(DiscoveryError, match="is not decoupled and cannot call the decoupled model 'tensorrt_llm'"):
        check(models, "auto")


FINAL = response(final=True)


async def through_bls(asked: Any, *answer: Any, options: EngineOptions | None = None, **parameters: str) -> Any:
    sent, chunks, engine = await exchange(upstream_configs(**parameters), asked, *answer, FINAL, options=options)
    return sent, "".join(chunk.text or "" for chunk in chunks), chunks, engine.features


async def test_text_so_far_is_read_as_what_is_new() -> None:
    growing = (text("a é".encode()[:-1]), text("a é".encode()), text("a é b".encode()), text("a é b".encode()))
    sent, answer, chunks, features = await through_bls(ask(params=STREAMED), *growing, accumulate_tokens="Yes")
    assert sent["stream"][2] == b"\x01"
    assert answer == "a é b"
    assert "\ufffd" not in "".join(chunk.text or "" for chunk in chunks)
    assert (features.streams, features.capabilities["stream"].how) == ("pieces", "native")
    sent, answer, _, _ = await through_bls(ask(), text(b"a b"), accumulate_tokens="true")
    assert (sent["stream"][2], answer) == (b"\0", "a b")


async def test_text_that_is_taken_back_is_no_answer() -> None:
    with pytest.raises(MalformedOutputError):
        await through_bls(ask(params=STREAMED), text(b"one two"), text(b"one three"), accumulate_tokens="true")


@pytest.mark.parametrize(("options", "stream"), [(WHOLE, b"\0"), (LOSSY, b"\x01")])
async def test_the_setting_decides_about_a_stream(options: EngineOptions, stream: bytes) -> None:
    sent, answer, _, features = await through_bls(ask(params=STREAMED), text(b"all"), options=options)
    assert (sent["stream"][2], answer) == (stream, "all")
    assert features.capabilities["stream"].how != "impossible"


async def test_a_temperature_that_goes_nowhere_is_refused() -> None:
    configs = upstream_configs()
    drop_tensors(configs[BLS], ["prompt_table_extra_id"])
    with pytest.raises(EngineError) as error:
        await exchange(configs, ask(params=SamplingParams(temperature=0.5)), text(b"a", final=True))
    assert error.value.param == "temperature"
    for temperature in (0.0, 1.0):
        sent, _, engine = await exchange(
            configs, ask(params=SamplingParams(temperature=temperature)), text(b"a", final=True)
        )
        assert "temperature" not in sent
    assert engine.features.capabilities["temperature"].how == "impossible"


def counted(*answer: Any, most: int = 8) -> list[int | None]:
    """Tokens of each response, by the log-probs that they have."""
    reader = TextReader(most, counts=("tokens", "logprobs"))
    return [reader.read(message.infer_response, final=False).output_tokens for message in answer]


def test_log_probs_count_tokens_where_nothing_else_does() -> None:
    assert counted(text(b"a b c", output_log_probs=floats(-1, 0, -2))) == [3]
    growing = (floats(-1), floats(-1, -2), floats(-1, -2, -1, -1), floats(-1, -2, -1, -1))
    pieces = (b"a", b"", b"bc", b"")
    answer = [text(words, output_log_probs=values) for words, values in zip(pieces, growing, strict=True)]
    assert counted(*answer) == [1, 1, 2, 0]
    assert counted(text(b"a", num_output_tokens=ints(1), output_log_probs=floats(-1, -2))) == [1]


def test_what_cannot_be_a_count_is_none() -> None:
    assert counted(text(b"many words", output_log_probs=floats(0.0))) == [None]  # the zero of versions before 0.13
    assert counted(text(b"a", output_log_probs=floats(-1)), text(b"b", output_log_probs=floats(-1))) == [1, None]
    assert counted(text(b"a", num_output_tokens=ints(9))) == [None]
    assert counted(text(b"a")) == [None]


def test_the_end_without_data_gives_what_was_held_back() -> None:
    reader = TextReader(8, cumulative=True)
    assert reader.read(response(text_output=string("é".encode()[:1])).infer_response, final=False).text == ""
    assert reader.read(FINAL.infer_response, final=True).text == "\ufffd"


def test_texts_of_beams_are_read_and_others_beside_the_answer_are_malformed() -> None:
    best = string(b"best")[2]
    both = response(final=True, text_output=("BYTES", [1, 2], best + string(b"worse")[2])).infer_response
    assert TextReader(beams=2).read(both, final=True).text == "best"
    with pytest.raises(MalformedOutputError):
        TextReader().read(both, final=True)
