"""What the README shows, run as it stands; only the address differs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack import GatewayProcess

# One path is enough for programs that know of none.
BY_TOKENS = pytest.mark.parametrize("gateway", ["tokens"], indirect=True)

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    """Code blocks of one language that talk to the gateway."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return [block for block in found if "127.0.0.1:9000" in block and "gateway bench" not in block]


def run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_each_client() -> None:
    assert len(blocks("sh")) == 1
    assert len(blocks("python")) == 3


@BY_TOKENS
def test_curl(gateway: GatewayProcess) -> None:
    out = run(["sh", "-c", blocks("sh")[0].replace("http://127.0.0.1:9000", gateway.url)])
    assert out.rstrip().endswith("data: [DONE]")


@BY_TOKENS
@pytest.mark.parametrize("number", range(3))
def test_python(gateway: GatewayProcess, number: int) -> None:
    out = run([sys.executable, "-c", blocks("python")[number].replace("http://127.0.0.1:9000", gateway.url)])
    assert out.strip()
    if number == 0:
        assert "Paris" in out
        assert "completion_tokens=7" in out
    if number == 2:
        assert out.startswith("tool_calls ")
        assert "name='get_weather'" in out


@pytest.mark.long
@pytest.mark.parametrize("tiny_gateway", ["tokens"], indirect=True)
def test_the_repository_commands(tiny_gateway: GatewayProcess, tmp_path: Path) -> None:
    text = README.read_text()
    found = next(
        block for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "repo build" in block
    )
    script = found.replace("http://127.0.0.1:9000", tiny_gateway.url).replace(" repo\n", f" {tmp_path}/repo\n")
    script = script.replace("--streams 2", "--streams 2 --requests 2 --warm-up 0 --max-tokens 4")
    checked, tested = run(["sh", "-ec", f"PATH={Path(sys.executable).parent}:$PATH\n{script}"]).split(
        "\nWhat is true, "
    )
    assert "error:" not in checked
    assert "untrue" not in checked
    assert "2 of 2 requests" in tested
    assert "none refused" in tested
