from __future__ import annotations

from pathlib import Path

import pytest

from tests.openai.tools_harness import tools_folder


@pytest.fixture(scope="session")
def shows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of bytes whose template shows tools."""
    return tools_folder(tmp_path_factory.mktemp("shows"))
