"""``--set`` speaks the words of fill_template.py, and each option reaches the configuration that upstream reads."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import all_keys, validate_deployments
from gateway.settings.yaml_file import SettingsDocument
from gateway_ops.repository.configs import configurations
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.difference import settings_of
from gateway_ops.repository.overrides import OverrideError, apply_overrides
from gateway_ops.repository.template_variables import BY_NAME, VARIABLES
from tests.gateway_ops.repository.conftest import SMALL
from tests.gateway_ops.repository.stock import UPSTREAM

DATA = {"deployments": [{"name": "a", "kv_cache": {"reuse": True}}, {"name": "b"}]}


def test_every_variable_of_the_templates_has_a_place_or_a_reason() -> None:
    keys = all_keys(DeploymentSettings)
    for version, models in UPSTREAM.items():
        for model, facts in models.items():
            for name in facts["variables"]:
                variable = BY_NAME[name]
                assert variable.key in keys or variable.rejected, (version, name)
                assert model in variable.models or name == "engine_dir", (model, name)
    parameters = UPSTREAM["1.2.1"]["tensorrt_llm"]["parameters"]
    constant = {name for name, value in parameters.items() if not value.startswith("${")}
    filled = {variable.parameter: variable.name for variable in VARIABLES if variable.parameter}
    for name, value in parameters.items():
        if name not in constant and name != "tokenizer_dir":
            assert f"${{{filled[name]}}}" == value


def test_variables_and_keys_reach_their_sections() -> None:
    changed = apply_overrides(
        DATA,
        [
            r"engine_dir:/engines/a,enable_kv_cache_reuse:False,max_beam_width:4,gpu_device_ids:0\,1;2\,3",
            "a/kv_cache_free_gpu_mem_fraction:0.5", "limits.max_seq_len:4096,logits_datatype:TYPE_FP16",
            r"b/medusa_choices:{0\, 0}\, {1}", "triton_backend:tensorrtllm",
        ],
    )  # fmt: skip
    a, b = changed["deployments"]
    assert a == {
        "name": "a",
        "engine": "tensorrt",
        "engine_dir": "/engines/a",
        "kv_cache": {"reuse": False, "free_gpu_mem_fraction": 0.5},
        "limits": {"max_beam_width": 4, "max_seq_len": 4096},
        "logits": {"datatype": "FP16"},
        "triton": {"gpu_ids": [["0", "1"], ["2", "3"]]},
    }
    assert b["speculative"] == {"medusa_choices": "{0, 0}, {1}"}
    assert "free_gpu_mem_fraction" not in b["kv_cache"]
    assert DATA["deployments"][0] == {"name": "a", "kv_cache": {"reuse": True}}


UPSTREAM_S_COMMAND = (
    "triton_backend:tensorrtllm,triton_max_batch_size:64,decoupled_mode:True,max_beam_width:1,engine_dir:/engines/small,"
    "max_tokens_in_paged_kv_cache:2560,max_attention_window_size:2560,kv_cache_free_gpu_mem_fraction:0.5,"
    "exclude_input_in_output:True,enable_kv_cache_reuse:False,batching_strategy:inflight_fused_batching,"
    "max_queue_delay_microseconds:0,encoder_input_features_data_type:TYPE_FP16,logits_datatype:TYPE_FP32,"
    "prompt_embedding_table_data_type:TYPE_FP16,kv_cache_host_memory_bytes:0,iter_stats_max_iterations:0"
)


def test_the_command_of_upstreams_readme_is_taken_as_it_is() -> None:
    """It says the type of an encoder's input, which the template of every model has."""
    data = apply_overrides({"deployments": [SMALL]}, [UPSTREAM_S_COMMAND])
    deployments, problems = validate_deployments(SettingsDocument(data))
    assert problems == []
    assert list(contradictions(deployments)) == []
    config = settings_of(configurations(deployments[0])["tensorrt_llm"])
    assert config["input encoder_input_features type"] == "FP16"
    assert config["parameter iter_stats_max_iterations"] == "0"
    changed = apply_overrides(data, ["encoder_input_features_data_type:TYPE_BF16"])
    (deployment,), _ = validate_deployments(SettingsDocument(changed))
    ours = settings_of(configurations(deployment)["tensorrt_llm"])
    assert ours["input encoder_input_features type"] == "BF16"


@pytest.mark.parametrize(
    ("override", "entry"),
    [
        (r"participant_ids:1\,2;3\,4", {"triton": {"participant_ids": [["1", "2"], ["3", "4"]]}}),
        ("limits.max_seq_len:4096, engine_dir:/e", {"limits": {"max_seq_len": 4096}, "engine_dir": "/e"}),
        ("a/model.source:'123'", {"model": {"source": "123"}}),
        ("a/enable_kv_cache_reuse:", {"kv_cache": {}}),  # an empty value unsets
        ("medusa_choices:", {}),
        *((f"a/engine_dir:{value}", {"engine_dir": value}) for value in ("[x", "*x", '"x', "!!x y", "@x", "%x", "`x`")),
    ],
)
def test_forms_of_values(override: str, entry: dict[str, object]) -> None:
    assert apply_overrides(DATA, [override])["deployments"][0] == DATA["deployments"][0] | entry


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine_dir", "'engine_dir' is not key:value"),
        ("engine_dir:C:/x", "escape commas and colons"),
        ("enable_kv_cache_reus:true", "Did you mean 'enable_kv_cache_reuse'?"),
        ("what_is_this:1", "docs/reference/configuration.md"),
        ("multimodal_model_path:/x", "preprocessing here is for text"),
        ("tokenizer_type:auto", "removed in 0.9"),
        ("triton_backend:python", "set engine to llmapi or reference"),
        ("c/engine_dir:/x", "deployment 'c' does not exist"),
    ],
)
def test_what_cannot_be_set_says_why(override: str, message: str) -> None:
    with pytest.raises(OverrideError) as raised:
        apply_overrides(DATA, [override])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("gpt_model_path:/engines/x", "engine_dir", "/engines/x"),
        ("gpt_model_type:V1", "scheduler", {"batching": "V1"}),
        ("decoupled:True", "triton", {"decoupled": True}),
    ],
)
def test_the_names_of_the_readmes_tables_are_understood(override: str, key: str, value: object) -> None:
    for entry in apply_overrides(DATA, [override])["deployments"]:
        assert entry[key] == value


