"""What the examples render, held against stock templates of TensorRT-LLM that somebody fills in by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import pytest

from gateway_ops.repository.configs import configurations
from gateway_ops.repository.difference import differences
from gateway_ops.repository.speculative_rules import find_draft
from gateway_ops.repository.stock_models import MODELS
from tests.gateway_ops.repository.conftest import EXAMPLES, load
from tests.gateway_ops.repository.stock import UPSTREAM, Values, filled_by_hand, is_image, renamed

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "deployments.md"
ON, OFF = "true", "false"
Expected = dict[str, tuple[str | None, str | None]]


@dataclass(frozen=True)
class Hand:
    """The values of one deployment of an example."""

    values: Values
    choices: Expected  # where the rendering differs from just these values, beside what every rendering has better
    names: dict[str, str] = field(default_factory=dict)  # of models that are not called as upstream's
    changes: dict[str, dict[str, object]] = field(default_factory=dict)  # that make it what the hand was told


def words(text: str) -> dict[str, str]:
    """Values as `fill_template.py` takes them, with spaces between."""
    return dict(pair.split(":", 1) for pair in text.split())


ENGINE = words("""
    triton_backend:tensorrtllm batching_strategy:inflight_fused_batching exclude_input_in_output:True
    encoder_input_features_data_type:TYPE_FP16 prompt_embedding_table_data_type:TYPE_FP16
""")


def filled(folder: str, engine: str, batch: int, more: str = "", bls: str = "") -> Values:
    """The values that a careful reader of upstream's README and of its notes on chat fills in."""
    every = words(f"triton_max_batch_size:{batch} logits_datatype:TYPE_FP32")
    text = every | words(f"tokenizer_dir:{folder} add_special_tokens:false skip_special_tokens:true")
    own = words(f"engine_dir:{engine} decoupled_mode:True normalize_log_probs:False enable_kv_cache_reuse:True {more}")
    queue = {name: value for name, value in own.items() if name == "max_queue_size"}
    return {
        "ensemble": every,
        "preprocessing": {**text, **queue, "preprocessing_instance_count": "1"},
        "postprocessing": {**text, "postprocessing_instance_count": "1"},
        "tensorrt_llm": every | ENGINE | own,
        "tensorrt_llm_bls": every | words(f"decoupled_mode:True bls_instance_count:1 {bls}"),
    }


# The tutorial's own values (TensorRT-LLM 0.9), in today's words.
_FOLDER = "/data/Meta-Llama-3-8B-Instruct"
_EVERY = words("triton_max_batch_size:1 logits_datatype:TYPE_FP32")
_STEP = words(f"tokenizer_dir:{_FOLDER} triton_max_batch_size:1")
TUTORIAL: Values = {
    "ensemble": _EVERY,
    "preprocessing": _STEP | words("preprocessing_instance_count:1"),
    "postprocessing": _STEP | words("postprocessing_instance_count:1"),
    "tensorrt_llm": _EVERY
    | ENGINE
    | words("""
        decoupled_mode:False max_beam_width:1 engine_dir:/data/llama3-engine max_tokens_in_paged_kv_cache:2560
        max_attention_window_size:2560 kv_cache_free_gpu_mem_fraction:0.5 enable_kv_cache_reuse:False
        max_queue_delay_microseconds:0
    """),
    "tensorrt_llm_bls": _EVERY | words("decoupled_mode:False bls_instance_count:1"),
}
_TUTORIAL_S_CHOICES: Expected = {
    "tensorrt_llm decoupled": (ON, None),
    "tensorrt_llm_bls decoupled": (ON, None),
    "tensorrt_llm parameter enable_kv_cache_reuse": (ON, OFF),
    "tensorrt_llm parameter normalize_log_probs": (OFF, None),
    "preprocessing parameter add_special_tokens": (OFF, None),
    "postprocessing parameter skip_special_tokens": (ON, None),
}


def defaults(*names: str, engine: str = "tensorrt_llm") -> Expected:
    """Parameters of the engine that are written with upstream's default, where the hand leaves them out."""
    known = {
        "batch_scheduler_policy": "guaranteed_no_evict", "enable_chunked_context": OFF,
        "kv_cache_free_gpu_mem_fraction": "0.9", "max_beam_width": "1", "speculative_decoding_fast_logits": OFF,
        "lora_cache_optimal_adapter_size": "8", "lora_cache_max_adapter_size": "64",
        "lora_cache_gpu_memory_fraction": "0.05", "lora_cache_host_memory_bytes": str(2**30),
    }  # fmt: skip
    return {f"{engine} parameter {name}": (known[name], None) for name in names}


def facts(longest: int, vocab: int, folder: str, engine: str = "tensorrt_llm") -> Expected:
    """What the gateway reads from the engine's configuration."""
    values = {"max_seq_len": str(longest), "vocab_size": str(vocab), "tokenizer_dir": folder}
    return {f"{engine} parameter {name}": (value, None) for name, value in values.items()}


_USUAL = ("batch_scheduler_policy", "enable_chunked_context", "kv_cache_free_gpu_mem_fraction", "max_beam_width")
_LORA = tuple(f"lora_cache_{name}" for name in ("optimal_adapter_size", "max_adapter_size", "gpu_memory_fraction"))


