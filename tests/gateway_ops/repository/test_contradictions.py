"""Contradictions are refused with the key, the reason and the fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.settings.settings_validation import validate_deployments
from gateway.settings.yaml_file import dotted, read_document
from gateway.triton.abilities import EngineOptions, read_abilities
from gateway.triton.dialects.registry import check
from gateway.triton.model_view import ModelView
from gateway.triton.pipeline import Models
from gateway_ops.check.findings import Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.repository.contradictions import contradictions
from gateway_ops.repository.rendered_files import render, write
from tests.tiny_model import write_tiny_model

BEAMS = {"limits": {"max_beam_width": 4}}
CHUNKED = {"scheduler": {"chunked_context": True}}
LOOKAHEAD = {"method": "lookahead", "window_size": 7, "ngram_size": 7, "verification_set_size": 7}
RANKS = {"executor": "orchestrator", "gpu_ids": [[0]]}
SEARCH = {**BEAMS, "decoding": {"mode": "beam_search"}}
LLMAPI: dict[str, Any] = {"engine": "llmapi", "engine_dir": None, "model": {"family": None}}
REFERENCE: dict[str, Any] = {"engine": "reference", "engine_dir": None, "model": {"family": None}}


def said(deployments: Any) -> dict[str, tuple[str, str]]:
    return {dotted(found.keys).partition(".")[2]: (found.reason, found.fix) for found in contradictions(deployments)}


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        ({"limits": {"max_input_len": 9, "max_seq_len": 8}}, "limits.max_input_len", "it is 9, but max_seq_len"),
        ({"limits": {"max_input_len": 8, "max_seq_len": 8}}, "limits.max_input_len", "no tokens for an answer"),
        ({"limits": {"max_input_len": 9000}, "model": {"max_positions": 8192}}, "limits.max_input_len", "8192"),
        ({"limits": {"max_input_len": 4096, "max_num_tokens": 512}}, "limits.max_num_tokens", "computed in one step"),
        ({"limits": {"max_input_len": 15000}}, "limits.max_num_tokens", "a step has 8192, the default of trtllm-build"),
        ({"limits": {"max_batch_size": 600, "max_num_tokens": 512}}, "limits.max_num_tokens", "a token each"),
        ({"parallelism": {"tp": 3}}, "parallelism.tp", "32 attention heads cannot be shared by 3 GPUs"),
        ({"parallelism": {"tp": 8}, "model": {"kv_heads": 5}}, "parallelism.tp", "5 heads of keys and values"),
        ({"parallelism": {"pp": 33}}, "parallelism.pp", "32 layers cannot be shared by 33 stages"),
        ({"parallelism": {"tp": 2, "nodes": 4}}, "parallelism.nodes", "2 GPUs cannot be spread over 4 machines"),
        ({"limits": {"max_seq_len": 99}, "model": {"max_positions": 64}}, "limits.max_seq_len", "64 positions"),
        (BEAMS, "limits.max_beam_width", "cannot be streamed"),
        ({**LLMAPI, **BEAMS}, "limits.max_beam_width", "cannot be streamed"),
        ({**REFERENCE, **BEAMS}, "limits.max_beam_width", "the engine reference does not support beam search"),
        ({"triton": {"instances": {"postprocessing": 2}}}, "triton.instances.postprocessing", "out of order"),
        ({"decoding": {"mode": "top_k"}}, "decoding.mode", "requests that send top_p get empty responses"),
        ({"decoding": {"mode": "beam_search"}}, "decoding.mode", "max_beam_width is 1"),
        ({"decoding": {"mode": "medusa"}}, "decoding.mode", "no settings under `speculative`"),
        ({"build": {"paged_context_fmha": False}}, "kv_cache.reuse", "paged context attention"),
        ({"kv_cache": {"reuse": False, "host_memory_bytes": 1}}, "kv_cache.host_memory_bytes", "reusable blocks"),
        ({"kv_cache": {"max_tokens": 99}, "limits": {"max_seq_len": 100}}, "kv_cache.max_tokens", "does not fit"),
        ({"kv_cache": {"max_tokens": 100}, "limits": {"max_input_len": 2048}}, "kv_cache.max_tokens",
         "2048 does not fit"),
        ({"kv_cache": {"sink_tokens": 200, "max_attention_window": [4096, 100]}}, "kv_cache.sink_tokens",
         "leave no room in an attention window of 100"),
        ({"kv_cache": {"tokens_per_block": 33}}, "kv_cache.tokens_per_block", "33 is not a power of two"),
        ({**LLMAPI, "kv_cache": {"tokens_per_block": 48}}, "kv_cache.tokens_per_block", "48 is not a power of two"),
        ({"kv_cache": {"cross_fraction": 0.5}}, "kv_cache.cross_fraction", "no encoder"),
        ({"logits": {"context": True}}, "logits.context", "kv_cache.reuse is true"),
        ({**LLMAPI, "logits": {"context": True, "generation": True}}, "logits.context", "kv_cache.reuse is true"),
        ({"kv_cache": {"dtype": "int8"}, "model": {"quantization": "int8_sq"}}, "kv_cache.reuse",
         "an int8 cache disables it"),
        ({"kv_cache": {"dtype": "fp8", "reuse": False}, "model": {"quantization": "int4_awq"}, **CHUNKED},
         "scheduler.chunked_context", "a cache in fp8 with weights in int4_awq turns it off"),
        ({"lora": {}, "build": {"lora_plugin": "disable"}}, "lora", "without the LoRA plugin"),
        ({"lora": {"max_rank": 128}}, "lora.max_rank", "larger than max_adapter_size 64"),
        ({"guided_decoding": {}}, "guided_decoding.tokenizer_info", "from a file of its own"),
        ({"guided_decoding": {"backend": "llguidance", "tokenizer_info": "/x.json"}}, "guided_decoding.backend",
         "only xgrammar"),
        ({"speculative": {"method": "lookahead"}}, "speculative", "its three sizes"),
        ({"speculative": {**LOOKAHEAD, "max_draft_tokens": 8}}, "speculative.max_draft_tokens",
         "lookahead's three sizes make it 83"),
        ({"speculative": LOOKAHEAD, "logits": {"context": True}, "kv_cache": {"reuse": False}}, "logits.context",
         "does not gather prompt logits in an engine with draft tokens"),
        ({"speculative": LOOKAHEAD, "decoding": {"mode": "top_k_top_p"}}, "decoding.mode",
         "an engine of method lookahead decodes by lookahead alone"),
        ({"speculative": {"method": "draft_target", "draft": "x"}}, "speculative.max_draft_tokens",
         "the number is not set"),
        ({"speculative": {"method": "eagle", "max_draft_tokens": 300}}, "speculative.max_draft_tokens",
         "EAGLE drafts at most 256 tokens"),
        ({"speculative": {"method": "eagle"}, "limits": {"max_batch_size": 600}}, "limits.max_batch_size",
         "EAGLE supports at most 512"),
        ({"speculative": {"method": "medusa", "draft": "x"}}, "speculative.draft", "belongs to method draft_target"),
        ({"speculative": {"method": "draft_target", "draft": "x"}}, "speculative.draft",
         "deployment 'x' does not exist"),
        ({"runtime": {"gpu_weights_percent": 0.5}}, "runtime.gpu_weights_percent", "an engine with weight streaming"),
        ({"triton": {"gpu_ids": [[0, 1]]}}, "triton.gpu_ids", "an instance has 2 GPUs, but tp times pp is 1"),
        ({"triton": {"gpu_ids": [[0], [1]]}}, "triton.executor", "several instances need the orchestrator mode"),
        ({"triton": {**RANKS, "participant_ids": [[1, 2]]}}, "triton.participant_ids",
         "has 2 ranks, but tp times pp is 1"),
        ({"triton": {**RANKS, "participant_ids": [[1], [2]]}}, "triton.participant_ids", "1 instance"),
        ({"triton": {**RANKS, "participant_ids": [[0]]}}, "triton.participant_ids", "rank 0 is the orchestrator's own"),
        ({"triton": {**RANKS, "participant_ids": [[2]]}}, "triton.participant_ids", "no deployment has rank 1"),
        ({"triton": {**RANKS, "participant_ids": [[2147483647]]}}, "triton.participant_ids",
         "no deployment has rank 1"),
        ({"triton": {"participant_ids": [[1]]}}, "triton.participant_ids", "ranks are given to workers"),
        ({"engine_dir": None}, "engine_dir", "loaded from a folder"),
        ({"trtllm": "1.3.0"}, "trtllm", "no TensorRT engines"),
        ({"trtllm": "0.12"}, "trtllm", "unknown to this gateway"),
        ({**LLMAPI, "trtllm": "0.19.0"}, "trtllm", "for TensorRT-LLM 1.0 and newer, and this is 0.19.0"),
        ({**LLMAPI, "trtllm": "1.3", "kv_cache": {"onboard_blocks": False}}, "kv_cache.onboard_blocks",
         "TensorRT-LLM 1.3 has no onboard_blocks"),
        ({**LLMAPI, "trtllm": "1.0", "kv_cache": {"tokens_per_block": 64}}, "kv_cache.tokens_per_block",
         "TensorRT-LLM 1.0 has no tokens_per_block"),
        ({"model": {"source": "${MODEL_DIR}"}}, "model.source", "does not read ${MODEL_DIR}"),
        ({**LLMAPI, "engine_dir": "/engines/x"}, "engine_dir", "the engine llmapi does not use it"),
        ({**LLMAPI, "decoding": {"mode": "top_k_top_p"}}, "decoding.mode", "does not use it"),
        ({**REFERENCE, "parallelism": {"tp": 2}}, "parallelism.tp", "the engine reference does not use it"),
        ({**REFERENCE, "logits": {"context": True}}, "logits.generation", "both kinds of logits or none"),
        ({"model": {"family": None, "dtype": "float16"}}, "model.dtype", "its config.json cannot be read here"),
        ({"model": {"family": None}, "kv_cache": {"dtype": "int8"}}, "kv_cache.dtype", "cannot be read here"),
        ({"model": {"family": "gemma"}, "parallelism": {"pp": 2}}, "parallelism.pp",
         "gemma does not support pipeline stages"),
        ({"model": {"family": "gpt"}, "parallelism": {"tp": 2, "moe_ep": 2}}, "parallelism.moe_ep",
         "no option for experts"),
        ({"model": {"family": "internlm2"}}, "model.dtype", "does not detect the data type"),
        ({"model": {"family": "nemotron_nas", "quantization": "int8_wo"}}, "model.quantization",
         "convert_checkpoint.py of nemotron_nas does not quantise"),
        ({**LLMAPI, "guided_decoding": {"backend": "llguidance", "guide_types": ["structural_tag"]}},
         "guided_decoding.guide_types", "llguidance does not support structural_tag"),
        ({"model": {"kv_heads": 7}}, "model.kv_heads", "cannot be grouped over 7 heads"),
        ({"lora": {"modules": ["attn_x"]}}, "lora.modules", "no LoRA module 'attn_x'"),
        ({"speculative": {"method": "medusa", "medusa_choices": "{0"}}, "speculative.medusa_choices", "a choice tree"),
        ({"engine_dir": "/x\n}"}, "engine_dir", "a line break"),
        ({"model": {"folder": ""}}, "model.folder", "it is empty"),
        ({"parallelism": {"tp": 4, "moe_ep": 3}}, "parallelism.moe_ep", "3 times a whole number is not 4"),
        ({"parallelism": {"tp": 4, "moe_tp": 2, "moe_ep": 4}}, "parallelism.moe_ep", "2 times 4 is not 4"),
        ({"parallelism": {"tp": 4, "moe_ep": 2}, "model": {"quantization": "fp8"}}, "parallelism.moe_ep",
         "quantize.py does not take it"),
        ({"kv_cache": {"dtype": "fp8"}, "model": {"family": "qwen"}}, "kv_cache.dtype",
         "convert_checkpoint.py of qwen has no option for a cache in fp8"),
        ({"build": {"awq_block_size": 64}}, "build.awq_block_size", "belongs to int4_awq"),
        ({"speculative": {"method": "medusa"}, "model": {"quantization": "fp8"}}, "model.quantization",
         "converted by hand"),
        ({"speculative": {"method": "draft_target", "draft": "small"}}, "speculative.draft", "be its own draft model"),
        ({**LLMAPI, "speculative": {"method": "draft_target", "draft": "x"}}, "speculative",
         "does not support draft tokens"),
        ({**LLMAPI, "model": {"source": "./small"}}, "model.source", "relative to the working directory of the server"),
        ({"model": {"folder": "~/small"}}, "model.folder", "relative to the working directory of the server"),
        ({"engine_dir": "engines/small"}, "engine_dir", "relative to the working directory of the server"),
        ({**LLMAPI, "lora": {}}, "lora.prefetch_dir", "not accept adapters from requests"),
        ({**LLMAPI, "lora": {"prefetch_dir": "/l", "max_rank": 4}}, "lora.max_rank", "does not use it"),
        ({**LLMAPI, "triton": {"executor": "orchestrator"}}, "triton.executor", "does not use it"),
        ({"engine_model": "preprocessing"}, "engine_model", "another model of this deployment"),
    ],
)  # fmt: skip
def test_a_contradiction_is_named_with_its_fix(change: dict[str, Any], key: str, reason: str, deployments_of) -> None:
    found = said(deployments_of(change))
    assert key in found, found
    assert reason in found[key][0]
    assert found[key][1].endswith(".")


def test_a_plain_deployment_has_none(deployments_of) -> None:
    assert said(deployments_of({}, {"name": "b", "prefix": "b_", **LLMAPI})) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"max_seq_len": 16384}},
        {"limits": {"max_seq_len": 4096, "max_num_tokens": 512}},
        {"parallelism": {"pp": 3}},
        {"model": {"family": None, "dtype": "auto", "quantization": "none"}},
        {"model": {"family": None, "quantization": "fp8", "dtype": "float16"}},
        {**REFERENCE, "parallelism": {"tp": 1, "pp": 1}, "scheduler": {"policy": "guaranteed_no_evict"}},
        {**REFERENCE, "engine": "transformers", "logits": {"context": False, "generation": False}},
        {**LLMAPI, "triton": {"executor": "leader"}, "model": {"family": None, "quantization": "none"}},
        {"triton": {"decoupled": False}},
        {**SEARCH, "triton": {"decoupled": False}},
    ],
)
def test_what_upstream_takes_or_changes_nothing_is_taken(change: dict[str, Any], deployments_of) -> None:
    assert said(deployments_of(change)) == {}


def test_a_draft_whose_cache_is_bounded_by_tokens_shares_its_targets_gpu(deployments_of) -> None:
    speculative = {"method": "draft_target", "draft": "guess", "max_draft_tokens": 8}
    target = {"speculative": speculative, "triton": RANKS}
    draft = {"name": "guess", "role": "draft", "prefix": "g_", "engine_dir": "/engines/guess", "triton": RANKS}
    assert said(deployments_of(target, draft)).keys() == {"triton.gpu_ids"}
    assert said(deployments_of(target, draft | {"kv_cache": {"max_tokens": 4096}})) == {}


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("participant_ids", "Write [[1]]: the ranks of each instance."),
        ("gpu_ids", "Write [[0]]: the GPUs of each instance."),
    ],
)
def test_numbers_that_are_not_grouped_by_instance(tmp_path: Path, key: str, fix: str) -> None:
    file = tmp_path / "gateway.yaml"
    deployment = {"name": "a", "engine": "tensorrt", "model": {"source": "/m"}, "triton": {key: [1]}}
    file.write_text(json.dumps({"deployments": [deployment]}))
    _, (problem,) = validate_deployments(read_document(file))
    assert problem.what == f"deployments[0].triton.{key}[0]: must be a list."
    assert problem.fix == fix


def test_a_deployment_that_does_not_stream_is_one_that_the_gateway_serves(
    deployments_of, tmp_path: Path, repository: Path
) -> None:
    write(render(deployments_of({"triton": {"decoupled": False}}), repository), tmp_path / "repo", replace=False)
    found = [found for found in check_repository(tmp_path / "repo") if "one event at the end" in found.what]
    assert {(each.severity, each.fix) for each in found} == {
        (Severity.WARNING, "Set model_transaction_policy { decoupled: true }.")
    }
    assert not [each for each in check_repository(tmp_path / "repo") if each.severity is Severity.ERROR]


def test_a_deployment_for_beam_search_is_one_that_the_gateway_serves(
    deployments_of, tmp_path: Path, repository: Path
) -> None:
    """What is rendered for beams is served and reviewed as such: requests for beams ask for no stream."""
    deployments = deployments_of(SEARCH)
    assert said(deployments) == {}
    rendering = render(deployments, repository)
    engine = ModelView.of(rendering.configs["tensorrt_llm"])
    check(Models(engine, engine, None, None, (engine.name,)), "auto")
    assert read_abilities(engine, engine, EngineOptions()).beams == 4
    write(rendering, tmp_path / "repo", replace=False)
    assert {(found.severity, found.what.partition(":")[0]) for found in check_repository(tmp_path / "repo")} == {
        (Severity.INFO, "It serves beam search"),
        (Severity.INFO, f"{engine.parameters['gpt_model_path']} does not exist on this machine."),
    }


def test_deployments_of_one_repository_must_not_get_in_each_others_way(deployments_of) -> None:
    same = said(deployments_of({}, {"name": "b"}))
    assert "the Triton model 'tensorrt_llm' is also rendered by deployment 'small'" in same["prefix"][0]
    assert "must not each use all GPUs" in same["triton.gpu_ids"][0]
    orchestrated = {"executor": "orchestrator", "gpu_ids": [[0]]}
    pair = said(deployments_of({"triton": orchestrated}, {"name": "b", "prefix": "b_", "triton": orchestrated}))
    assert pair == {
        "triton.gpu_ids": (
            "GPU 0 belongs to deployment 'small' already",
            "Choose other GPUs: engines do not share GPU memory.",
        )
    }


def test_workers_that_start_with_the_orchestrator_all_have_ranks_of_their_own(deployments_of) -> None:
    ranked = {"triton": {**RANKS, "participant_ids": [[1]]}}
    again = {"name": "b", "prefix": "b_", "engine_dir": "/engines/b", "triton": {**RANKS, "gpu_ids": [[1]]}}
    without = said(deployments_of(ranked, again))["triton.participant_ids"]
    assert (
        without[0]
        == "the workers of deployment 'small' are started beforehand, so these workers must be started beforehand too"
    )
    again["triton"]["participant_ids"] = [[1]]
    assert said(deployments_of(ranked, again))["triton.participant_ids"][0] == "rank 1 belongs to deployment 'small'"
    again["triton"]["participant_ids"] = [[2]]
    assert said(deployments_of(ranked, again)) == {}


def test_one_folder_holds_one_engine(deployments_of) -> None:
    first = {"triton": RANKS}
    second = {"name": "b", "prefix": "b_", "triton": {**RANKS, "gpu_ids": [[1]]}}
    assert said(deployments_of(first, second)) == {}
    found = said(deployments_of(first, second | {"limits": {"max_seq_len": 1000}, "engine_dir": "/engines/small/"}))
    assert found["engine_dir"][0].startswith("deployment 'small' builds another engine in this folder")
    other_model = said(deployments_of(first, second | {"model": {"source": "/models/other"}}))
    assert other_model.keys() == {"engine_dir"}


def test_logits_are_handed_over_directly_between_workers_with_ranks(deployments_of) -> None:
    speculative = {"method": "draft_target", "draft": "guess", "max_draft_tokens": 8, "fast_logits": True}
    draft = {"name": "guess", "role": "draft", "prefix": "g_", "engine_dir": "/engines/guess"}
    kinds = {"executor": "orchestrator"}
    target = {"speculative": speculative, "triton": {**kinds, "gpu_ids": [[0]], "participant_ids": [[2]]}}
    found = said(deployments_of(target, draft | {"triton": {**kinds, "gpu_ids": [[1]]}}))
    assert "deployment 'guess' has no triton.participant_ids" in found["speculative.fast_logits"][0]
    ranked = {**kinds, "gpu_ids": [[1]], "participant_ids": [[1]]}
    assert said(deployments_of(target, draft | {"triton": ranked})) == {}


def test_a_draft_must_not_have_the_name_of_another_model(deployments_of) -> None:
    target = {"speculative": {"method": "draft_target", "draft": "guess"}}
    found = said(deployments_of(target, {"name": "guess", "role": "draft", "engine_model": "tensorrt_llm_bls"}))
    assert "'tensorrt_llm_bls' is also rendered by deployment 'small'" in found["prefix"][0]


def test_a_draft_must_fit_its_target(deployments_of) -> None:
    target = {"speculative": {"method": "draft_target", "draft": "guess"}, "model": {"vocab_size": 100}}
    not_a_draft = said(deployments_of(target, {"name": "guess", "prefix": "g_"}))
    assert not_a_draft["speculative.draft"][0] == "deployment 'guess' is not a draft"
    other = {"name": "guess", "role": "draft", "prefix": "g_", "model": {"vocab_size": 99}}
    assert said(deployments_of(target, other))["speculative.draft"][0].startswith("its vocabulary has 99 tokens")


def test_the_models_shape_is_read_from_its_own_folder(tmp_path: Path, deployments_of) -> None:
    write_tiny_model(tmp_path / "tiny")
    model = {"source": str(tmp_path / "tiny"), "heads": None, "kv_heads": None, "layers": None}
    found = said(deployments_of({"model": model, "parallelism": {"tp": 7}, "limits": {"max_seq_len": 10**6}}))
    assert "attention heads cannot be shared by 7 GPUs" in found["parallelism.tp"][0]
    assert "positions" in found["limits.max_seq_len"][0]


@pytest.mark.parametrize(
    ("config", "rejected"),
    [
        ({"model_type": "llama"}, True),
        ({"model_type": "t5", "is_encoder_decoder": True}, False),
        ({"model_type": "mllama", "text_config": {}, "vision_config": {}}, False),
        (None, False),
    ],
)
def test_an_encoder_needs_a_model_with_one(
    tmp_path: Path, deployments_of, config: dict[str, Any] | None, rejected: bool
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    found = said(deployments_of({"model": {"source": str(tmp_path)}, "encoder": {"engine_dir": "/e"}}))
    assert found.keys() == ({"encoder"} if rejected else set())
    if rejected:
        assert found["encoder"] == (
            "the model has no encoder: its config.json (llama) is a decoder's",
            "Leave it out, or name an encoder-decoder model in model.source.",
        )


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "llama"}, "no experts"),
        ({"model_type": "qwen2_moe", "num_experts": 2}, "2 experts"),
        ({"model_type": "mixtral", "num_local_experts": 64}, None),
    ],
)
def test_experts_are_counted(tmp_path: Path, deployments_of, config: dict[str, Any], reason: str | None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = said(deployments_of({"model": {"source": str(tmp_path)}, "parallelism": {"tp": 4, "moe_ep": 4}}))
    assert [words.removeprefix("the model's config.json has ") for words, _ in found.values()] == [reason] * bool(
        reason
    )
