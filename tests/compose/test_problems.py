"""What a user reads when something is missing: what is wrong and what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from compose_project import Project, Run

from tests.tiny_model import write_tiny_model

HUB_PORT = 9377
TRITON_IMAGE = "triton-openai-gateway-triton-cpu:local"
HUB = Path(__file__).with_name("stand_in_hub.py")


@contextmanager
def hub_beside(project: Project, folder: Path) -> Iterator[Project]:
    """The project, with a stand-in for the Hugging Face hub in its network namespace."""
    enter = ["nsenter", "-t", str(project.inspect("net")["State"]["Pid"]), "-n"]
    process = subprocess.Popen([*enter, sys.executable, str(HUB), str(HUB_PORT), str(folder)])
    project.wait(lambda: project.inside("curl", "-s", f"http://127.0.0.1:{HUB_PORT}/").code == 0, 20)
    yield replace(project, env={**project.env, "HF_ENDPOINT": f"http://127.0.0.1:{HUB_PORT}"})
    process.terminate()
    process.wait(10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of every model that the hub has."""
    made = tmp_path_factory.mktemp("hub") / "model"
    write_tiny_model(made)
    return made


@pytest.fixture(scope="module")
def hub(up: Project, folder: Path) -> Iterator[Project]:
    """The GPU profile's project, next to the hub."""
    with hub_beside(replace(up, profiles=("gpu",)), folder) as project:
        yield project


@pytest.fixture(scope="module")
def gpu(up: Project, folder: Path) -> Iterator[Project]:
    """The GPU profile with the reference engine, as a project of its own with the hub; not yet up."""
    project = replace(up, name=f"{up.name}-gpu", profiles=("gpu",), files=(*up.files, "docker/ci/compose.no-gpu.yml"))
    try:
        project.compose("up", "--detach", "net")
        with hub_beside(project, folder) as beside:
            yield beside
    finally:
        project.compose("down", "--volumes", "--timeout", "1")
    assert up.engine.leftovers(f"com.docker.compose.project={project.name}") == []


def model(project: Project, **env: str) -> Run:
    """Run the service `model` on a volume of its own."""
    mount = f"{project.name}_models-under-test:/models"
    options = ("--rm", "--no-deps", "-T", "--volume", mount)
    return replace(project, env=project.env | env).compose("run", *options, "model", check=False)


@pytest.fixture(autouse=True)
def _fresh_volume(hub: Project) -> Iterator[None]:
    yield
    hub.engine.docker("volume", "rm", f"{hub.name}_models-under-test", check=False)


def test_an_ungated_model_is_fetched_once(hub: Project) -> None:
    assert "tests/open is ready." in model(hub, MODEL="tests/open").out
    again = model(hub, MODEL="tests/open", HF_ENDPOINT="http://127.0.0.1:9")
    assert (again.code, again.out.strip()) == (0, "tests/open is ready.")  # nothing is listening there


def readable(folder: Path) -> None:
    """Let the container's user reach what is in a folder."""
    for parent in (folder, *list(folder.parents)[:-1]):
        parent.chmod(parent.stat().st_mode | 0o001)


def token_file(folder: Path, token: str) -> str:
    """A secret's file that the container's user may read."""
    readable(folder)
    (folder / "token").write_text(token + "\n")
    return str(folder / "token")


def test_a_gated_model_with_its_token(hub: Project, tmp_path: Path) -> None:
    run = model(hub, MODEL="tests/gated", HF_TOKEN_FILE=token_file(tmp_path, "open-sesame"))
    assert (run.code, "tests/gated is ready." in run.out) == (0, True), run.err
    assert "open-sesame" not in run.out + run.err


def test_a_wrong_token(hub: Project, tmp_path: Path) -> None:
    run = model(hub, MODEL="tests/gated", HF_TOKEN_FILE=token_file(tmp_path, "closed"))
    assert (run.code, "the token in HF_TOKEN_FILE has no access to it" in run.err) == (1, True), run.err


def test_a_token_that_only_root_may_read(hub: Project, tmp_path: Path) -> None:
    secret = Path(token_file(tmp_path, "open-sesame"))
    secret.chmod(0o600)
    run = model(hub, MODEL="tests/gated", HF_TOKEN_FILE=str(secret))
    assert run.code == 1
    assert "a file that the container's user 1000 may read" in run.err


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"MODEL": "tests/open", "MODEL_REVISION": "v9"}, "has no revision v9. Correct MODEL_REVISION"),
        ({"MODEL": "../etc"}, "is not a Hugging Face id (owner/name). For a folder of this machine set MODEL_DIR"),
        ({"MODEL": "tests/huge"}, "Too little disk space for tests/huge"),
        ({"MODEL": "tests/open", "HF_ENDPOINT": "http://127.0.0.1:9"}, "Check this machine's network"),
        ({"MODEL": "tests/open", "MAX_SEQ_LEN": "many"}, "Set MAX_SEQ_LEN in .env to a number"),
    ],
)
def test_a_model_that_cannot_be_had(hub: Project, env: dict[str, str], words: str) -> None:
    run = model(hub, **env)
    assert (run.code, words in run.err, "Traceback" in run.err) == (1, True, False), run.err


