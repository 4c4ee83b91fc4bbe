"""The version of the sources is one everywhere, and workflows run what exists and pin what they take from others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import __version__
from gateway.api.page.document import FILE
from tests.release.conftest import ROOT


def test_every_file_has_the_same_version() -> None:
    (project,) = re.findall(r'(?m)^version = "(.+)"$', (ROOT / "pyproject.toml").read_text())
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "Chart.yaml").read_text())
    dated = re.findall(r"(?m)^## \[(.+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text())
    (status,) = re.findall(r"\*\*Status\*\*: ([\d.]+),", (ROOT / "README.md").read_text())
    found = {
        "gateway": __version__, "chart": chart["version"], "application": chart["appVersion"], "changelog": dated[0],
        "README": status, "openapi.json": json.loads(FILE.read_text())["info"]["version"],
    }  # fmt: skip
    assert found == dict.fromkeys(found, project)


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def jobs_of(path: Path) -> dict[str, dict[str, Any]]:
    """The jobs of a workflow."""
    jobs: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["jobs"]
    return jobs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_rights_are_few(path: Path) -> None:
    for line in path.read_text().splitlines():
        if "uses:" in line:
            assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    top = yaml.safe_load(path.read_text())["permissions"]
    assert top in ({}, {"contents": "read"})
    for name, job in jobs_of(path).items():
        writes = {right for right, grade in job.get("permissions", {}).items() if grade == "write"}
        # Only what publishes may write, and what writes code or releases signs nothing.
        assert name in {"archives", "images", "release"} or not writes
        assert not {"contents", "id-token"} <= writes


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_what_is_run_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [step["run"] for job in jobs_of(path).values() for step in job["steps"] if "run" in step]
    for command in commands:
        for target in re.findall(r"\bmake ([a-z-]+)", command):
            assert target in targets
        for file in re.findall(r"(?:bash|python) (\S+)", command):
            assert (ROOT / file).is_file()
    files = {
        step["with"]["file"]
        for job in jobs_of(path).values()
        for step in job["steps"]
        if "file" in step.get("with", {})
    }
    assert files <= {"${{ matrix.file }}"}
    for job in jobs_of(path).values():
        for entry in job.get("strategy", {}).get("matrix", {}).get("include", []):
            assert (ROOT / entry["file"]).is_file()
