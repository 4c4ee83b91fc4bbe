"""The tensor tables say what the model repository declares."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from gateway.text.contract import ModelSpec, TensorSpec
from gateway_ops.repository.stock_models import ENGINE_NAMES, MODELS

REPOSITORY = Path(__file__).parents[3] / "triton_repo"


def load(model: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse((REPOSITORY / model / "config.pbtxt").read_text(), model_config_pb2.ModelConfig())


def table(specs: tuple[TensorSpec, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {spec.name: (spec.datatype.replace("LOGITS", "FP32"), spec.dims) for spec in specs}


def declared(tensors) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        tensor.name: (model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_"), tuple(tensor.dims))
        for tensor in tensors
    }


@pytest.mark.parametrize("spec", MODELS.values(), ids=lambda spec: spec.name)
def test_the_repository_declares_the_tables(spec: ModelSpec) -> None:
    config = load(spec.name)
    assert declared(config.input) == table(spec.inputs)
    assert declared(config.output) == table(spec.outputs)
    # Fewer may be required: ours answer a request without them by a clear error, which Triton's own check does not.
    assert {tensor.name for tensor in config.input if not tensor.optional} <= {
        each.name for each in spec.inputs if not each.optional
    }


@pytest.mark.parametrize("spec", MODELS.values(), ids=lambda spec: spec.name)
def test_names_are_unique(spec: ModelSpec) -> None:
    for specs in (spec.inputs, spec.outputs):
        names = [name for each in specs for name in each.names]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("spec", MODELS.values(), ids=lambda spec: spec.name)
def test_extensions_are_never_required(spec: ModelSpec) -> None:
    assert all(each.optional for each in (*spec.inputs, *spec.outputs) if each.extension)


def test_the_ensemble_maps_its_inputs_to_the_engine_under_the_documented_names() -> None:
    [step] = [step for step in load("ensemble").ensemble_scheduling.step if "input_ids" in step.input_map]
    for engine_name, ensemble_name in step.input_map.items():
        if not ensemble_name.startswith("_"):
            assert ENGINE_NAMES.get(ensemble_name, ensemble_name) == engine_name


def test_renamed_inputs_know_both_names() -> None:
    engine = {spec.name: spec for spec in MODELS["tensorrt_llm"].inputs}
    ensemble = {spec.name: spec for spec in (*MODELS["ensemble"].inputs, *MODELS["ensemble"].outputs)}
    assert engine["seed"].names == ("seed", "random_seed")
    assert ensemble["min_tokens"].names == ("min_tokens", "min_length")
    assert ensemble["text_output"].wire_datatype == "BYTES"
    assert "input_ids" not in ensemble
