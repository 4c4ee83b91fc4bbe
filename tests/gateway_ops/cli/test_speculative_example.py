"""The commands of ``examples/speculative/README.md`` as they are written, in a folder and on ports of the test's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.tiny_model import write_tiny_model

EXAMPLE = Path(__file__).parents[3] / "examples" / "speculative"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, with one tiny model as target and draft."""
    folder = tmp_path / "speculative"
    shutil.copytree(EXAMPLE, folder)
    write_tiny_model(tmp_path / "tiny")
    text = (folder / "deployment.yaml").read_text()
    for name in ("TARGET", "DRAFT"):
        text = text.replace(name, str(tmp_path / "tiny"))
    (folder / "deployment.yaml").write_text(text)
    return folder


def wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None
        try:
            if httpx.get(f"{url}/health/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(0.1)
    pytest.fail("the gateway is not ready")


@pytest.mark.long
def test_the_readme_can_be_followed(folder: Path) -> None:
    block = re.findall(r"(?:^    .+\n)+", (EXAMPLE / "README.md").read_text(), re.MULTILINE)[1]
    build, up, _, serve, chat, ask, down = (line.strip() for line in block.splitlines())
    port = str(free_port())
    base = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{base['PATH']}"
    env = {**base, "PATH": path, "GATEWAY_CACHE_DIR": str(folder.parent / "cache"), "GATEWAY_PORT": port}

    def run(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(build)
    ready = run(up)
    try:
        found = re.match(r"Ready: .* in Triton: gRPC 127\.0\.0\.1:(\d+), HTTP http://127\.0\.0\.1:\d+\n", ready)
        assert found is not None, ready
        settings = folder / "gateway.yaml"
        settings.write_text(settings.read_text().replace("PORT", found[1]))
        with subprocess.Popen(["sh", "-c", f"exec env {serve}"], cwd=folder, env=env) as gateway:
            try:
                wait_ready(gateway, f"http://127.0.0.1:{port}")
                *_, counts = run(chat.replace("9000", port)).splitlines()
                assert re.fullmatch(r"\d+ tokens accepted, \d+ rejected", counts)
            finally:
                gateway.send_signal(signal.SIGTERM)
        guesses = re.findall(r"(\d+) of (\d+) guesses accepted", run(ask.replace("PORT", found[1])))
        assert len(guesses) == 2
        assert all(0 < int(right) == int(total) for right, total in guesses)
    finally:
        stopped = run(down)
    assert stopped == "Triton is stopped.\n"
