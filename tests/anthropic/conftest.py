from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.scripted import write_tokenizer
from tests.openai.tools_harness import SHOWS_TOOLS


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of bytes whose template shows tools, and calls and results as the model's own."""
    return write_tokenizer(tmp_path_factory.mktemp("bytes"), SHOWS_TOOLS)


@pytest.fixture(scope="session")
def thinks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a model that reasons, with a switch."""
    switch = "{% if enable_thinking is defined %}{{ '[on]' if enable_thinking else '[off]' }}{% endif %}{# <think> #}"
    return write_tokenizer(tmp_path_factory.mktemp("thinks"), SHOWS_TOOLS + switch)
