"""Drafts: which models take them, and what goes over the wire for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bls_exchange import BLS, bls_configs, exchange, find, upstream_configs
from scripted_triton import ScriptedTriton, ask, inputs_of, stock_configs, text, tokens
from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError
from gateway.triton import EngineOptions
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.grpcio import open_channel


async def test_a_draft_model_guesses_behind_a_bls_model() -> None:
    request = ask(num_draft_tokens=5)
    sent, chunks, engine = await exchange(bls_configs(), request)
    assert sent["num_draft_tokens"] == ("INT32", [1, 1], b"\x05\0\0\0")
    assert sent["stream"][2] == b"\x01"
    assert "use_draft_logits" not in sent
    assert sent["text_input"][2][4:] == b"one two"
    assert chunks[-1].ids == (7,)
    features = engine.features
    assert (features.path, features.model, features.token_ids) == ("ensemble", BLS, True)
    assert "the draft model 'guess'" in features.reason
    assert not any("cancel" in warning for warning in features.warnings)
    assert features.capabilities["num_draft_tokens"].how == features.capabilities["use_draft_logits"].how == "native"
    assert features.capabilities["prediction"].how == "impossible"
    plain, _, _ = await exchange(bls_configs(), ask())
    assert "num_draft_tokens" not in plain


async def test_logits_are_asked_for_with_guesses_only() -> None:
    configs = bls_configs()
    sent, _, _ = await exchange(configs, ask(num_draft_tokens=5, use_draft_logits=True))
    assert sent["use_draft_logits"][2] == b"\x01"
    sent, _, _ = await exchange(configs, ask(use_draft_logits=True))
    assert "use_draft_logits" not in sent


@pytest.mark.parametrize(("gathers", "how"), [("false", "impossible"), ("true", "native"), ("${NOT_HERE}", "native")])
async def test_whether_a_draft_model_has_logits(gathers: str, how: str) -> None:
    configs = bls_configs()
    configs["guess"].parameters["gather_logits"].string_value = gathers
    _, _, engine = await exchange(configs, ask())
    assert engine.features.capabilities["use_draft_logits"].how == how


async def test_without_a_draft_model_guesses_are_refused_by_name() -> None:
    for draft in (None, "${NOT_HERE}"):
        configs = bls_configs(None, **({"tensorrt_llm_draft_model_name": draft} if draft else {}))
        _, _, engine = await exchange(configs, ask())
        assert engine.features.capabilities["num_draft_tokens"].how == "impossible"
        assert "draft model" in engine.features.capabilities["num_draft_tokens"].note
    with pytest.raises(EngineError, match="num_draft_tokens is not supported"):
        await exchange(stock_configs(), ask(num_draft_tokens=5), model="ensemble")


async def rejecting(request: Any, _context: Any) -> AsyncIterator[Any]:
    if {"num_draft_tokens", "draft_input_ids"} & set(inputs_of(request)):
        message = "draft_input_ids: the engine does not accept draft tokens"
        yield service_pb2.ModelStreamInferResponse(error_message=message)
    else:
        yield tokens(7, final=True)


@pytest.mark.parametrize(("model", "parameter"), [(BLS, "num_draft_tokens"), ("tensorrt_llm", "prediction")])
async def test_an_engine_that_refuses_drafts_is_not_sent_them(model: str, parameter: str) -> None:
    async with ScriptedTriton(rejecting, bls_configs()) as server, open_channel(server.url) as channel:
        features = (await find(server, channel, model)).features
    assert features.capabilities[parameter].how == "impossible"
    assert "does not accept draft tokens" in features.capabilities[parameter].note
    assert features.max_draft_tokens == 0


async def test_upstreams_bls_model_answers_in_one_piece() -> None:
    answer = (text(b"all of it"), service_pb2.ModelStreamInferResponse())
    answer[1].infer_response.parameters["triton_final_response"].bool_param = True
    sent, chunks, engine = await exchange(upstream_configs(), ask(num_draft_tokens=5), *answer)
    assert sent["stream"][2] == b"\0"
    assert "".join(chunk.text or "" for chunk in chunks) == "all of it"
    assert chunks[-1].final
    assert any("does not forward cancellation" in loss for loss in engine.features.losses)
    assert engine.features.streams == "rejected"
    assert engine.features.one_response(stream=False)
    sent, _, _ = await exchange(upstream_configs(), ask(), *answer)
    assert sent["stream"][2] == b"\0"


async def test_a_bls_model_that_cannot_be_served() -> None:
    whole, without = bls_configs(), bls_configs()
    whole[BLS].model_transaction_policy.decoupled = False
    del without["guess"]
    for configs, path, words in (
        (bls_configs(), "tokens", "is a BLS model, which only reads text"),
        (whole, "auto", "'tensorrt_llm_bls' is not decoupled"),
        (without, "auto", "'guess', which 'tensorrt_llm_bls' calls, is not in"),
    ):
        async with ScriptedTriton(configs=configs) as server, open_channel(server.url) as channel:
            with pytest.raises(DiscoveryError, match=words):
                await find(server, channel, BLS, path)


async def test_a_request_brings_its_own_draft() -> None:
    answer = tokens(7, 8, final=True)
    request = ask(draft=(7, 8, 9))
    sent, chunks, engine = await exchange(stock_configs(), request, answer, model="ensemble")
    assert sent["draft_input_ids"] == ("INT32", [1, 3], b"\x07\0\0\0\x08\0\0\0\x09\0\0\0")
    assert list(chunks[-1].ids) == [7, 8]
    assert engine.features.max_draft_tokens is None
    for changes, shape in (({}, None), ({"draft_limit": 1}, [1, 1]), ({"draft_limit": 0}, None)):
        request = ask(draft=(7, 8, 9) if changes else (), **changes)
        sent, _, _ = await exchange(stock_configs(), request, answer, model="ensemble")
        assert sent.get("draft_input_ids", (None, None))[1] == shape


async def test_an_engine_of_tensorrt_llm_is_sent_drafts_where_its_operator_says_so() -> None:
    configs = upstream_configs()
    _, _, silent = await exchange(configs, ask(), model="ensemble")
    assert silent.features.max_draft_tokens == 0
    assert "max_draft_tokens" in silent.features.capabilities["prediction"].note
    _, _, told = await exchange(configs, ask(), model="ensemble", options=EngineOptions(max_draft_tokens=8))
    assert (told.features.max_draft_tokens, told.features.draft_room) == (8, 8)
    assert told.features.capabilities["prediction"].how == "native"
    _, _, bls = await exchange(configs, ask(), text(b"x", final=True), options=EngineOptions(max_draft_tokens=8))
    assert bls.features.capabilities["num_draft_tokens"].limit == 8
    assert "sampled answers change" in bls.features.capabilities["num_draft_tokens"].note
    assert bls.features.draft_room == 8
    _, _, ours = await exchange(stock_configs(), ask(), model="ensemble", options=EngineOptions(max_draft_tokens=8))
    assert (ours.features.max_draft_tokens, ours.features.draft_room) == (8, 0)
