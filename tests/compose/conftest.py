"""These tests need root or a Docker engine, and minutes: only tests/compose/run.sh collects those that start one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from base_image import ensure_base_image
from compose_project import Project
from docker_engine import Engine, running_engine

from gateway_ops.local_stack.cache import cache_dir

NAME = "gateway-compose-test"
LABEL = f"com.docker.compose.project={NAME}"

if not os.environ.get("TEST_COMPOSE"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine with the base image."""
    cache: Path = cache_dir() / "compose-test"
    with running_engine(cache) as running:
        ensure_base_image(running, cache)
        yield running


@pytest.fixture(scope="session")
def built(engine: Engine) -> Iterator[Project]:
    """The cpu profile's project with its images built; whatever a test left of it is taken away at the end."""
    project = Project(engine, NAME, env={"GATEWAY_FIRST_TOKEN_TIMEOUT_S": "8"})
    engine.remove(LABEL)  # left by a run that was killed
    # Older engines' builder is enough, and the client's newer one is a plugin that may be missing.
    builder = "0" if engine.ours else os.environ.get("DOCKER_BUILDKIT", "1")
    project.compose("build", timeout=500, DOCKER_BUILDKIT=builder)
    yield project
    engine.remove(LABEL)
    assert engine.leftovers(LABEL) == []


@pytest.fixture(scope="session")
def up(built: Project) -> Project:
    """The project, up and healthy."""
    built.compose("up", "--detach", "--wait", "--wait-timeout", "120")
    return built
