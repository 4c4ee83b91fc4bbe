from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.scripted import write_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer folder in which every byte is a token."""
    return write_tokenizer(tmp_path_factory.mktemp("bytes"))
