"""The doubles of the stock LLM API model: cancelled and stopped requests, and servers that are set up to harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from tests.doubles.llmapi.raw_requests import ask, llmapi_request
from tests.doubles.llmapi.repository import LlmapiConfig
from tests.doubles.llmapi.server import LlmapiServer
from tests.integration.kserve import Kserve, answers
from tests.scripted_engine.replay import turn
from tests.waiting import until

VERSIONS = ("0.19", "1.0", "1.2", "1.3")
CANCELLED = "Request cancelled by client"
UNANSWERED_S = 0.5  # an answer takes a tenth of it


@pytest.fixture
def harmed(misconfigured_llmapi_triton: LlmapiServer) -> Iterator[Kserve]:
    client = Kserve(misconfigured_llmapi_triton.grpc_url)
    yield client
    client.close()


def unary(client: Kserve, model: str, timeout: float = 10, **inputs: Any) -> str:
    """The text of the answer to a call that is no stream."""
    response = client.stub.ModelInfer(llmapi_request(model, **inputs), timeout=timeout)
    return str(response.raw_output_contents[0][4:].decode())


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_cancelled_call_frees_the_engine_from_1_0(
    llmapi_triton: LlmapiServer, client: Kserve, version: str, streaming: bool
) -> None:
    llmapi_triton.play(turn(text="abcdef", stall_after=2))
    call = client.call(llmapi_request(llmapi_triton.model(version), streaming=streaming))
    llmapi_triton.requests_with("prompt_ids")
    call.cancel()
    [request] = llmapi_triton.requests_with("ended")
    assert (request["ended"], request["tokens"]) == ("cancelled", 2)


def test_the_engine_of_0_19_runs_on(llmapi_triton: LlmapiServer, client: Kserve) -> None:
    llmapi_triton.play(turn(text="abcdef", stall_after=2))
    for place, version in enumerate(("0.19", "1.0"), 1):
        call = client.call(llmapi_request(llmapi_triton.model(version), streaming=True))
        llmapi_triton.requests_with("prompt_ids", place)
        call.cancel()
    # Cancelled later, and noticed: that of 0.19 would have been, too.
    assert [request["version"] for request in llmapi_triton.requests_with("ended")] == ["1.0"]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_stop_ends_a_stream_as_cancelled(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn("held", text="abcdef", stall_after=2))
    model = llmapi_triton.model(version)
    stream = answers(
        client.call(llmapi_request(model, "held", "mine", streaming=True, return_finish_reason=True), timeout=20)
    )
    got = [next(stream), next(stream)] if version == "1.3" else []
    llmapi_triton.requests_with("prompt_ids")
    [reply] = ask(client, model, "any", request_id="mine", stop=True)
    assert reply.error == CANCELLED
    got += stream
    assert (got[-1].finish_reason, got[-1].final) == ("cancelled", True)
    assert got[-1].text == "ab" or version != "1.3"  # the others may not have made both yet


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_stopped_whole_answer_is_never_given(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    llmapi_triton.play(turn("held", text="abcdef", stall_after=2))
    model = llmapi_triton.model(version)
    call = client.call(llmapi_request(model, "held", "mine"), timeout=UNANSWERED_S)
    llmapi_triton.requests_with("prompt_ids")
    ask(client, model, request_id="mine", stop=True)
    with pytest.raises(grpc.RpcError) as failure:
        list(answers(call))
    assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert llmapi_triton.requests_with("ended")[0]["ended"] == "cancelled"


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_stop_of_nothing_is_answered_too(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    [unknown] = ask(client, llmapi_triton.model(version), request_id="nobody's", stop=True)
    [nameless] = ask(client, llmapi_triton.model(version), request_id="", stop=True)
    assert unknown.error == CANCELLED
    assert "request id must be provided" in nameless.error


@pytest.mark.parametrize("version", VERSIONS)
def test_a_decoupled_model_takes_no_unary_call(llmapi_triton: LlmapiServer, client: Kserve, version: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        unary(client, llmapi_triton.model(version))
    assert "decoupled transaction policy" in failure.value.details()


@pytest.mark.parametrize("version", ["1_2", "1_3"])
def test_without_decoupling_streams_are_refused(
    misconfigured_llmapi_triton: LlmapiServer, harmed: Kserve, version: str
) -> None:
    misconfigured_llmapi_triton.play(turn(text="abc"))
    model = f"llmapi_{version}_whole"
    assert unary(harmed, model) == "abc"
    with pytest.raises(grpc.RpcError) as failure:
        unary(harmed, model, streaming=True)
    assert failure.value.details() == "Error generating request: Streaming is only supported in decoupled mode."


async def test_decoupling_that_triton_was_not_told_of_leaves_streams_unanswered(
    misconfigured_llmapi_triton: LlmapiServer, harmed: Kserve
) -> None:
    misconfigured_llmapi_triton.play(turn(text="abc"))
    assert unary(harmed, "llmapi_1_3_lost") == "abc"
    with pytest.raises(grpc.RpcError) as failure:
        unary(harmed, "llmapi_1_3_lost", UNANSWERED_S, streaming=True)
    assert failure.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: "cannot send more than one response" in misconfigured_llmapi_triton.triton.log())
    # One response is all that a version makes whose engine does not stream.
    assert unary(harmed, "llmapi_1_2_lost", streaming=True) == "abc"


@pytest.mark.parametrize("inputs", [{}, {"streaming": False}, {"streaming": True}])
def test_adapters_in_the_settings_of_1_2_make_every_request_fail(
    misconfigured_llmapi_triton: LlmapiServer, harmed: Kserve, inputs: dict[str, bool]
) -> None:
    misconfigured_llmapi_triton.play(turn(text="abc"))
    [answer] = ask(harmed, "llmapi_1_2_lora", **inputs)
    assert answer.error == "Error generating request: 'bool' object has no attribute 'adapter_id'"


def test_triton_learns_of_decoupling_where_it_asks_the_model(llmapi_model_dir: Path, tmp_path: Path) -> None:
    config = LlmapiConfig("1.3", "asked", policy=False)
    with LlmapiServer(tmp_path, [config], llmapi_model_dir, auto_complete=True) as server:
        client = Kserve(server.grpc_url)
        told = client.stub.ModelConfig(service_pb2.ModelConfigRequest(name="asked")).config
        assert told.model_transaction_policy.decoupled
        server.play(turn(text="ab"))
        assert [answer.text for answer in ask(client, "asked", streaming=True)] == ["a", "ab"]
        client.close()
