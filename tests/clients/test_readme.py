"""What the README shows, run as it stands; only addresses, values and lengths of runs differ."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bound_process import BoundProcess
from tests.clients.conftest import MODEL, TINY, TINY_MAX_SEQ_LEN
from tests.release.conftest import archives, installed  # noqa: F401 - fixtures
from tests.stack import GatewayProcess

# One path is enough for programs that know of none.
BY_TOKENS = pytest.mark.parametrize("gateway", ["tokens"], indirect=True)
ROOT = Path(__file__).parents[2]
ADDRESS = "http://127.0.0.1:9000"
CLONE, CURL, COMMANDS, OWN_TRITON = range(4)


def blocks(language: str, page: str = "README.md") -> list[str]:
    """Code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(params=["checkout", pytest.param("installed", marks=pytest.mark.long)])
def environ(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables with the command ``gateway`` on the path: of the checkout, or of ``pip install .``."""
    of_wheel = request.param == "installed"
    folder = request.getfixturevalue("installed").folder / "bin" if of_wheel else Path(sys.executable).parent
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "PYTHON"))}
    return kept | {"PATH": f"{folder}:{os.environ['PATH']}", "NO_COLOR": "1"}


def test_each_block_has_its_test() -> None:
    assert {language: len(blocks(language)) for language in ("sh", "python", "json", "yaml")} == {
        "sh": 4, "python": 3, "json": 1, "yaml": 1,
    }  # fmt: skip
    assert (ROOT / "README.md").read_text().count("\n```") == 2 * 9


def test_the_clone_line(tmp_path: Path) -> None:
    """As far as ``make up`` begins, which tests of the command itself go on with."""
    script = blocks("sh")[CLONE].replace("<this repository>", str(ROOT)).replace("make up", "make --dry-run up")
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no Git repository here to clone")
    around = ("MAKE", "MFLAGS", "ARGS")  # of a make around the tests
    environ = {name: value for name, value in os.environ.items() if not name.startswith(around)}
    assert run(["sh", "-ec", script], cwd=tmp_path, env=environ).rstrip().endswith(".venv/bin/gateway up")


@BY_TOKENS
def test_curl(gateway: GatewayProcess) -> None:
    found = json.loads(run(["sh", "-c", blocks("sh")[CURL].replace(ADDRESS, gateway.url)]))
    shown = json.loads(blocks("json")[0])
    for answer in (found, shown):
        del answer["id"], answer["created"]
        del answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert found == shown


@BY_TOKENS
@pytest.mark.parametrize("number", range(2))
def test_python(gateway: GatewayProcess, number: int) -> None:
    out = run([sys.executable, "-c", blocks("python")[number].replace(ADDRESS, gateway.url)])
    assert out.strip()
    if number == 0:
        assert "Paris" in out
        assert "completion_tokens=7" in out


def test_retrieval(encoder_gateway: GatewayProcess) -> None:
    program = blocks("python")[2]
    assert len(program.strip().splitlines()) <= 15
    assert "9000" in run([sys.executable, "-c", program.replace(ADDRESS, encoder_gateway.url)])


@pytest.mark.parametrize("tiny_gateway", ["tokens"], indirect=True)
def test_the_guaranteed_call(tiny_gateway: GatewayProcess) -> None:
    (program,) = blocks("python", "docs/reference/tools.md")
    out = run([sys.executable, "-c", program.replace(ADDRESS, tiny_gateway.url).replace(MODEL, TINY)])
    assert out.startswith("tool_calls ")
    assert "name='get_weather'" in out


@pytest.mark.long
@pytest.mark.parametrize("tiny_gateway", ["tokens"], indirect=True)
def test_the_commands(tiny_gateway: GatewayProcess, environ: dict[str, str], tmp_path: Path) -> None:
    script = blocks("sh")[COMMANDS].replace(ADDRESS, tiny_gateway.url)
    assert "--max-tokens 16 --duration 20" in script
    script = script.replace("--duration 20", "--requests 2 --warm-up 0")
    talked, tested = run(["sh", "-ec", script], env=environ, cwd=tmp_path).split("\nWhat is true, ")
    assert "2 of 2 requests" in talked
    assert "none rejected" in talked
    assert "untrue" not in talked
    assert " true; " in tested


@pytest.mark.long
def test_a_gateway_before_a_triton(triton: Any, tiny_model_dir: Path, environ: dict[str, str], tmp_path: Path) -> None:
    *lines, check, serve = blocks("sh")[OWN_TRITON].splitlines()
    run(["sh", "-ec", "\n".join(lines)], env=environ, cwd=tmp_path)
    file = tmp_path / "gateway.yaml"
    text = file.read_text()
    assert blocks("yaml")[0] in text
    values = {"triton:8001": triton.grpc_url, "/models/llama3": str(tiny_model_dir), "8192": str(TINY_MAX_SEQ_LEN)}
    for shown, own in values.items():
        text = text.replace(f" {shown}", f" {own}")
    file.write_text(text)
    run(["sh", "-ec", check], env=environ, cwd=tmp_path)
    gateway = GatewayProcess(tmp_path / "log")
    own = environ | {"GATEWAY_PORT": str(gateway.port), "XDG_STATE_HOME": str(tmp_path), "GATEWAY_LAME_DUCK_S": "0"}
    command = ["sh", "-c", f"exec {serve}"]
    with gateway.log.open("ab") as log, BoundProcess(command, env=own, cwd=tmp_path, stdout=log, stderr=log) as process:
        gateway.wait("/health/ready", 200)
        body = {"model": "llama3", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        answer = gateway.post(body)
        process.terminate()
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 0


def test_the_overlay_that_is_applied_is_there() -> None:
    (folder,) = re.findall(r"`kubectl apply -k (\S+)`", (ROOT / "README.md").read_text())
    assert (ROOT / folder / "kustomization.yaml").is_file()  # tests/kubernetes render it
