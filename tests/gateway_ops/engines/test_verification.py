"""Engines that do not fit their deployment or machine: each difference is named before Triton fails on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from gateway_ops.engines.verification import EngineRequirements, engine_mismatches
from tests.gateway_ops.engines.conftest import Image


def found(image: Image, *options: str) -> list[dict[str, Any]]:
    """What `gateway engine check` finds."""
    result = image.gateway("check", "--json", *options)
    listed: list[dict[str, Any]] = json.loads(result.stdout)["mismatches"]
    assert result.exit_code == any(one["error"] for one in listed)
    return listed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parallelism": {"tp": 2}}, "It was built for tp_size 1, but the deployment asks for 2."),
        ({"limits": {"max_seq_len": 4000}}, "It was built for max_seq_len 2000, but the deployment asks for 4000."),
        ({"limits": {"max_input_len": 1500}}, "It was built for max_input_len 1000, but the deployment asks for 1500."),
        ({"limits": {"max_batch_size": 9}}, "It was built for max_batch_size 8, but the deployment asks for 9."),
        ({"limits": {"max_num_tokens": 5000}},
         "It was built for max_num_tokens 4096, but the deployment asks for 5000."),
        ({"trtllm": "1.1.0"}, "TensorRT-LLM 1.2.1 built it, but the deployment has 1.1.0."),
        ({"kv_cache": {"tokens_per_block": 64}}, "It was built for blocks of 32 tokens"),
        ({"lora": {}}, "It was built without the LoRA plugin, which adapters need."),
        ({"speculative": {"method": "lookahead", "window_size": 4, "ngram_size": 3, "verification_set_size": 4}},
         "It was built for max_draft_len 0, but the deployment asks for 15."),
    ],
)  # fmt: skip
def test_an_engine_for_another_deployment(image: Image, change: dict[str, Any], said: str) -> None:
    image.built()
    limits = image.small()["limits"] | change.pop("limits", {})
    image.write({"limits": limits} | change)
    matching = [one for one in found(image) if one["what"].startswith(said)]
    assert [one["error"] for one in matching] == [True]
    assert matching[0]["where"] == str(image.engine / "config.json")


def test_an_engine_that_takes_more_is_no_mistake(image: Image) -> None:
    image.built()
    image.write({"limits": image.small()["limits"] | {"max_seq_len": 1500, "max_batch_size": 4}})
    assert found(image) == []


def test_reuse_needs_an_engine_with_paged_context_attention(image: Image) -> None:
    image.write({"build": {"paged_context_fmha": False}, "kv_cache": {"reuse": False}})
    image.built()
    image.write()
    (one,) = found(image)
    assert one["what"] == "It was built without paged context attention, which kv_cache.reuse needs."


def unsigned(image: Image, text: str = "") -> None:
    """Without a manifest, and where a text is given with that as its configuration."""
    (image.engine / "gateway_manifest.json").unlink()
    if text:
        (image.engine / "config.json").write_text(text)


def edited(image: Image) -> None:
    manifest = image.engine / "gateway_manifest.json"
    manifest.write_text(manifest.read_text().replace("NVIDIA L4", "NVIDIA H100"))


NO_MANIFEST, NO_CONFIG = (False, "It has no manifest"), (True, "It is not the config.json of an engine")
OTHER_KINDS = '{"version": 1, "build_config": [], "pretrained_config": {}}'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda image: image.set("GPU", "NVIDIA L40S, 46068, 8.9"), (False, "on NVIDIA L4, and here is NVIDIA L40S")),
        (lambda image: image.set("GPU", "NVIDIA H100, 81559, 9.0"), (True, "capability 8.9), and here is NVIDIA H100")),
        (
            lambda image: image.set("TRTLLM", "1.1.0"),
            (True, "TensorRT-LLM 1.2.1 built it, but this machine has 1.1.0."),
        ),
        (edited, (True, "It was edited by hand: its checksum is wrong")),
        (unsigned, NO_MANIFEST),
        *((partial(unsigned, text=text), NO_CONFIG) for text in ("{}", "[]", "[" * 100_000, "\0", OTHER_KINDS)),
    ],
    ids=["sibling", "GPU", "image", "edited", "unsigned", "nothing", "a list", "levels", "NUL", "kinds"],
)
def test_an_engine_that_is_not_what_was_built_here(
    image: Image, change: Callable[[Image], object], said: tuple[bool, str]
) -> None:
    image.built()
    change(image)
    *before, last = found(image)
    assert [one["what"][: len(NO_MANIFEST[1])] for one in before] == [NO_MANIFEST[1]] * (said == NO_CONFIG)
    assert (last["error"], said[1] in last["what"]) == (said[0], True), last


def test_files_that_changed_or_are_missing(image: Image) -> None:
    image.built()
    (image.engine / "rank0.engine").write_bytes(b"e" * 600)
    assert found(image) == []  # weights of the same size
    assert [one["what"] for one in found(image, "--whole")] == ["rank0.engine has different content, by the manifest."]
    (image.engine / "rank0.engine").unlink()
    whats = [one["what"] for one in found(image)]
    assert whats == ["rank0.engine is missing, by the manifest.", "It lacks rank0.engine."]


@pytest.mark.parametrize("ranks", [10**12, 0, True, None])
def test_a_number_of_ranks_that_no_engine_has(image: Image, ranks: Any) -> None:
    """Where nothing else says how many there are: a repository that names no GPUs."""
    image.built()
    (image.engine / "gateway_manifest.json").unlink()
    config = json.loads((image.engine / "config.json").read_text())
    config["pretrained_config"]["mapping"]["world_size"] = ranks
    (image.engine / "config.json").write_text(json.dumps(config))
    said = [one.what for one in engine_mismatches(image.engine, EngineRequirements(), None)]
    assert said == [f"It says world_size {ranks!r}, which is not possible."]


def test_nothing_and_half_of_a_build(image: Image) -> None:
    (nothing,) = found(image)
    assert (nothing["what"], nothing["fix"]) == ("It does not exist.", "Build it with `gateway engine build`.")
    image.set("FAULT", "trtllm-build:full")
    assert image.gateway("build").exit_code == 1
    (half,) = found(image)
    assert f"Only {image.engine}.partial exists, an unfinished build." in half["what"]


def test_adapters_and_guides_that_were_not_made(image: Image) -> None:
    image.built()
    lora, guides = str(image.disk / "lora"), str(image.disk / "tokenizer.json")
    image.write({"lora": {"prefetch_dir": lora, "adapters": {3: "/a"}}, "guided_decoding": {"tokenizer_info": guides}})
    missing = [one["where"] for one in found(image) if one["what"].startswith("It is missing")]
    assert missing == [guides, f"{lora}/3"]


def test_more_gpus_than_the_machine_has(image: Image) -> None:
    image.write({"parallelism": {"tp": 2}})
    image.built()
    (one,) = found(image)
    assert one["what"] == "An instance takes 2 GPUs of each machine, but nvidia-smi finds 1."


def test_gateway_check_says_it_of_a_file_and_of_a_repository(image: Image) -> None:
    image.built()
    image.write({"limits": image.small()["limits"] | {"max_seq_len": 4000}})
    repository = image.disk / "repository"
    runner = CliRunner()
    rendered = runner.invoke(app, ["repo", str(image.file), "-o", str(repository)])
    assert rendered.exit_code == 0, rendered.output
    said = f"{image.engine / 'config.json'}: It was built for max_seq_len 2000, but the deployment asks for 4000."
    for target in (image.file, repository):
        findings = json.loads(runner.invoke(app, ["check", str(target), "--json"]).stdout)["findings"]
        (one,) = [one for one in findings if one["what"] == said]
        assert one["severity"] == "error"
        assert one["where"].startswith(str(target))
    image.set("GPU", "NVIDIA H100 80GB HBM3, 81559, 9.0")
    for target in (image.file, repository):
        findings = json.loads(runner.invoke(app, ["check", str(target), "--json"]).stdout)["findings"]
        assert [one for one in findings if "built on NVIDIA L4 (compute capability 8.9)" in one["what"]]
