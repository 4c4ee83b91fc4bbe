"""``gateway check FILE`` on mirrors: mistakes are refused, and what makes a report worth little is said first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.settings import ConfigError, load_settings
from gateway_ops.check.settings_file import check_file
from tests.tiny_model import write_tiny_model

SERVER = "server: {internal_port: 9001}\n"


def model(name: str, more: str = "", length: int = 2048) -> str:
    triton = "{url: 'localhost:8001'}"
    return f"- {{name: {name}, triton: {triton}, tokenizer: tiny, max_seq_len: {length}{more}}}\n"


def write(folder: Path, *models: str, server: str = SERVER) -> Path:
    file = folder / "gateway.yaml"
    file.write_text(f"{server}models:\n{''.join(models)}")
    return file


async def said(file: Path) -> list[str]:
    found, _ = await check_file(file, offline=True)
    return [f"{each.where.rpartition(':')[2]}: {each.what}" for each in found]


@pytest.mark.parametrize(
    ("mirror", "problem"),
    [
        ("{to: a}", "models[0].mirror.to: a model cannot be its own mirror."),
        ("{to: c}", "models[0].mirror.to: 'c' must be the name of a configured model."),
        ("{to: b, share: 0}", "models[0].mirror.share: input should be greater than 0."),
        ("{to: b, show_text: true}",
         "models[0].mirror.show_text: requires server.internal_port because texts are only shown on that port."),
    ],
)  # fmt: skip
async def test_a_mirror_that_cannot_be_is_refused(folder: Path, mirror: str, problem: str) -> None:
    file = write(folder, model("a", f", mirror: {mirror}"), model("b"), server="")
    assert [line for line in await said(file) if problem in line] == [f"2: {problem}"]
    with pytest.raises(ConfigError, match="mirror"):
        load_settings(file, {})


async def test_a_mirror_of_the_same_model_has_no_findings(folder: Path) -> None:
    assert await said(write(folder, model("a", ", mirror: {to: b}"), model("b"))) == []


async def test_another_tokenizer_and_another_context_are_said(folder: Path) -> None:
    write_tiny_model(folder / "other")
    file = folder / "other" / "tokenizer.json"
    spec = json.loads(file.read_text())
    spec["normalizer"] = {"type": "Lowercase"}
    file.write_text(json.dumps(spec))
    other = model("b", length=1024).replace("tiny", "other")
    tokenizer, *_, context = await said(write(folder, model("a", ", mirror: {to: b}"), other))
    assert tokenizer.startswith("3: A, 'a', and its mirror B: the models differ in their tokenizer: A has ")
    assert context.endswith("B: the models differ in their context: A has 2048 tokens, B has 1024 tokens.")


async def test_mirrors_of_each_other_and_a_report_that_nobody_reads_are_said(folder: Path) -> None:
    both = model("a", ", mirror: {to: b}"), model("b", ", mirror: {to: a}")
    first, second = await said(write(folder, *both))
    assert "'a' and 'b' are mirrored to each other: only requests of clients are mirrored" in first
    assert "'b' and 'a' are mirrored to each other" in second
    (found,) = await said(write(folder, model("a", ", mirror: {to: b}"), model("b"), server=""))
    assert "served on the internal port, which is not configured" in found
