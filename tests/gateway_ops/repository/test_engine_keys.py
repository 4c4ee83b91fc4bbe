"""The table of what each engine reads is what its sources read, and what it does not read is refused."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.yaml_file import dotted
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.engine_keys import ENGINES, PARAMETERS
from gateway_ops.repository.engine_parameters import engine_parameters

VERSION = Path(__file__).parents[3] / "triton_repo" / "tensorrt_llm" / "1"
COMMON = ("model.py", "wire/base_adapter.py")
SOURCES: dict[str, tuple[str, ...]] = {
    "reference": (*COMMON, "cpu_double/*.py"),
    "llmapi": (*COMMON, "engines/llm_adapter.py", "engines/llmapi/*.py"),
    "transformers": (*COMMON, "engines/llm_adapter.py", "engines/transformers/*.py", "engines/llmapi/llm_engine.py"),
}
# What the repository itself writes, and what tests of a client's patience ask of the engine.
OF_NO_KEY = {"engine", "gpt_model_path", "extra_args_file", "always_emit"}
READERS = ("_is_true", "_whole_number", "get")


def trees(engine: str) -> Iterator[ast.Module]:
    for pattern in SOURCES[engine]:
        files = sorted(VERSION.glob(pattern))
        assert files, pattern
        yield from (ast.parse(file.read_text()) for file in files)


def named(tree: ast.AST) -> Iterator[str]:
    """Parameters that a source asks for by name: in ``parameters`` and the like, or by a method of the adapter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS:
            asked = ast.unparse(node.func.value)
            if node.args and isinstance(node.args[0], ast.Constant) and asked in ("self", "self._parameters", "given"):
                yield str(node.args[0].value)


def options_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("options_of_engines", VERSION / "engines" / "llmapi" / "options.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for the module of their fields
    spec.loader.exec_module(module)
    return module


def options_read(folder: Path) -> dict[str, set[str]]:
    """Fields of `Options` by the parameter of ``config.pbtxt`` that changes them."""
    read_options = options_module().read_options
    (folder / "config.json").write_text(json.dumps({"vocab_size": 10, "max_position_embeddings": 64}))
    (folder / "more.json").write_text('{"max_num_tokens": 7}')
    plain = read_options({}, {}, folder)
    source = ast.parse((VERSION / "engines" / "llmapi" / "options.py").read_text())
    names = {node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    found: dict[str, set[str]] = {}
    for name in names:
        for value in ("7", "0.5", "false", "float16", "xgrammar", str(folder / "more.json")):
            try:
                changed = read_options({}, {name: value}, folder)
            except RuntimeError:
                continue
            fields = {key for key in vars(plain) if getattr(changed, key) != getattr(plain, key)}
            found.setdefault(name, set()).update(fields)
    return {name: fields for name, fields in found.items() if fields}


def fields_used(engine: str) -> set[str]:
    """Fields of `Options` that an engine asks for, and those that its properties are made of."""
    options = ast.parse((VERSION / "engines" / "llmapi" / "options.py").read_text())
    inside = {node.name: node for node in ast.walk(options) if isinstance(node, ast.FunctionDef)}
    used = set()
    for tree in trees(engine):
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("options", "self._options"):
                used.add(node.attr)
    for name in used & inside.keys():
        made_of = {node.attr for node in ast.walk(inside[name]) if isinstance(node, ast.Attribute)}
        used |= made_of
    return used


@pytest.mark.parametrize("engine", ENGINES)
def test_the_table_is_what_the_sources_read(engine: str, tmp_path: Path) -> None:
    read = {name for tree in trees(engine) for name in named(tree)}
    if engine != "reference":
        used = fields_used(engine)
        read |= {name for name, fields in options_read(tmp_path).items() if fields & used}
    table = {parameter.name for parameter in PARAMETERS if engine in parameter.readers}
    assert read - OF_NO_KEY == table


BASE: dict[str, Any] = {"name": "small", "model": {"source": "/models/small"}}
VALUES: dict[str, Any] = {
    "limits.max_seq_len": 64, "decoding.exclude_input_in_output": False, "kv_cache.reuse": False,
    "kv_cache.tokens_per_block": 32, "runtime.cancellation_check_period_ms": 7, "model.dtype": "float16",
    "limits.max_batch_size": 3, "triton.max_queue_size": 4, "triton.gpu_ids": [[2]], "limits.max_beam_width": 4,
    "kv_cache.free_gpu_mem_fraction": 0.5, "parallelism.tp": 2, "guided_decoding.backend": "llguidance",
    "lora.prefetch_dir": "/lora", "decoding.normalize_log_probs": True, "logits.context": True,
    "lora.host_memory_bytes": 40000,
}  # fmt: skip


BEAMS = {"mode": "beam_search"}


def deployment_with(engine: str, key: str) -> DeploymentSettings:
    section, _, name = key.partition(".")
    said = BASE.get(section, {}) | {name: VALUES[key]}
    if name == "max_beam_width" and engine == "llmapi":
        return DeploymentSettings.model_validate(BASE | {"engine": engine, section: said, "decoding": BEAMS})
    if section == "logits":
        said |= {"generation": VALUES[key]}
        cache = {"reuse": False}  # or logits of prompts would be missing
        return DeploymentSettings.model_validate(BASE | {"engine": engine, section: said, "kv_cache": cache})
    if section == "lora" and engine == "llmapi":
        said |= {"prefetch_dir": "/lora"}
    return DeploymentSettings.model_validate(BASE | {"engine": engine, section: said})


@pytest.mark.parametrize("engine", [*ENGINES, "${TRITON_ENGINE}"])
@pytest.mark.parametrize("parameter", PARAMETERS, ids=lambda parameter: parameter.name)
def test_what_an_engine_reads_is_rendered_and_the_rest_is_refused(engine: str, parameter: Any) -> None:
    deployment = deployment_with(engine, parameter.key)
    rejected = {dotted(found.keys).partition(".")[2] for found in contradictions([deployment])}
    reads = engine in parameter.readers or (engine not in ENGINES and parameter.name != "max_beam_width")
    elsewhere = engine == "llmapi" and parameter.key == "lora.host_memory_bytes"  # by its file of arguments
    assert (parameter.key in rejected) == (not reads and not elsewhere), rejected
    if reads:
        value = VALUES[parameter.key]
        written = value[0][0] if isinstance(value, list) else value
        assert engine_parameters(deployment)[parameter.name] == str(written).lower()


def test_an_engine_that_takes_no_section_takes_no_empty_one() -> None:
    said = BASE | {"engine": "transformers", "lora": {}, "guided_decoding": {}, "kv_cache": {}}
    found = {dotted(one.keys).partition(".")[2] for one in contradictions([DeploymentSettings(**said)])}
    assert found == {"lora", "guided_decoding"}


def test_the_native_backend_finds_what_it_looks_for() -> None:
    """It fails to load where these are absent, and takes empty ones for none."""
    said = BASE | {"engine": "tensorrt", "engine_dir": "/engine"}
    told = engine_parameters(DeploymentSettings(**said))
    assert (told["guided_decoding_backend"], told["xgrammar_tokenizer_info_path"]) == ("", "")
    assert told["tokenizer_dir"] == "/models/small"
