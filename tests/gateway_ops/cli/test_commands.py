"""The command ``gateway``, run as users run it; what needs no Triton."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command

from gateway.http.access.key_ring import KeyRing, read_keys
from gateway_ops.cli.root import app
from tests.ports import free_port
from tests.tiny_model import write_tiny_model
from tests.warm_gateways import gateway

GATEWAY = Path(sys.executable).with_name("gateway")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def run(cache: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return gateway(*arguments, GATEWAY_CACHE_DIR=str(cache), COLUMNS="200", NO_COLOR="1", **variables)


def every_option(command: Any, name: str = "gateway") -> Iterator[tuple[str, str]]:
    """The help of every option of a command and of those below it, with their names."""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for below, one in getattr(command, "commands", {}).items():
        yield from every_option(one, f"{name} {below}")


def test_no_word_of_the_help_is_lost_to_markup() -> None:
    """Rich takes words in square brackets for tags, and drops them."""
    helps = dict(every_option(get_command(app)))
    assert len(helps) > 50
    assert "deployment/key:value" in helps["gateway repo overrides"]
    lost = [name for name, text in helps.items() if Text.from_markup(text).plain != text]
    assert lost == []


def test_help_has_every_command_in_a_panel(tmp_path: Path) -> None:
    for arguments in ([], ["--help"]):
        done = run(tmp_path, *arguments)
        panels = re.split(r"─ (\w+) ─", done.stdout + done.stderr)
        shown = {
            name: re.findall(r"^│ ([a-z]\S*)", text, re.MULTILINE)
            for name, text in zip(panels[1::2], panels[2::2], strict=True)
        }
        assert {name: len(commands) for name, commands in shown.items()} == {
            "Options": 0, "Run": 7, "Talk": 2, "Test": 5, "Build": 4,
        }  # fmt: skip
        assert "serve" in shown["Run"]
        assert "engine" in shown["Build"]
    assert "--detach" in run(tmp_path, "up", "--help").stdout


def test_the_example_of_each_command_is_accepted(tmp_path: Path) -> None:
    """By the command's own parser, which knows its options; nothing runs."""
    root = get_command(app)
    commands = {(name,): command for name, command in root.commands.items()}
    engine = commands.pop(("engine",))
    commands |= {("engine", name): command for name, command in engine.commands.items()}
    assert len(commands) == 20
    for path, command in commands.items():
        *_, example = command.epilog.partition("Example: gateway ")
        words = shlex.split(example)
        assert tuple(words[: len(path)]) == path
        command.make_context(path[-1], words[len(path) :])


def test_the_start_of_a_command_imports_little() -> None:
    """What takes long to import, a command imports when it runs."""
    slow = {"gateway.settings", "grpc", "jinja2", "numpy", "prometheus_client", "pydantic", "yaml"}
    code = f"import sys, gateway_ops.cli.root; print(*{slow} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (["repo", "build", "-f", "none.yaml", "-o", "out"], "repo none.yaml -o out"),
        (["repo", "build", "--file=none.yaml", "-o", "out"], "repo none.yaml -o out"),
        (["engine", "plan", "--only", "a", "-f", "none.yaml"], "engine plan --only a none.yaml"),
        (["launch", "-fnone.yaml", "--", "--log-verbose=1"], "launch none.yaml -- --log-verbose=1"),
        (["key", "new", "a b"], "key 'a b'"),
    ],
)
def test_a_former_form_works_and_names_the_present_one(tmp_path: Path, former: list[str], present: str) -> None:
    done = run(tmp_path, *former)
    warning, error = done.stderr.splitlines()
    assert warning == f"warning: a former form, which will be removed; write: gateway {present}"
    assert run(tmp_path, *shlex.split(present)).stderr.splitlines() == [error]
    assert "none.yaml" in error or "a name has" in error


def test_options_for_tritonserver_need_no_file_before_them(tmp_path: Path) -> None:
    done = run(tmp_path, "launch", "--", "--log-verbose=1")
    assert done.stderr.startswith("error: gateway.yaml")