def prefixed(prefix: str) -> dict[str, str]:
    """Names of the five models of a deployment with a prefix."""
    return {name: prefix + name for name in UPSTREAM["1.2.1"]}


def steps_of_bls(names: dict[str, str]) -> Expected:
    """Stock BLS calls models by upstream's names only, and those of the first deployment then."""
    bls = names["tensorrt_llm_bls"]
    return {
        f"{bls} parameter {model}_model_name": (names[model], None) for model in ("preprocessing", "postprocessing")
    }


LLAMA, QWEN = prefixed("llama_"), prefixed("qwen_")
_LLAMA, _ONE_GPU = "/models/llama-3.1-8b-instruct", "gpu_device_ids:0 kv_cache_free_gpu_mem_fraction:{}"
_DRAFTED = "tensorrt_llm_draft_model_name:tensorrt_llm_draft"
_OF_70B = """
    batch_scheduler_policy:max_utilization enable_chunked_context:True kv_cache_host_memory_bytes:68719476736
    guided_decoding_backend:xgrammar max_queue_size:1024
    xgrammar_tokenizer_info_path:/engines/llama-3.1-70b/fp8/xgrammar_tokenizer_info.json
"""
EVERY: dict[str, list[Hand]] = {
    "llama3-8b-awq": [
        Hand(
            TUTORIAL,
            _TUTORIAL_S_CHOICES | defaults(*_USUAL[:2]) | facts(2560, 128256, _FOLDER),
            changes={
                "triton": {"max_batch_size": 1},
                "limits": {"max_batch_size": 1},
                "kv_cache": {"max_tokens": 2560, "max_attention_window": (2560,)},
            },
        )
    ],
    "gpt2-medium-tp4": [
        Hand(
            filled("/models/gpt2-medium", "/engines/gpt2-medium/fp16/4-gpu", 4),
            defaults(*_USUAL) | facts(1024, 50257, "/models/gpt2-medium"),
        )
    ],
    "llama3-70b-tp8": [
        Hand(
            filled("/models/llama-3.1-70b-instruct", "/engines/llama-3.1-70b/fp8/tp8", 256, _OF_70B),
            defaults(*_USUAL[2:]) | facts(32768, 128256, "/models/llama-3.1-70b-instruct"),
        )
    ],
    "draft-target": [
        Hand(
            filled(_LLAMA, "/engines/llama-3.1-8b", 16, _ONE_GPU.format(0.5), _DRAFTED),
            defaults(*_USUAL[:2], "max_beam_width", "speculative_decoding_fast_logits") | facts(8192, 128256, _LLAMA),
        ),
        Hand(
            filled("/models/llama-3.2-1b-instruct", "/engines/llama-3.2-1b", 16, _ONE_GPU.format(0.3)),
            defaults(*_USUAL[:2], "max_beam_width", engine="tensorrt_llm_draft")
            | facts(8192, 128256, "/models/llama-3.2-1b-instruct", "tensorrt_llm_draft"),
            names={"tensorrt_llm": "tensorrt_llm_draft"},
        ),
    ],
    "two-models": [
        Hand(
            filled(_LLAMA, "/engines/llama-3.1-8b/tp2", 64, "gpu_device_ids:0,1"),
            defaults(*_USUAL, *_LORA, "lora_cache_host_memory_bytes", engine=LLAMA["tensorrt_llm"])
            | facts(16384, 128256, _LLAMA, LLAMA["tensorrt_llm"])
            | steps_of_bls(LLAMA),
            names=LLAMA,
        ),
        Hand(
            filled("/models/qwen2.5-7b-instruct", "/engines/qwen2.5-7b/tp1", 64, "gpu_device_ids:2;3"),
            defaults(*_USUAL, engine=QWEN["tensorrt_llm"])
            | facts(16384, 152064, "/models/qwen2.5-7b-instruct", QWEN["tensorrt_llm"])
            | steps_of_bls(QWEN)
            | {f"{QWEN['tensorrt_llm']} instances": ("2", "1")},
            names=QWEN,
        ),
    ],
}


def without_guides(engine: str, values: dict[str, str]) -> Expected:
    """The C++ backend asks for these two, and would take an unfilled value for a backend of that name."""
    names = ("guided_decoding_backend", "xgrammar_tokenizer_info_path")
    return {f"{engine} parameter {name}": ("", None) for name in names if name not in values}


@pytest.mark.parametrize("name", EVERY)
def test_what_stock_templates_give_differs_only_for_the_better(name: str) -> None:
    deployments = load(EXAMPLES / f"{name}.yaml")
    for deployment, hand in zip(deployments, EVERY[name], strict=True):
        draft = find_draft(deployment, deployments)
        changed = {key: getattr(deployment, key).model_copy(update=value) for key, value in hand.changes.items()}
        ours = configurations(deployment.model_copy(update=changed), draft.engine_name if draft else None)
        theirs = renamed(filled_by_hand("1.2.1", hand.values), hand.names)
        found = {
            f"{one.model} {one.setting}": (one.rendered, one.existing)
            for one in differences(ours, {name: theirs[name] for name in ours})
            if not is_image(one.setting)
        }
        engine = hand.names.get("tensorrt_llm", "tensorrt_llm")
        concurrent = hand.values["tensorrt_llm_bls"]["triton_max_batch_size"]
        better = {
            setting: values
            for setting, values in always_better(engine, hand.names, concurrent).items()
            if setting.split()[0] in ours
        }
        assert found == better | hand.choices | without_guides(engine, hand.values["tensorrt_llm"])
        assert [setting for setting in found if not is_documented(setting)] == []


