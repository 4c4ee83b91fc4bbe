"""Whatever a deployment says is rendered or refused, with every kind of engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.settings_validation import validate_deployments
from gateway.settings.yaml_file import SettingsDocument
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.rendered_files import render

# They are there for contradictions to show.
SHAPE = {"model.heads", "model.kv_heads", "model.layers", "model.max_positions"}
BASE: dict[str, Any] = {
    "name": "small",
    "model": {"source": "/models/small", "heads": 32, "kv_heads": 8, "layers": 32, "max_positions": 100000},
    "limits": {"max_seq_len": 4096},
}
SECTIONS: dict[str, dict[str, Any]] = {
    "lora": {"prefetch_dir": "/lora"},
    "guided_decoding": {"tokenizer_info": "/info.json"},
    "encoder": {"engine_dir": "/encoder"},
    "speculative": {"method": "medusa"},
}
# Where an engine takes no section of these: what it does take of its kind, with a draft model beside it.
OTHERS: dict[str, dict[str, Any]] = {"speculative": {"method": "draft_target", "draft": "guess"}}
# For keys whose value must be one of few words; the others take one of these.
WORDS: dict[str, tuple[Any, ...]] = {
    "engine": (),  # the parameter of the test
    "role": ("draft",),
    "trtllm": ("1.0",),
    "model.dtype": ("float16",),
    "model.quantization": ("fp8",),
    "kv_cache.dtype": ("fp8",),
    "scheduler.batching": ("V1",),
    "scheduler.policy": ("max_utilization",),
    "decoding.mode": ("top_k_top_p",),
    "triton.executor": ("orchestrator",),
    "triton.gpu_ids": ([[1]],),
    "triton.participant_ids": ([[1]],),
    "speculative.method": ("eagle", "draft_target"),
    "guided_decoding.backend": ("llguidance",),
    "guided_decoding.guide_types": (["json"],),
    "lora.modules": (["attn_dense"],),
    "logits.datatype": ("FP16",),
    "prompt_table_datatype": ("BF16",),
    "encoder_features_datatype": ("BF16",),
    "kv_cache.max_attention_window": ([64],),
}
GUESSES = (True, False, 2, 8192, 0.25, "float16", "{0}", "/a/path")


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        inner = [one for one in (field.annotation, *getattr(field.annotation, "__args__", ())) if isinstance(one, type)]
        nested = next((one for one in inner if issubclass(one, BaseModel)), None)
        if nested is None:
            yield f"{prefix}{name}", field
        else:
            yield from keys(nested, f"{prefix}{name}.")


def outcome(deployment: dict[str, Any], repository: Path) -> dict[Path, bytes] | str:
    """The files, or that a rule or the schema refuses it."""
    drafts = deployment.get("speculative", {}).get("draft") == "guess"
    guess = {key: deployment[key] for key in ("engine", "engine_dir", "model", "limits", "triton") if key in deployment}
    beside = [guess | {"name": "guess", "role": "draft", "engine_model": "guess"}] if drafts else []
    deployments, problems = validate_deployments(SettingsDocument({"deployments": [deployment, *beside]}, {}, []))
    if problems:
        return "malformed"
    return "refused" if list(contradictions(deployments)) else render(deployments, repository).files


def with_value(deployment: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {**deployment, first: with_value(deployment.get(first, {}), rest, value) if rest else value}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Where the Python files come from, which are not what this is about."""
    for name in ("tensorrt_llm", "preprocessing", "postprocessing", "tensorrt_llm_bls"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("engine", ["tensorrt", "llmapi", "transformers", "reference"])
def test_every_key_is_rendered_or_refused(engine: str, repository: Path) -> None:
    dropped, seen, looked_at = [], 0, set()
    native = {"engine_dir": "/engine", "model": BASE["model"] | {"family": "llama"}}
    base = BASE | {"engine": engine} | (native if engine == "tensorrt" else {})
    for key, field in keys(DeploymentSettings):
        section = key.partition(".")[0]
        beside = {section: SECTIONS[section]} if section in SECTIONS and "." in key else {}
        start = base | beside
        if beside and outcome(start, repository) == "refused":  # guided decoding of the LLM API takes no such file
            start = base | {section: OTHERS.get(section, {})}
        before = outcome(start, repository)
        if key in SHAPE or isinstance(before, str):
            continue
        values = [value for value in WORDS.get(key, GUESSES) if value != field.default]
        after = (outcome(with_value(start, key, value), repository) for value in values)
        known = (found for found in after if found != "malformed")
        first = next(known, None)
        seen += first is not None
        looked_at.add(key)
        # One value that is rendered or refused is enough, and rendering takes its time.
        if first is not None and first == before and all(found == before for found in known):
            dropped.append(key)
    assert dropped == []
    assert seen > 60
    assert ("speculative.max_draft_tokens" in looked_at) == (engine in ("tensorrt", "reference"))