ENCODER = {"encoder": {"engine_dir": "/engines/encoder"}}
LORA: dict[str, Any] = {"lora": {}}
DRAFT = {"speculative": {"method": "draft_target"}}
GUIDED: dict[str, Any] = {"guided_decoding": {}}
# variable -> value, what must be there beside it, setting that shows it, as written
SAMPLES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "triton_max_batch_size": ("7", {}, "ensemble max_batch_size", "7"),
    "logits_datatype": ("TYPE_FP16", {}, "ensemble output context_logits type", "FP16"),
    "tokenizer_dir": ("/data/m", {}, "postprocessing parameter tokenizer_dir", "/data/m"),
    "add_special_tokens": ("True", {}, "preprocessing parameter add_special_tokens", "true"),
    "skip_special_tokens": ("False", {}, "postprocessing parameter skip_special_tokens", "false"),
    "preprocessing_instance_count": ("3", {}, "preprocessing instances", "3"),
    "postprocessing_instance_count": ("3", {}, "postprocessing instances", "3"),
    "max_queue_delay_microseconds": ("9", {}, "tensorrt_llm dynamic_batching max_queue_delay_microseconds", "9"),
    "max_queue_size": ("9", {}, "preprocessing dynamic_batching max_queue_size", "9"),
    "triton_backend": ("tensorrtllm", {}, "tensorrt_llm backend", "tensorrtllm"),
    "decoupled_mode": ("True", {}, "tensorrt_llm decoupled", "true"),
    "encoder_input_features_data_type": ("TYPE_BF16", {}, "tensorrt_llm input encoder_input_features type", "BF16"),
    "prompt_embedding_table_data_type": ("TYPE_BF16", {}, "tensorrt_llm input prompt_embedding_table type", "BF16"),
    "bls_instance_count": ("2", {}, "tensorrt_llm_bls instances", "2"),
    "accumulate_tokens": ("True", {}, "tensorrt_llm_bls parameter accumulate_tokens", "true"),
    "tensorrt_llm_model_name": ("engine", {}, "tensorrt_llm_bls parameter tensorrt_llm_model_name", "engine"),
    "tensorrt_llm_draft_model_name": ("guess", DRAFT, "tensorrt_llm_bls parameter tensorrt_llm_draft_model_name",
                                      "guess"),
}  # fmt: skip
VALUES = {
    "batching_strategy": "V1", "batch_scheduler_policy": "max_utilization", "decoding_mode": "top_k_top_p",
    "gpu_device_ids": r"0\,1;2\,3", "participant_ids": r"1\,2", "max_attention_window_size": r"2048\,4096",
    "medusa_choices": r"{0}\, {0\, 1}", "eagle_choices": r"{0}\, {0\, 1}", "guided_decoding_backend": "xgrammar",
}  # fmt: skip
SECTIONS = {"lora": LORA, "speculative": DRAFT, "guided_decoding": GUIDED, "encoder": ENCODER}


def sample(name: str) -> tuple[str, dict[str, Any], str, str]:
    if name in SAMPLES:
        return SAMPLES[name]
    variable = next(one for one in VARIABLES if one.name == name)
    value = VALUES.get(name) or ("/some/path" if name.endswith(("_dir", "_path")) else _number_or_flag(name))
    written = value.replace("\\", "").lower() if value in ("True", "False") else value.replace("\\", "")
    section = SECTIONS.get(variable.key.partition(".")[0], {})
    return value, section, f"tensorrt_llm parameter {variable.parameter}", written


def _number_or_flag(name: str) -> str:
    if "fraction" in name or "percent" in name:
        return "0.25"
    flags = ("enable_", "normalize_", "exclude_", "multi_block", "cuda_graph_mode", "fast_logits", "onboard")
    if any(word in name for word in flags):
        return "True"
    return "12"


@pytest.mark.parametrize("name", [variable.name for variable in VARIABLES if not variable.rejected])
def test_an_option_reaches_its_configuration(name: str) -> None:
    value, section, setting, written = sample(name)
    plain = {**yaml.safe_load(yaml.safe_dump(SMALL)), **section}
    data = apply_overrides({"deployments": [plain]}, [f"{name}:{value}"])
    (deployment,), problems = validate_deployments(SettingsDocument(data))
    assert problems == []
    draft = deployment.speculative.draft if deployment.speculative is not None else None
    configs = configurations(deployment, draft)
    model, _, key = setting.partition(" ")
    assert settings_of(configs[model])[key] == written
