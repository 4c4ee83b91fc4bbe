"""What `gateway repo --diff DIR` prints for a repository with changes by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.configs import configurations
from gateway_ops.repository.difference import differences, settings_of
from gateway_ops.repository.model_folders import read_repository
from gateway_ops.repository.pbtxt import to_text

Made = Callable[..., tuple[DeploymentSettings, ...]]


Compare = Callable[..., list[str]]


@pytest.fixture
def compare(deployments_of: Made, tmp_path: Path) -> Compare:
    """Differences from a copy in which one text of one model is replaced."""

    def changed(model: str, old: str, new: str, *, batch: int = 16) -> list[str]:
        (deployment,) = deployments_of({"triton": {"max_batch_size": batch}})
        ours = configurations(deployment)
        for name, config in ours.items():
            text = to_text(config)
            assert name != model or old in text
            (tmp_path / "repo" / name).mkdir(parents=True)
            (tmp_path / "repo" / name / "config.pbtxt").write_text(text.replace(old, new) if name == model else text)
        models = read_repository(tmp_path / "repo")
        theirs = {name: one.config for name, one in models.items()}
        unfilled = {name: one.unfilled_settings for name, one in models.items()}
        return [str(found) for found in differences(ours, theirs, full=True, unfilled=unfilled)]

    return changed


def test_none(compare: Compare) -> None:
    assert compare("preprocessing", "name:", "name:") == []


@pytest.mark.parametrize(
    ("model", "old", "new", "said"),
    [
        ("preprocessing", "max_batch_size: 16", "max_batch_size: ${triton_max_batch_size}",
         ["max_batch_size: 16 rendered, not filled in there"]),
        ("postprocessing", "count: 1", "count: ${postprocessing_instance_count}",
         ["instances: 1 rendered, not filled in there"]),
        ("tensorrt_llm", "preferred_batch_size: 16 default_queue_policy { }",
         "preferred_batch_size: ${triton_max_batch_size} default_queue_policy { max_queue_size: ${max_queue_size} }",
         ["dynamic_batching max_queue_size: only there (not filled in)",
          "dynamic_batching preferred_batch_size: [16] rendered, not filled in there"]),
        ("tensorrt_llm", "decoupled: true", "decoupled: ${decoupled_mode}",
         ["decoupled: true rendered, not filled in there"]),
        ("ensemble", 'name: "context_logits" data_type: TYPE_FP32',
         'name: "context_logits" data_type: ${logits_datatype}',
         ["output context_logits type: FP32 rendered, not filled in there"]),
    ],
)  # fmt: skip
def test_what_nobody_filled_in_is_no_value(compare: Compare, model: str, old: str, new: str, said: list[str]) -> None:
    assert compare(model, old, new) == [f"{model}: {line}" for line in said]


def test_what_nobody_filled_in_is_not_the_value_that_stands_in_for_it(compare: Compare) -> None:
    said = compare("preprocessing", "max_batch_size: 1\n", "max_batch_size: ${triton_max_batch_size}\n", batch=1)
    assert said == ["preprocessing: max_batch_size: 1 rendered, not filled in there"]


OTHERS = {
    "kind": ("postprocessing", "KIND_CPU", "KIND_GPU", "instance_group 1 kind: KIND_CPU rendered, KIND_GPU there"),
    "versions": ("preprocessing", "max_batch_size", "version_policy { specific { versions: 3 } } max_batch_size",
                 "version_policy specific versions: only there ([3])"),
    "version of a step": ("ensemble", 'model_name: "postprocessing"\n    model_version: -1',
                          'model_name: "postprocessing"\n    model_version: 2',
                          "step postprocessing model_version: -1 rendered, 2 there"),
    "priorities": ("tensorrt_llm", "default_queue_policy { }",
                   "default_queue_policy { } priority_queue_policy { key: 1 value { max_queue_size: 4 } }",
                   "dynamic_batching priority_queue_policy 1 max_queue_size: only there (4)"),
    "warm-up": ("preprocessing", "max_batch_size", 'model_warmup { name: "one" batch_size: 2 } max_batch_size',
                "model_warmup 1 batch_size: only there (2)"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_every_field_counts(compare: Compare, name: str) -> None:
    model, old, new, said = OTHERS[name]
    assert f"{model}: {said}" in compare(model, old, new)


def test_a_default_that_is_written_is_no_difference(compare: Compare) -> None:
    written = "version_policy { latest { num_versions: 1 } } max_batch_size"
    assert compare("preprocessing", "max_batch_size", written) == []


def test_of_a_running_server_only_what_a_rendering_sets_counts(deployments_of: Made) -> None:
    """It adds names of instance groups, a version policy and more of its own."""
    (deployment,) = deployments_of({})
    ours = configurations(deployment)
    theirs = configurations(deployment)
    for config in theirs.values():
        config.version_policy.latest.num_versions = 1
        config.default_model_filename = "model.py"
        for group in config.instance_group:
            group.name = "anything"
    assert list(differences(ours, theirs)) == []
    assert "default_model_filename" in settings_of(theirs["preprocessing"], full=True)