def test_a_taken_port_is_said_before_anything_is_made(tmp_path: Path, taken_port: int) -> None:
    for detach in ([], ["--detach"]):
        done = run(tmp_path / "cache", "up", "--port", str(taken_port), *detach)
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.startswith(f"error: Cannot listen on 127.0.0.1 port {taken_port} (Address already in use)")
        assert "--port" in done.stderr
        assert not (tmp_path / "cache").exists()


def test_port_and_host_come_from_the_environment_too(tmp_path: Path, taken_port: int) -> None:
    done = run(tmp_path, "up", GATEWAY_PORT=str(taken_port))
    assert done.stderr.startswith(f"error: Cannot listen on 127.0.0.1 port {taken_port} (Address already in use)")
    done = run(tmp_path, "up", GATEWAY_HOST="192.0.2.1", GATEWAY_PORT=str(free_port()))
    assert done.stderr.startswith("error: Cannot listen on 192.0.2.1")
    done = run(tmp_path, "down", GATEWAY_PORT=str(taken_port))
    assert done.stdout == f"Nothing to stop: no gateway is up on port {taken_port}.\n"


def test_a_folder_without_models_is_no_repository_for_triton(tmp_path: Path) -> None:
    done = run(tmp_path, "up", "--triton-only", "--repository", str(tmp_path))
    assert done.returncode == 1
    assert f"error: {tmp_path} is not a model repository: no folder in it has a config.pbtxt." in done.stderr


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_model_is_refused_with_the_file_it_lacks(tmp_path: Path, missing: str) -> None:
    folder = tmp_path / "mine"
    write_tiny_model(folder)
    (folder / missing).unlink()
    done = run(tmp_path, "up", "--port", str(free_port()), "--model", str(folder))
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {folder} is not a model folder: it has no ")
    assert missing.partition(".")[2] in done.stderr


def test_a_new_key_is_printed_once_with_the_line_that_lets_it_in(tmp_path: Path) -> None:
    done = run(tmp_path, "key", "alice@example")
    (key,) = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("gw-")]
    (line,) = [line for line in done.stdout.splitlines() if "hash" in line]
    file = tmp_path / "keys.yaml"
    file.write_text(f"keys:\n{line}\n")
    (read,) = read_keys(file)
    found = KeyRing((), (read,)).find(key.encode())
    assert found.caller.name == "alice@example"
    assert key not in line
    assert run(tmp_path, "key", "alice@example").stdout != done.stdout
    assert run(tmp_path, "key", "a b").returncode == 1


def test_versions_of_all_that_runs(tmp_path: Path) -> None:
    found = json.loads(run(tmp_path, "--version", "--json").stdout)
    assert found["gateway"] == importlib.metadata.version("triton-openai-gateway")
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"]["tritonclient"] == importlib.metadata.version("tritonclient")
    assert found["packages"]["tensorrt_llm"] is None
    assert "pytest" not in found["packages"]
    lines = run(tmp_path, "--version").stdout.splitlines()
    assert run(tmp_path, "version").stdout.splitlines() == lines
    assert lines[0] == f"gateway {found['gateway']}"
    assert "tensorrt_llm -" in lines
    assert f"tokenizers {found['packages']['tokenizers']}" in lines


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_a_settings_file_that_is_named_is_the_one_that_is_read(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "mine.yaml").write_text("serverr: {}\n")
    done = run(tmp_path, "serve", str(tmp_path / "mine.yaml"), *more, GATEWAY_CONFIG=str(tmp_path / "other.yaml"))
    assert done.returncode == 1
    assert str(tmp_path / "mine.yaml") in done.stderr
    assert "serverr" in done.stderr
    assert "other.yaml" not in done.stderr


def test_shells_complete_commands_and_options(tmp_path: Path) -> None:
    def completed(words: str, number: int) -> list[str]:
        told = {"_GATEWAY_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        return run(tmp_path, **told).stdout.split()

    assert completed("gateway ch", 1) == ["chat", "check"]
    assert completed("gateway chat --log", 2) == ["--logprobs"]
    assert completed("gateway engine pl", 2) == ["plan"]
    # The shell that asks is found out.
    told = f'eval "$({shlex.quote(str(GATEWAY))} --show-completion)" && complete -p gateway'
    done = subprocess.run(["bash", "-c", told], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "complete -o default -F _gateway_completion gateway\n"
