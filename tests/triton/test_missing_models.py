"""Models that are not there: what passes is told from what must be changed, and what was found is named."""

from __future__ import annotations

import pytest
from scripted_triton import ScriptedTriton, resnet, stock_config, stock_configs

from gateway.generation.engine import EngineError, ErrorKind
from gateway.triton import discovery
from gateway.triton.dialects.dialect import DiscoveryError
from gateway.triton.grpcio import open_channel
from gateway.triton.triton_client import TritonClient


async def read(server: ScriptedTriton, model: str = "ensemble") -> None:
    async with open_channel(server.url) as channel:
        await discovery.read_models(TritonClient(channel), model)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (["tensorrt_llm"], "which has 'tensorrt_llm' (engine); set triton.model to it"),
        (["tensorrt_llm_bls", "tensorrt_llm", "postprocessing"],
         "which has 'tensorrt_llm' (engine) and 'tensorrt_llm_bls' (BLS); set triton.model to one of them"),
        (["preprocessing"], "which has 'preprocessing', but no ready model of a supported kind: an ense"),
        ([], "which is empty"),
    ],
)  # fmt: skip
async def test_a_name_that_is_not_there_names_what_could_be_meant(there: list[str], said: str) -> None:
    async with ScriptedTriton(configs={name: stock_config(name) for name in there}) as server:
        with pytest.raises(DiscoveryError) as error:
            await read(server)
    assert str(error.value).startswith(f"model 'ensemble' is not in Triton's repository, {said}")


async def test_models_of_other_kinds_are_found_and_not_offered() -> None:
    async with ScriptedTriton(configs={f"resnet{n:02}": resnet(f"resnet{n:02}") for n in range(40)}) as server:
        with pytest.raises(DiscoveryError) as error:
            await read(server)
    assert "has 'resnet00', 'resnet01', " in str(error.value)
    assert "and 32 more, but no ready model" in str(error.value)
    assert "expected" not in str(error.value).partition("none of which")[0]


async def test_a_step_that_is_not_there_is_named_with_its_caller() -> None:
    configs = {name: stock_config(name) for name in ("tensorrt_llm_bls", "preprocessing", "postprocessing")}
    async with ScriptedTriton(configs=configs) as server:
        with pytest.raises(DiscoveryError) as error:
            await read(server, "tensorrt_llm_bls")
    assert str(error.value) == (
        "model 'tensorrt_llm', which 'tensorrt_llm_bls' calls, is not in Triton's repository, "
        "which has 'postprocessing', 'preprocessing' and 'tensorrt_llm_bls'"
    )


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("unloaded", "'tensorrt_llm', which 'ensemble' calls, is not ready in Triton: UNAVAILABLE: unloaded."),
        ("Internal: no GPU.\n\nAt:\n  /opt/x.py(3): y", "is not ready in Triton: UNAVAILABLE: Internal: no GPU."),
        ("x" * 5000, f"UNAVAILABLE: {'x' * 287}."),
    ],
)
async def test_a_model_that_is_there_and_not_ready_may_come(reason: str, said: str) -> None:
    configs = stock_configs()
    del configs["tensorrt_llm"]
    async with ScriptedTriton(configs=configs) as server:
        server.unloaded["tensorrt_llm"] = reason
        with pytest.raises(EngineError) as error:
            await read(server)
    assert error.value.kind is ErrorKind.UNAVAILABLE
    assert error.value.message.endswith(said)


async def test_a_server_that_keeps_its_index_to_itself() -> None:
    async with ScriptedTriton(configs={}) as server:
        server.index = False
        with pytest.raises(EngineError) as error:
            await read(server)
    assert error.value.kind is ErrorKind.UNAVAILABLE
    assert error.value.message.endswith("is unknown to Triton, failed to load, or is still loading.")


async def test_a_bls_model_whose_engine_nobody_named() -> None:
    """Upstream's model took the placeholder for a name until 0.12; later ones have a parameter more."""
    configs = {**stock_configs(), "tensorrt_llm_bls": stock_config("tensorrt_llm_bls")}
    parameters = configs["tensorrt_llm_bls"].parameters
    del parameters["max_concurrent_requests"]
    parameters["tensorrt_llm_model_name"].string_value = "${tensorrt_llm_model_name}"
    async with ScriptedTriton(configs=configs) as server, open_channel(server.url) as channel:
        models = await discovery.read_models(TritonClient(channel), "tensorrt_llm_bls")
        with pytest.raises(
            DiscoveryError,
            match=r"calls engine model '\$\{tensorrt_llm_model_name\}', which is an unfilled template placeholder",
        ):
            discovery.describe(models, "auto")
        parameters["multimodal_encoders_name"].string_value = "${multimodal_encoders_name}"
        models = await discovery.read_models(TritonClient(channel), "tensorrt_llm_bls")
        assert discovery.describe(models, "auto").model == "tensorrt_llm_bls"
