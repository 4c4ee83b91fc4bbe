"""The version of the sources: one everywhere, and a dated section of the changelog."""

from __future__ import annotations

import json
import re

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