def test_a_local_folder_that_is_no_model(hub: Project, tmp_path: Path) -> None:
    run = model(hub, MODEL_DIR=str(tmp_path))
    assert run.code == 1
    assert f"MODEL_DIR={tmp_path}: no readable config.json there" in run.err


def test_a_local_folder(hub: Project, tmp_path: Path) -> None:
    readable(tmp_path)
    write_tiny_model(tmp_path / "my-llama")
    run = model(hub, MODEL_DIR=str(tmp_path / "my-llama"))
    assert (run.code, run.out.strip()) == (0, "my-llama is ready."), run.err


def test_a_disk_that_is_too_small(hub: Project) -> None:
    volume = f"{hub.name}_models-under-test"
    size = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=size=8m,uid=1000")
    hub.engine.docker("volume", "create", *size, volume)
    run = model(hub, MODEL="tests/open")
    assert run.code == 1
    assert "Too little disk space for tests/open in the volume at /models." in run.err
    assert "It needs 0.5 GiB, 0.0 are free." in run.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests/none", "Hugging Face has no model tests/none"),
        ("tests/gated", "tests/gated is gated, and no token was given. Accept its terms on"),
    ],
)
def test_up_stops_at_a_model_that_cannot_be_had_and_says_why(gpu: Project, name: str, words: str) -> None:
    run = gpu.compose("up", check=False, MODEL=name)
    assert run.code != 0
    assert 'service "model" didn\'t complete successfully: exit 1' in run.err
    # In the terminal of who does not detach, and in the logs for who does.
    for said in (run.out + run.err, gpu.compose("logs", "model", MODEL=name).out):
        assert words in " ".join(re.sub(r"(?m)^model-1 *\| ", "", said).split())


def test_the_gpu_profile_serves_what_the_hub_has_and_says_why_an_engine_does_not_load(
    gpu: Project, folder: Path, tmp_path: Path
) -> None:
    up = ("up", "--detach", "--wait", "--wait-timeout", "60")
    gpu.compose(*up, MODEL="tests/open")
    status, body = gpu.get("/v1/models")
    assert (status, [entry["id"] for entry in json.loads(body)["data"]]) == (200, ["tests/open"])

    readable(tmp_path)
    broken = shutil.copytree(folder, tmp_path / "mamba")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}))
    run = gpu.compose(*up, check=False, MODEL_DIR=str(broken))
    assert run.code != 0
    assert gpu.container("triton") in run.err
    log = gpu.compose("logs", "--no-color", "triton", MODEL_DIR=str(broken)).out
    assert "failed to load 'tensorrt_llm'" in log
    assert "MambaForCausalLM" in log


def test_a_port_that_something_else_has(up: Project) -> None:
    run = up.compose("run", "--rm", "--no-deps", "-T", "gateway", check=False)
    assert run.code != 0
    assert "Cannot listen on 0.0.0.0 port 9000 (Address already in use)" in run.out + run.err
    assert "Traceback" not in run.out + run.err


def triton(project: Project, *options: str) -> Run:
    engine, name = project.engine, TRITON_IMAGE
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", *options, name],
        env=dict(engine.env), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return Run(done.returncode, done.stdout, done.stderr, 0)


def test_triton_without_shared_memory_models_or_gpu(hub: Project) -> None:
    run = triton(hub, "--shm-size", "16m", "--env", "TRITON_ENGINE=llmapi")
    assert run.code == 1
    assert "/dev/shm has 16 MiB" in run.err
    assert "Set TRITON_SHM_SIZE=1g in .env" in run.err
    assert "No models at /triton_repo" in run.err
    assert "Install NVIDIA's driver and the NVIDIA Container Toolkit" in run.err


def test_docker_names_a_missing_gpu_runtime_in_the_words_that_the_docs_explain(hub: Project) -> None:
    words = 'could not select device driver "nvidia" with capabilities: [[gpu]]'
    run = hub.compose("run", "--rm", "--no-deps", "-T", "triton", check=False, TRITON_IMAGE=TRITON_IMAGE)
    assert (run.code != 0, words in run.err) == (True, True), run.err
    assert words in (Path(__file__).parents[2] / "docs/how-to/deploy-compose.md").read_text()
