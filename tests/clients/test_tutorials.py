"""What the tutorials show, run as it stands; only addresses differ."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gateway.settings import Settings
from gateway_ops.cli.root import app
from tests.clients.test_readme import ADDRESS, BY_TOKENS, blocks, run
from tests.doubles.encoders.encoder_server import EncoderServer, write_tokenizer
from tests.stack import GatewayProcess

ROOT = Path(__file__).parents[2]
TUTORIALS = "docs/tutorials"


def program(page: str, number: int, url: str) -> str:
    """What a program of a tutorial prints."""
    text = blocks("python", f"{TUTORIALS}/{page}.md")[number]
    return run([sys.executable, "-c", text.replace(ADDRESS, url)])


def settings_of(page: str) -> dict[str, Any]:
    (text,) = blocks("yaml", f"{TUTORIALS}/{page}.md")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@pytest.mark.long
@BY_TOKENS
def test_the_first_answer_is_streamed(gateway: GatewayProcess) -> None:
    out = program("first-answer", 0, gateway.url)
    assert "Paris" in out
    assert "completion_tokens=7" in out


@BY_TOKENS
def test_an_answer_follows_its_schema(gateway: GatewayProcess) -> None:
    assert set(ast.literal_eval(program("first-answer", 1, gateway.url))) == {"city", "country"}


@pytest.mark.long
def test_retrieval(encoder_gateway: GatewayProcess) -> None:
    found, answer = program("rag", 0, encoder_gateway.url).strip().split("\n", 1)
    assert found == "The gateway listens on port 9000."
    assert "9000" in answer


@pytest.mark.long
def test_rerank(tmp_path: Path) -> None:
    folder, tokenizer = tmp_path / "encoders", write_tokenizer(tmp_path / "tokenizer")
    with EncoderServer(folder, tokenizer, real=["bert_cross"]) as server:
        server.forget()
        models = [server.model("bert_cross") | {"name": "reranker"}]
        with GatewayProcess(tmp_path / "log", {"models": models}) as gateway:
            assert len(program("rag", 1, gateway.url).strip().splitlines()) == 2


@pytest.mark.parametrize("page", ["your-own-triton", "rag", "from-checkpoint"])
def test_settings_are_settings(page: str) -> None:
    assert Settings.model_validate(settings_of(page)).models


def test_the_deployment_is_rendered_and_planned(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(settings_of("from-checkpoint")), encoding="utf-8")
    built = CliRunner().invoke(app, ["repo", str(file), "-o", str(tmp_path / "repository")])
    assert built.exit_code == 0, built.output
    model = tmp_path / "Meta-Llama-3-8B-Instruct"
    model.mkdir()
    shape = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256,
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    (gpu,) = re.findall(
        r"(?m)^gateway engine plan .* (--gpu \w+)$", (ROOT / f"{TUTORIALS}/from-checkpoint.md").read_text()
    )
    plan = ["engine", "plan", str(file), *gpu.split(), "--model-dir", str(model)]
    planned = CliRunner().invoke(app, plan)
    assert planned.exit_code == 0, planned.output
