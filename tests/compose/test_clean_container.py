"""The wheel alone in a clean container: what the pages promise after ``pip install``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose_project import ROOT
from docker_engine import Engine

from tests.release.conftest import build_archives

IMAGE = "gateway-compose-test-wheel"
DOCKERFILE = """
FROM python:3.11-slim-bookworm
COPY requirements.txt *.whl /wheel/
RUN pip install --quiet --no-compile -c /wheel/requirements.txt "$(echo /wheel/*.whl)[bench,embedded]" safetensors
RUN useradd --uid 1000 --create-home user
USER 1000
WORKDIR /home/user
COPY tiny_model.py ./
"""
# As a user would go on from there; any step that fails ends it.
PROGRAM = """
set -eu
gateway --version
gateway examples mine
gateway repo mine/deployments/embedded.yaml -o repo
gateway check repo
python -c "import pathlib, tiny_model as t; t.write_tiny_model(pathlib.Path('tiny'))"
gateway up --model tiny --template chat_templates/chatml.jinja --detach
gateway check http://127.0.0.1:9000
for streams in 1 2; do
    gateway bench --requests 4 --streams $streams --warm-up 0 --prompt-tokens 20 --max-tokens 8 --output $streams.json
done
gateway plan-fleet --rate 2 --prompt-tokens 20 --answer-tokens 8 --bench 1.json --bench 2.json
gateway down
echo all of it works
"""


@pytest.fixture(scope="module")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with the wheel, whose build saw nothing else of the project but the pins."""
    folder = tmp_path_factory.mktemp("context")
    build_archives(tmp_path_factory.mktemp("source"), folder)
    shutil.copy(ROOT / "requirements" / "dev.txt", folder / "requirements.txt")
    shutil.copy(ROOT / "tests" / "tiny_model.py", folder)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    env = {**engine.env, "DOCKER_BUILDKIT": "0" if engine.ours else "1"}
    build = ["nice", "docker", "build", "--network", "host", "--tag", IMAGE, str(folder)]
    done = subprocess.run(build, env=env, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    yield IMAGE
    engine.docker("image", "rm", IMAGE)


def test_a_clean_container_with_the_wheel_does_what_the_pages_promise(engine: Engine, image: str) -> None:
    said = engine.docker("run", "--rm", "--network", "none", image, "sh", "-c", PROGRAM, timeout=300)
    assert "Ready: tiny at http://127.0.0.1:9000/v1" in said
    assert said.endswith("all of it works")


def test_nothing_of_it_leads_to_a_checkout(engine: Engine, image: str) -> None:
    where = "import gateway, gateway_ops; print(gateway.__file__, gateway_ops.__file__)"
    for path in engine.docker("run", "--rm", "--network", "none", image, "python", "-c", where).split():
        assert Path(path).parent.parent.name in {"site-packages", "dist-packages"}
