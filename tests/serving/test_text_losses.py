"""What is lost of a model's answers where its engine leaves special tokens out of their text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.generation import EngineFeatures
from gateway.serving.capabilities import capabilities, text_losses
from gateway.serving.loading import ModelParts, load_parts
from gateway.settings import ModelSettings, TritonSettings
from tests.doubles.llmapi.server import write_llmapi_model

ROOT = Path(__file__).parents[2]
EXACT = EngineFeatures(path="tokens", reason="r", model="m", token_ids=True, prompt_ids=True, logprobs=True)
HIDING = replace(
    EXACT, path="llmapi", token_ids=False, adds_special_tokens=True, hides_special_tokens=True, ends_at_eos=True
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose turns end with its eos_token, <|im_end|>, or with <|endoftext|>; both are special."""
    path = tmp_path_factory.mktemp("model")
    write_llmapi_model(path)
    return path


def settings(folder: Path, family: str, template: str) -> ModelSettings:
    return ModelSettings(
        name="m",
        triton=TritonSettings(url="x:1"),
        tokenizer=folder,
        max_seq_len=100,
        family=family,
        template=ROOT / "chat_templates" / template,
    )


def parts(folder: Path, family: str = "hermes", template: str = "hermes.jinja") -> ModelParts:
    return load_parts(settings(folder, family, template), None, "models[0]")


def test_an_end_that_the_engine_does_not_know_is_named(folder: Path) -> None:
    [loss] = text_losses(parts(folder), HIDING)
    assert "stops only at <|im_end|>" in loss
    assert "<|endoftext|>" in loss
    assert text_losses(parts(folder), replace(HIDING, ends_at_eos=False)) == {}
    assert text_losses(parts(folder), EXACT) == {}


def test_reasoning_and_calls_between_hidden_tokens_are_told(folder: Path) -> None:
    hidden = parts(folder, "mistral", "mistral_v13.jinja")
    losses = text_losses(hidden, replace(HIDING, ends_at_eos=False, adds_special_tokens=False))
    assert any("reasoning is part of the answer" in loss and "[THINK]" in loss for loss in losses)
    own = settings(folder, "mistral", "mistral_v13.jinja")
    tools = capabilities(HIDING, hidden, own)["tools"]
    assert (tools.how, "[TOOL_CALLS]" in tools.note) == ("impossible", True)
    assert capabilities(EXACT, hidden, own)["tools"].how == "emulated"
    # Tokens that are not special leave their text.
    assert capabilities(HIDING, parts(folder), settings(folder, "hermes", "hermes.jinja"))["tools"].how == "emulated"
