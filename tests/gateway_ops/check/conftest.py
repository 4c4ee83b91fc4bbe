"""Repositories without mistakes, to plant some in."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tritonclient.grpc import model_config_pb2

from gateway.settings.settings_validation import validate_deployments
from gateway.settings.yaml_file import read_document
from gateway_ops.repository import model_folders
from gateway_ops.repository.pbtxt import from_text
from gateway_ops.repository.rendered_files import render, write
from tests.gateway_ops.check.planting import ENGINE, edit, parameter
from tests.gateway_ops.repository.stock import UPSTREAM
from tests.tiny_model import write_tiny_model
from tests.tokens.kept_helper import one_helper  # noqa: F401 - a fixture

OLDER: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("older.json").read_text())
EXAMPLES = Path(__file__).parents[3] / "examples" / "deployments"


@pytest.fixture(scope="session", autouse=True)
def _parsed_once() -> Iterator[None]:
    """Parse each text of a ``config.pbtxt`` once: protobuf's parser is Python, and most files of a test are as ever."""
    parsed = functools.cache(from_text)

    def parse(text: str) -> Any:
        config = model_config_pb2.ModelConfig()
        config.CopyFrom(parsed(text))
        return config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_folders, "from_text", parse)
        yield


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Callable[[str], Path]:
    """A rendered example, made once."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("rendered") / "repo"
            deployments, _ = validate_deployments(read_document(EXAMPLES / f"{name}.yaml"))
            write(render(deployments, repository), made[name], replace=False)
        return made[name]

    return get


@pytest.fixture
def copied(rendered: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a rendered example, to plant mistakes in."""
    return lambda name: shutil.copytree(rendered(name), tmp_path / name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the tiny model in ``tiny``."""
    write_tiny_model(tmp_path / "tiny")
    return tmp_path


@pytest.fixture
def stock_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's older stock models among those that can be rebuilt."""
    for version, facts in OLDER.items():
        monkeypatch.setitem(UPSTREAM, version, facts)


@pytest.fixture
def repo(rendered: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a repository without mistakes, for TensorRT-LLM's C++ backend, and its engine."""
    (tmp_path / "engines" / "llama3").mkdir(parents=True)
    (tmp_path / "engines" / "llama3" / "rank0.engine").touch()
    repo = shutil.copytree(rendered("llama3-8b-awq"), tmp_path / "repo")
    edit(repo / ENGINE, *parameter("gpt_model_path", str(tmp_path / "engines" / "llama3")))
    return repo
