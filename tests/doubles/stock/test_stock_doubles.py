"""The doubles of upstream's stock models have the tensors of their versions, and the faults that were seen there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml
from tritonclient.grpc import service_pb2

from tests.doubles.stock.repository import VERSIONS
from tests.doubles.stock.server import StockServer
from tests.integration.kserve import Answer, Kserve, answers, infer_request
from tests.scripted_engine.replay import turn
from tests.stack import GatewayProcess

TEXT = "Grüße, 世界 🙂 مرحبا\n  indented"
NEWEST = VERSIONS[-1]
EACH = pytest.mark.parametrize("version", VERSIONS)
GREEDY = {"text_input": "say it", "max_tokens": 200}


@pytest.fixture
def kserve(stock_triton: StockServer) -> Iterator[Kserve]:
    client = Kserve(stock_triton.grpc_url)
    yield client
    client.close()


def texts(got: list[Answer]) -> list[str]:
    assert not any(answer.error for answer in got), [answer.error for answer in got]
    return [answer.text for answer in got]


def declared(kserve: Kserve, model: str) -> tuple[set[str], set[str]]:
    metadata = kserve.stub.ModelMetadata(service_pb2.ModelMetadataRequest(name=model))
    return {tensor.name for tensor in metadata.inputs}, {tensor.name for tensor in metadata.outputs}


def without_prompt(version: str) -> dict[str, Any]:
    """Options of the models that leave the prompt out of whole answers, where the request cannot ask for it."""
    return {"exclude_input": True} if version == "0.12" else {}


def whole(kserve: Kserve, model: str, **more: object) -> Answer:
    exclude = {} if "_0_12" in model else {"exclude_input_in_output": True}
    [answer] = kserve.stream(model, **{**GREEDY, **exclude, **more})
    assert not answer.error, answer.error
    return answer


def test_tensors_have_the_names_of_their_version(stock_triton: StockServer, kserve: Kserve) -> None:
    for version, seed, minimum in (("0.12", "random_seed", "min_length"), ("0.19", "random_seed", "min_length"),
                                   ("1.0", "seed", "min_tokens"), (NEWEST, "seed", "min_tokens")):  # fmt: skip
        for model in (stock_triton.ensemble(version), stock_triton.bls(version)):
            inputs, outputs = declared(kserve, model)
            assert {seed, minimum, "temperature", "stop_words"} <= inputs
            assert {"seed", "random_seed", "min_tokens", "min_length"} & inputs == {seed, minimum}
            assert ("exclude_input_in_output" in inputs) == (version != "0.12")
            assert ("return_num_output_tokens" in inputs) == (version in ("1.0", NEWEST))
            assert ("guided_decoding_guide" in inputs) == (version not in ("0.12", "0.16"))
            assert not {"finish_reason", "output_ids", "sequence_length"} & outputs


@EACH
def test_an_ensemble_decodes_each_response_alone(stock_triton: StockServer, kserve: Kserve, version: str) -> None:
    model = stock_triton.ensemble(version, **without_prompt(version))
    stock_triton.play(turn(text=TEXT))
    assert whole(kserve, model).text == TEXT
    streamed = kserve.stream(model, stream=True, **GREEDY)
    assert len(streamed) == len(stock_triton.tokenizer().encode(TEXT).ids) + 1
    assert "".join(texts(streamed)).count("\ufffd") == sum(len(c.encode()) for c in TEXT if ord(c) > 127)
    assert [answer.final for answer in streamed] == [False] * (len(streamed) - 1) + [True]


@pytest.mark.parametrize(
    "version", [one if one in ("0.12", NEWEST) else pytest.param(one, marks=pytest.mark.long) for one in VERSIONS]
)
def test_log_probs_are_relative_by_default(stock_triton: StockServer, tmp_path: Path, version: str) -> None:
    """The gateway serves those of the whole distribution, and rejects the others by name with the cure."""
    stock_triton.play(turn(text="abc"))
    names = {"default": stock_triton.ensemble(version, normalizes=True), "false": stock_triton.ensemble(version)}
    settings = {
        "triton": {"url": stock_triton.grpc_url},
        "tokenizer": str(stock_triton.model_dir()),
        "max_seq_len": 512,
    }
    models = [
        {**settings, "name": name, "triton": {**settings["triton"], "model": model}} for name, model in names.items()
    ]
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump({"models": models}))
    with GatewayProcess(tmp_path / "log", GATEWAY_CONFIG=str(file)) as gateway:

        def ask(model: str, **more: Any) -> tuple[int, Any]:
            body = {"model": model, "prompt": "say it", "max_tokens": 9, "logprobs": 0, **more}
            answer = httpx.post(f"{gateway.url}/v1/completions", json=body, timeout=60)
            return answer.status_code, answer.json()

        whole = ask("false", temperature=1)
        assert whole[0] == 200
        values = whole[1]["choices"][0]["logprobs"]["token_logprobs"]
        assert max(values) < 0
        for sampling in ({"temperature": 0}, {"top_p": 0.5}, {"top_k": 4}):
            assert ask("false", **sampling)[1]["choices"][0]["logprobs"]["token_logprobs"] == values
            status, body = ask("default", **sampling)
            assert (status, body["error"]["param"]) == (400, "logprobs")
            assert "normalize_log_probs" in body["error"]["message"]
        assert ask("default", temperature=1)[1]["choices"][0]["logprobs"]["token_logprobs"] == values
        about = httpx.get(f"{gateway.url}/v1/models/default").json()
        assert any(loss.startswith("log-probs are rejected") for loss in about["gateway"]["losses"])


@EACH
def test_temperature_alone_is_greedy(stock_triton: StockServer, kserve: Kserve, version: str) -> None:
    model = stock_triton.ensemble(version, **without_prompt(version))
    stock_triton.play(turn(sampled=True))
    seed = "random_seed" if version in ("0.12", "0.16", "0.19") else "seed"

    def said(**more: object) -> set[str]:
        by_seed = (infer_request(model, **{**GREEDY, **more}) for _ in range(3))
        found = set()
        for value, request in enumerate(by_seed):
            tensor = request.inputs.add(name=seed, datatype="UINT64", shape=[1, 1])
            request.raw_input_contents.append(value.to_bytes(8, "little"))
            assert tensor.name == seed
            found.add("".join(texts(list(answers(kserve.call(request))))))
        return found

    assert len(said(temperature=0.8)) == len(said(temperature=0.8, top_k=1)) == 1
    assert len(said(temperature=0.8, top_p=1.0)) == len(said(temperature=0.0, top_p=0.5)) == 3
    assert [entry["effective"]["greedy"] for entry in stock_triton.requests()] == [True] * 6 + [False] * 6


def test_who_passes_a_cancel_on(stock_triton: StockServer, kserve: Kserve) -> None:
    paced = turn(text="a" * 40, pause=0.02)
    for model, how in ((stock_triton.ensemble(NEWEST), "finished"), (stock_triton.bls(NEWEST), "finished")):
        stock_triton.play(paced)
        call = kserve.call(infer_request(model, stream=True, **GREEDY))
        next(answers(call))
        call.cancel()
        [end] = stock_triton.requests_with("ended")
        assert (end["ended"], end["tokens"]) == (how, 40)
    stock_triton.play(turn(text="a" * 40, hold=True))
    call = kserve.call(infer_request(stock_triton.engine(NEWEST), **held_by_ids()))
    next(answers(call))
    call.cancel()
    assert stock_triton.requests_with("ended")[0]["ended"] == "cancelled"


def held_by_ids() -> dict[str, object]:
    return {"input_ids": [5, 6], "input_lengths": 2, "request_output_len": 100, "streaming": True}


@EACH
def test_an_ensemble_s_request_is_stopped_by_its_id(stock_triton: StockServer, kserve: Kserve, version: str) -> None:
    stock_triton.play(turn(text="abc", hold=True))
    stream = answers(kserve.call(infer_request(stock_triton.ensemble(version), "mine", stream=True, **GREEDY)))
    assert [next(stream).text for _ in "abc"] == ["a", "b", "c"]
    engine = stock_triton.engine(version)
    stop = {"input_ids": [0], "input_lengths": 1, "request_output_len": 1, "stop": True}
    [reply] = kserve.stream(engine, "mine", **stop)
    assert (reply.error, reply.final) == ("", True)
    assert [(answer.text, answer.final) for answer in stream] == [("", True)]
    assert stock_triton.requests_with("ended")[0]["ended"] == "stopped"
    assert [answer.error for answer in kserve.stream(engine, "unknown", **stop)] == [""]
    assert "request ID is not provided" in kserve.stream(engine, "", **stop)[0].error


@EACH
def test_bls_streams_what_is_new_damaged_or_all_so_far(stock_triton: StockServer, kserve: Kserve, version: str) -> None:
    stock_triton.play(turn(text=TEXT))
    new = stock_triton.bls(version, **without_prompt(version))
    assert whole(kserve, new).text == TEXT
    assert "\ufffd" in "".join(texts(kserve.stream(new, stream=True, **GREEDY)))
    so_far = stock_triton.bls(version, accumulate=True, **without_prompt(version))
    assert whole(kserve, so_far).text == TEXT
    streamed = texts(kserve.stream(so_far, stream=True, **GREEDY))
    assert streamed[-1] == streamed[-2] == TEXT
    assert all(TEXT.startswith(text.rstrip("\ufffd")) for text in streamed)
    assert any(text.endswith("\ufffd") for text in streamed)


def test_bls_serves_one_request_under_an_id_of_its_own(stock_triton: StockServer, kserve: Kserve) -> None:
    model = stock_triton.bls(NEWEST)
    stock_triton.play(turn("first", text="a", hold=True), turn("second", text="b"))
    first = answers(kserve.call(infer_request(model, "mine", stream=True, text_input="first", max_tokens=100)))
    assert next(first).text == "a"
    call = kserve.call(infer_request(model, stream=True, text_input="second", max_tokens=100))
    [held] = stock_triton.requests()
    assert held["id"] not in ("mine", "")
    stop = {"input_ids": [0], "input_lengths": 1, "request_output_len": 1, "stop": True}
    kserve.stream(stock_triton.engine(NEWEST), "mine", **stop)
    assert "ended" not in stock_triton.requests()[0]
    kserve.stream(stock_triton.engine(NEWEST), held["id"], **stop)
    assert texts(list(first)) == [""]
    assert "".join(texts(list(answers(call)))) == "b"


def test_an_engine_s_error_in_mid_answer(stock_triton: StockServer, kserve: Kserve) -> None:
    stock_triton.play(turn(text="abcdef", fail_after=2, pause=0.1))
    *data, error = kserve.stream(stock_triton.ensemble(NEWEST), stream=True, **GREEDY)
    assert texts(data) == ["a", "b"]
    assert "Executor failed process requestId" in error.error
    model = stock_triton.bls(NEWEST, copy="hangs")
    with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
        kserve.stream(model, stream=True, timeout=2, **GREEDY)
    stock_triton.play(turn(text="well"))
    with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
        kserve.stream(model, timeout=1, **GREEDY)
