"""docker-compose.yml, read by Docker Compose itself (no engine needed)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMPOSE = Path(sys.executable).with_name("docker-compose")


def config(*arguments: str, **environ: str) -> dict[str, Any]:
    base = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    command = [COMPOSE, "--env-file", os.devnull, *arguments, "config", "--format", "json"]
    done = subprocess.run(
        command, cwd=ROOT, env=base | environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("profile", "services"),
    [
        ([], {"gateway", "model"}),
        (["--profile", "cpu"], {"gateway", "model", "triton-cpu"}),
        (["--profile", "gpu"], {"gateway", "model", "triton"}),
    ],
)
def test_each_profile_is_accepted(profile: list[str], services: set[str]) -> None:
    assert set(config(*profile)["services"]) == services


def test_the_example_settings_are_accepted() -> None:
    done = subprocess.run(
        [COMPOSE, "--env-file", ".env.example", "config", "--quiet"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_all_services_see_the_same_model_folder_and_the_gateway_the_right_triton() -> None:
    for profile, triton in (("cpu", "triton-cpu"), ("gpu", "triton")):
        services = config("--profile", profile, MODEL_DIR="/srv/llama")["services"]
        assert "triton" in services[triton]["networks"]["default"]["aliases"]
        for name in ("gateway", "model", triton):
            assert any(
                (volume["source"], volume["target"]) == ("/srv/llama", "/model") for volume in services[name]["volumes"]
            )
        assert services["gateway"]["environment"]["GATEWAY_TRITON_URL"] == "triton:8001"


def test_only_this_machine_reaches_the_gateway_unless_told_otherwise() -> None:
    (port,) = config("--profile", "cpu")["services"]["gateway"]["ports"]
    assert (port["host_ip"], port["published"]) == ("127.0.0.1", "9000")
    assert "ports" not in config("--profile", "cpu")["services"]["triton-cpu"]


def test_the_build_files_exist() -> None:
    for service in config("--profile", "cpu")["services"].values():
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()
