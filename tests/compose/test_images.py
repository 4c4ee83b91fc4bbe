"""The images of a release, made by ``make images``: what they say of themselves, and what they hold."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from compose_project import ROOT, Project

NAME = "gateway-compose-test-release"
# The distributions of the interpreter that is first on the path, as JSON.
PARTS = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
BUILD = """
set -e
cd /tmp
gateway examples mine
gateway repo mine/deployments/embedded.yaml -o repo
gateway check repo
test -f repo/tensorrt_llm/1/model.py
"""


@pytest.fixture(scope="module")
def images(built: Project) -> Iterator[tuple[str, str]]:
    """Both images; most of their layers are those that Compose built."""
    env = {**built.engine.env, "DOCKER_BUILDKIT": "0" if built.engine.ours else "1"}
    command = ["nice", "make", "images", f"IMAGE={NAME}", "ARGS=--network host"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = (f"{NAME}:{version()}", f"{NAME}-triton-cpu:{version()}")
    yield found
    built.engine.docker("image", "rm", *found)


def version() -> str:
    """The version that the sources carry."""
    (line,) = (line for line in (ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("version = "))
    return line.split('"')[1]


def run(built: Project, image: str, *command: str) -> str:
    """Run a command in a fresh container as it is meant to run: read-only, no rights, no network."""
    strict = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    entry = ("--rm", "--network", "none", "--entrypoint", command[0], image, *command[1:])
    return built.engine.docker("run", *strict, *entry)


def test_they_say_what_they_are_and_what_they_were_made_from(built: Project, images: tuple[str, str]) -> None:
    git = ["git", "log", "-1", "--format=%H"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    for image in images:
        config: dict[str, Any] = json.loads(built.engine.docker("image", "inspect", image))[0]["Config"]
        labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
        assert (labels["version"], labels["revision"], labels["licenses"]) == (version(), commit, "Apache-2.0")
        assert labels["created"].endswith("Z")
        assert "@" not in labels["source"]  # no name and no key of whoever built it
        assert config["User"] == "1000:1000"


def test_their_parts_lists_name_every_package_that_is_in_them(built: Project, images: tuple[str, str]) -> None:
    for image in images:
        listed = json.loads(run(built, image, "cat", "/opt/sbom.cdx.json"))
        assert listed["bomFormat"] == "CycloneDX"
        parts = {(each["name"].lower(), each["version"]) for each in listed["components"]}
        installed = {(name.lower(), version) for name, version in json.loads(run(built, image, "python3", "-c", PARTS))}
        own = {each for each in installed if each[0] not in {"pip", "setuptools", "wheel"}}
        assert own <= parts
        assert len(own) > 40


def test_the_gateways_image_has_what_the_pages_speak_of(built: Project, images: tuple[str, str]) -> None:
    assert run(built, images[0], "gateway", "--version").splitlines()[0] == f"gateway {version()}"
    run(built, images[0], "sh", "-c", BUILD)
