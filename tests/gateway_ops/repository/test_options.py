"""Each option of upstream's templates, set by its own name, is in the configuration that upstream reads it from."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gateway.settings.settings_validation import validate_deployments
from gateway.settings.yaml_file import SettingsDocument
from gateway_ops.repository.configs import configurations
from gateway_ops.repository.difference import settings_of
from gateway_ops.repository.overrides import apply_overrides
from gateway_ops.repository.template_variables import VARIABLES
from tests.gateway_ops.repository.conftest import SMALL

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