@pytest.mark.parametrize(
    ("name", "folder"), [("llmapi-tp4", "/models/llama-3.1-70b-instruct-fp8"), ("embedded", "${MODEL_DIR}")]
)
def test_models_around_this_projects_engines_differ_only_for_the_better(name: str, folder: str) -> None:
    """Their engine has no stock counterpart; the four models around it have, but for this project's extensions."""
    (deployment,) = load(EXAMPLES / f"{name}.yaml")
    around = ("ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls")
    ours, theirs = configurations(deployment), filled_by_hand("1.2.1", filled(folder, "", 64))
    extensions = {
        tensor.name for spec in MODELS.values() for tensor in (*spec.inputs, *spec.outputs) if tensor.extension
    }
    own = extensions - {"output_ids", "sequence_length", "BATCH_INDEX", "SEQUENCE_INDEX"}  # wired for every engine
    found = {
        f"{one.model} {one.setting}": (one.rendered, one.existing)
        for one in differences({model: ours[model] for model in around}, {model: theirs[model] for model in around})
        if not is_image(one.setting) and not own & set(one.setting.split())
    }
    better = {
        setting: values
        for setting, values in always_better("tensorrt_llm", {}, "64").items()
        if setting.split()[0] in around
    }
    assert found == better | {"preprocessing dynamic_batching": (None, ON)}
    assert [setting for setting in found if not is_documented(setting)] == []


def is_documented(setting: str) -> bool:
    """Whether the page has a row for it: by the name of the tensor or parameter, or by the flag itself."""
    section = PAGE.read_text().split("## Where a rendering differs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    words = ["allow_ragged_batch" if word == "ragged" else word for word in setting.split()[1:]]
    words = [word for word in words if word not in ("ensemble", "preprocessing", "postprocessing", "tensorrt_llm")]
    return any(fnmatch(word, name) for word in words for name in names)


def always_better(engine: str, names: dict[str, str], concurrent: str) -> Expected:
    """What every rendering has otherwise than stock templates; docs/how-to/deployments.md says why, row by row."""
    texts = [("ensemble", name) for name in ("text_input", "max_tokens")]
    texts += [("preprocessing", name) for name in ("QUERY", "REQUEST_OUTPUT_LEN")]
    expected: Expected = {f"{model} input {name} optional": (ON, OFF) for model, name in texts}
    expected |= {
        "postprocessing dynamic_batching preserve_ordering": (ON, None),
        "postprocessing parameter state_capacity": ("4096", None),
        "postprocessing parameter state_expiry_seconds": ("600", None),
        "preprocessing output REQUEST_OUTPUT_LEN dims": ("[1]", "[-1]"),
        "tensorrt_llm_bls parameter accumulate_tokens": (OFF, None),
        "tensorrt_llm_bls parameter tensorrt_llm_model_name": (engine, None),
        "tensorrt_llm_bls parameter max_concurrent_requests": (concurrent, None),
        "tensorrt_llm_bls parameter engine_silence_seconds": ("600", None),
        f"ensemble step {engine} output output_ids": ("output_ids", None),
        f"ensemble step {engine} output sequence_length": ("sequence_length", None),
    }
    for model in ("ensemble", "tensorrt_llm_bls"):
        for output, dims in (("output_ids", "[-1, -1]"), ("sequence_length", "[-1]")):
            expected |= {
                f"{model} output {output} type": ("INT32", None),
                f"{model} output {output} dims": (dims, None),
            }
    for name in ("BATCH_INDEX", "SEQUENCE_INDEX"):
        settings = {"type": "INT32", "dims": "[1]", "optional": ON, "ragged": OFF}
        expected |= {f"postprocessing input {name} {key}": (value, None) for key, value in settings.items()}
        step = names.get("postprocessing", "postprocessing")
        expected[f"ensemble step {step} input {name}"] = (f"{engine} {name.lower()}", None)
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        expected[f"ensemble input {name} ragged"] = (OFF, ON)
    scalars = [name for name, fact in UPSTREAM["1.2.1"]["tensorrt_llm_bls"]["inputs"].items() if fact.get("scalar")]
    expected |= {f"tensorrt_llm_bls input {name} reshape": (None, "[]") for name in scalars}
    return {f"{names.get(model, model)} {rest}": values for (model, rest), values in _split(expected)}


def _split(expected: Expected) -> list[tuple[tuple[str, str], tuple[str | None, str | None]]]:
    return [((key.partition(" ")[0], key.partition(" ")[2]), values) for key, values in expected.items()]
