"""Verdicts of ``gateway check`` on repositories, and those of a gateway that is pointed at them: they are the same."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway_ops.check.findings import Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.repository.model_folders import read_repository
from gateway_ops.repository.pbtxt import to_text
from tests.doubles.llmapi.repository import LlmapiConfig, write_model
from tests.doubles.llmapi.versions import VERSIONS as LLMAPI_VERSIONS
from tests.gateway_ops.check.configured_triton import agree
from tests.gateway_ops.check.planting import BLS, ENSEMBLE, edit, parameter
from tests.gateway_ops.check.test_repository_stock import fill

REPOSITORY = Path(__file__).parents[3] / "triton_repo"
NAMES = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")


def test_a_repository_of_this_project() -> None:
    assert agree(REPOSITORY) == dict.fromkeys(("ensemble", "tensorrt_llm", "tensorrt_llm_bls"))


@pytest.mark.parametrize("version", ["0.12.0", "0.16.0", "1.2.1"])
def test_stock_repositories_however_they_are_filled(tmp_path: Path, version: str, stock_facts: None) -> None:
    choices = itertools.product((True, False), (True, False), ("true", "${accumulate_tokens}"))
    for index, (engine, bls, accumulate) in enumerate(choices):
        folder = fill(tmp_path / str(index), version)
        for name, decoupled in (("tensorrt_llm", engine), ("tensorrt_llm_bls", bls)):
            if not decoupled:
                edit(folder / name / "config.pbtxt", r"model_transaction_policy \{[^}]*\}", "")
        edit(folder / BLS, *parameter("accumulate_tokens", accumulate))
        verdicts = agree(folder)
        assert verdicts["ensemble"] is verdicts["tensorrt_llm"] is None
        assert (verdicts["tensorrt_llm_bls"] is None) == (
            bls or not engine
        )  # it cannot call what answers several times


def test_an_ensemble_that_is_not_stock_is_on_the_text_path(tmp_path: Path, stock_facts: None) -> None:
    folder = fill(tmp_path, "0.19.0")
    edit(folder / ENSEMBLE, r'(input_map \{ key: "QUERY" value: )"text_input"', r'\1"decoder_text_input"')
    edit(folder / ENSEMBLE, r'(input_map \{ key: "DECODER_QUERY" value: )"decoder_text_input"', r'\1"text_input"')
    edit(folder / ENSEMBLE, r'(input_map \{ key: "TOKENS_BATCH" value: )"[^"]*"', r'\1"other"')
    edit(folder / ENSEMBLE, r'(output_map \{ key: "output_ids" value: )"[^"]*"', r'\1"other2"')
    assert agree(folder)["ensemble"] is None
    (said,) = (found for found in check_repository(folder) if "streamed answers are rejected: 'ensemble'" in found.what)
    assert said.severity is Severity.WARNING


@pytest.mark.parametrize("version", LLMAPI_VERSIONS)
def test_the_llm_api_however_its_policy_is_said(tmp_path: Path, version: str) -> None:
    for index, (decoupled, policy) in enumerate(itertools.product((True, False), (True, False))):
        folder = tmp_path / str(index)
        write_model(folder, LlmapiConfig(version, "tensorrt_llm", decoupled=decoupled, policy=policy), tmp_path)
        assert agree(folder) == {"tensorrt_llm": None}


def change(config: Any, how: str, kind: str, index: int) -> None:
    """Change a configuration in one of its tensors, parameters or steps, by the place."""
    tensors, steps = getattr(config, kind), config.ensemble_scheduling.step
    tensor = tensors[index % len(tensors)]
    if how == "removed":
        tensors.remove(tensor)
    elif how == "retyped":
        tensor.data_type = tensor.data_type % 13 + 1
    elif how == "renamed":
        tensor.name += "s"
    elif how == "required":
        config.input[index % len(config.input)].optional = kind == "output"
    elif how == "turned":
        config.model_transaction_policy.decoupled = not config.model_transaction_policy.decoupled
    elif how == "forgotten" and config.parameters:
        del config.parameters[sorted(config.parameters)[index % len(config.parameters)]]
    elif how == "misdirected" and steps:
        steps[index % len(steps)].model_name = NAMES[index % len(NAMES)]
    elif how == "rewired" and steps:
        step = steps[index % len(steps)]
        wires = step.input_map if kind == "input" else step.output_map
        wires[sorted(wires)[index % len(wires)]] += "_"


CHANGES = ("removed", "retyped", "renamed", "required", "turned", "forgotten", "misdirected", "rewired")


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(version="0.12.0", changes=[("tensorrt_llm", "removed", "input", 29)])  # top_k, of which the probe is made
@given(
    version=st.sampled_from(["0.12.0", "1.2.1"]),
    changes=st.lists(
        st.tuples(
            st.sampled_from(NAMES), st.sampled_from(CHANGES), st.sampled_from(["input", "output"]), st.integers(0, 60)
        ),
        max_size=4,
    ),
)
def test_repositories_that_were_changed_at_random(
    tmp_path_factory: pytest.TempPathFactory, stock_facts: None, version: str, changes: list[tuple[str, str, str, int]]
) -> None:
    folder = fill(tmp_path_factory.mktemp("changed"), version)
    models = read_repository(folder)
    for name, how, kind, index in changes:
        if getattr(models[name].config, kind):
            change(models[name].config, how, kind, index)
    for name in {name for name, *_ in changes}:
        models[name].file.write_text(to_text(models[name].config))
    agree(folder)
