"""The commands of an installed wheel, run as users run them: far from any checkout, in a folder that is empty."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.release.conftest import ROOT, Installed

TEMPLATES = sorted(path.name for path in (ROOT / "chat_templates").glob("*.jinja"))
READ_TEMPLATES = """
import sys
from pathlib import Path
import gateway, gateway_ops
from gateway.settings import load_settings
from gateway.text.prompt import load_template
from gateway.text.tokens import Tokenizer

for package in (gateway, gateway_ops):
    assert Path(package.__file__).is_relative_to(sys.argv[1]), package.__file__
tokenizer = Tokenizer.from_folder(Path(sys.argv[2]))
for name in sys.argv[3:]:
    (model,) = load_settings(None, {
        "GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "x:1", "GATEWAY_TEMPLATE": "chat_templates/" + name}).models
    assert model.template.is_relative_to(sys.argv[1]), model.template
    assert "Hi there" in load_template(tokenizer, model.template).render([{"role": "user", "content": "Hi there"}])
"""


class Shell:
    """Runs programs of the environment in a folder of its own."""

    def __init__(self, installed: Installed, folder: Path) -> None:
        self._programs = installed.folder / "bin"
        self.folder = folder
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("GATEWAY_", "PYTHON"))}
        self._environ = kept | {"GATEWAY_CACHE_DIR": str(folder / "cache"), "NO_COLOR": "1", "COLUMNS": "160"}
        self._environ["PATH"] = f"{self._programs}:{os.environ['PATH']}"

    def gateway(self, *arguments: str, code: int = 0, program: str = "gateway") -> subprocess.CompletedProcess[str]:
        """Run a program, and see its exit status."""
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
        return done


@pytest.fixture(scope="module")
def shell(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(installed, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def url(shell: Shell, tiny_model_dir: Path) -> Iterator[str]:
    """The stack that the installed ``gateway up`` started."""
    port = str(free_port())
    options = ("--port", port, "--template", "chat_templates/chatml.jinja", "--detach")
    try:
        ready = shell.gateway("up", "--model", str(tiny_model_dir), *options)
        assert f"Ready: tiny at http://127.0.0.1:{port}/v1" in ready.stdout
        yield f"http://127.0.0.1:{port}"
    finally:
        shell.gateway("down", "--port", port)


def test_every_command_explains_itself(shell: Shell) -> None:
    assert shell.gateway("--version").stdout.startswith("gateway 0.")
    listed = shell.gateway("--help").stdout
    for command in ("up", "down", "serve", "check", "bench", "compare", "examples", "plan-fleet", "repo", "key"):
        assert f" {command} " in listed
    assert "Usage: gateway plan-fleet " in shell.gateway("plan-fleet", "--help").stdout


def test_every_template_is_used_by_its_name(shell: Shell, installed: Installed, tiny_model_dir: Path) -> None:
    assert len(TEMPLATES) >= 12
    shell.gateway("-c", READ_TEMPLATES, str(installed.site), str(tiny_model_dir), *TEMPLATES, program="python")


@pytest.mark.long
def test_each_example_becomes_a_model_repository_that_the_check_passes(shell: Shell) -> None:
    shell.gateway("examples", "mine")
    for name in ("embedded", "llama3-8b-awq"):
        shell.gateway("repo", f"mine/deployments/{name}.yaml", "-o", f"repo-{name}")
    assert (shell.folder / "repo-embedded" / "tensorrt_llm" / "1" / "model.py").is_file()
    assert (shell.folder / "repo-embedded" / "ensemble" / "1").is_dir()
    found = json.loads(shell.gateway("check", "repo-embedded", "--json").stdout)
    assert [each for each in found["findings"] if each["severity"] == "error"] == []
    # Nothing that a user edited is lost.
    assert "exists already" in shell.gateway("examples", "mine", code=1).stderr


@pytest.mark.long
def test_up_answers_and_check_and_bench_agree(shell: Shell, url: str) -> None:
    question = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{url}/v1/chat/completions", json=question, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] > 0
    shell.gateway("check", url)
    load = ("--requests", "6", "--streams", "2", "--warm-up", "0", "--prompt-tokens", "20", "--max-tokens", "8")
    found = json.loads(shell.gateway("bench", url, *load, "--json").stdout)
    assert (found["requests"]["completed"], found["requests"]["failed"]) == (6, {})


@pytest.mark.long
@pytest.mark.parametrize("extra", ["bench", "embedded", "redis", "jwt", "encryption", "otel"])
def test_the_line_that_adds_an_extra_installs_only_what_is_missing(
    shell: Shell, installed: Installed, extra: str
) -> None:
    python = str(installed.folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    code = f"from gateway.settings.extras import pip_install; print(pip_install({extra!r}))"
    said = shell.gateway("-c", code, program="python").stdout
    line = [*pip, *shlex.split(said)[1:], "--no-index", "--dry-run"]
    done = subprocess.run(line, cwd=shell.folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Would install" not in done.stdout
