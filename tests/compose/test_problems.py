"""What a user reads when something is missing: what is wrong and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from compose_project import Project, Run

from gateway.deployment.tiny_model import write_tiny_model

HUB_PORT = 9377
TRITON_IMAGE = "triton-openai-gateway-triton-cpu:local"
HUB = Path(__file__).with_name("stand_in_hub.py")


@pytest.fixture(scope="module")
def hub(up: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The GPU profile's project, next to a stand-in for the Hugging Face hub."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    write_tiny_model(folder)
    enter = ["nsenter", "-t", str(up.inspect("net")["State"]["Pid"]), "-n"]
    process = subprocess.Popen([*enter, sys.executable, str(HUB), str(HUB_PORT), str(folder)])
    up.wait(lambda: up.inside("curl", "-s", f"http://127.0.0.1:{HUB_PORT}/").code == 0, 20)
    yield replace(up, profiles=("gpu",), env={**up.env, "HF_ENDPOINT": f"http://127.0.0.1:{HUB_PORT}"})
    process.terminate()
    process.wait(10)


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


def test_a_gated_model_without_a_token(hub: Project) -> None:
    run = model(hub, MODEL="tests/gated")
    assert run.code == 1
    assert "tests/gated is gated, and no token was given. Accept its terms" in run.err
    assert "Traceback" not in run.err


def token_file(folder: Path, token: str) -> str:
    """A secret's file that the container's user may read."""
    for parent in (folder, *list(folder.parents)[:-1]):
        parent.chmod(parent.stat().st_mode | 0o001)
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
        ({"MODEL": "tests/none"}, "Hugging Face has no model tests/none"),
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
    for parent in (tmp_path, *list(tmp_path.parents)[:-1]):
        parent.chmod(parent.stat().st_mode | 0o001)
    write_tiny_model(tmp_path / "my-llama")
    run = model(hub, MODEL_DIR=str(tmp_path / "my-llama"))
    assert (run.code, run.out.strip()) == (0, "my-llama is ready."), run.err


def test_up_stops_at_a_model_that_cannot_be_had_and_its_log_says_why(hub: Project) -> None:
    other = replace(hub, name=f"{hub.name}-gpu", env=hub.env | {"MODEL": "no/such/id", "TRITON_IMAGE": TRITON_IMAGE})
    try:
        run = other.compose("up", "--detach", check=False)
        assert run.code != 0
        assert 'service "model" didn\'t complete successfully: exit 1' in run.err
        assert "MODEL=no/such/id is not a Hugging Face id" in other.logs()
    finally:
        other.compose("down", "--volumes", "--timeout", "1")
    assert hub.engine.leftovers(f"com.docker.compose.project={other.name}") == []


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
    assert words in (Path(__file__).parents[2] / "docs/deploy-compose.md").read_text()


def test_no_key_is_said_loudly(up: Project) -> None:
    assert 'The \\"GATEWAY_API_KEYS\\" variable is not set' in up.compose("config", "--quiet").err
    assert "no API keys are set (GATEWAY_API_KEYS)" in up.engine.docker("logs", up.container("gateway")) + up.logs()
