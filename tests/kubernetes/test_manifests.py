"""The manifests: valid, in agreement with each other, with the gateway and with what the documents promise."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import promql_parser
import pytest
import yaml

from gateway.api.operations import OPEN_PATHS
from gateway.settings import ConfigError, Settings, TimeoutSettings, load_settings
from gateway.telemetry.slim_page import EngineLoad, load_families
from gateway_ops.repository.launch_script import launch_script
from tests.app.harness import gateway
from tests.app.scripted import write_tokenizer
from tests.kubernetes import manifests as kustomize
from tests.kubernetes.manifests import CUSTOM, FOLDER, OVERLAYS, ROOT, check_schemas, gateways, only, pods, rendered
from tests.telemetry.test_dashboard import LABELS
from tools import monitoring_manifests

TRITON_PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}  # Triton's defaults


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_manifests_fit_their_schemas(overlay: str) -> None:
    for manifest in rendered(overlay):
        check_schemas(manifest)
    for pod in pods(overlay):
        metadata = {"name": "a", "labels": pod.labels}
        check_schemas({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec})
    assert len(rendered(overlay)) > 5


def test_a_mistake_in_a_manifest_is_found() -> None:
    pool = only("pool", "InferencePool", "llm")["spec"]
    for wrong in ({**pool, "targetPorts": [{"number": 70000}]}, {**pool, "port": 1}, {"selector": pool["selector"]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, CUSTOM["InferencePool"]["spec"])
    deployment = only("pool", "Deployment", "llm")
    with pytest.raises(kubernetes_validate.ValidationError):
        check_schemas({**deployment, "spec": {**deployment["spec"], "replica": 2}})


def test_rules_in_cel_hold() -> None:
    """Those of x-kubernetes-validations in the sources of custom_kinds.yaml that are about what the manifests have."""
    pool = only("pool", "InferencePool", "llm")["spec"]
    numbers = [port["number"] for port in pool["targetPorts"]]
    assert "port" in pool["endpointPickerRef"]  # required where the kind is Service
    assert len(set(numbers)) == len(numbers)
    for rule in only("pool", "HTTPRoute", "llm")["spec"]["rules"]:
        assert all(ref["kind"] != "Service" or "port" in ref for ref in rule["backendRefs"])
        assert "backendRequest" not in rule["timeouts"]
    for manifest in rendered("fleet"):
        if manifest["kind"] == "ScaledObject":
            assert manifest["spec"]["minReplicaCount"] <= manifest["spec"]["maxReplicaCount"]


def test_the_gateway_takes_its_settings(overlay: str, tmp_path: Path) -> None:
    container = gateways(overlay).containers()["gateway"]
    settings = settings_of(overlay, tmp_path)
    assert settings.server.internal_port == port_of(container, "internal")
    assert settings.server.metrics_shown == "slim"
    assert settings.asks_for_keys
    assert settings.state.store == "none"  # nothing is writable but /tmp, and pods come and go
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(kustomize.environment(container)["GATEWAY_CONFIG"]).parent) in mounts


def settings_of(overlay: str, folder: Path) -> Settings:
    """The settings as the gateway reads them, with its container's variables."""
    container = gateways(overlay).containers()["gateway"]
    path = folder / "gateway.yaml"
    path.write_text(kustomize.settings_text(overlay))
    env = kustomize.environment(container) | {"GATEWAY_CONFIG": str(path)}
    return load_settings(path, env)


def port_of(container: kustomize.Manifest, name: str) -> int:
    """The number of a container's port."""
    (port,) = [port["containerPort"] for port in container["ports"] if port["name"] == name]
    return int(port)


async def test_probes_ask_for_what_there_is(overlay: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    container = gateways(overlay).containers()["gateway"]
    async with gateway(tmp_path) as running:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container[name]["httpGet"]
            assert probe["port"] == "internal"  # without TLS and keys
            assert (await running.client.get(probe["path"])).status_code == 200
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"  # must not ask for Triton


def test_times_are_those_of_the_documents(overlay: str, tmp_path: Path) -> None:
    pod = gateways(overlay)
    server = settings_of(overlay, tmp_path).server
    needed = (server.lame_duck_s, server.shutdown_s, *_rows()["a Service (kube-proxy)"][1:3])
    assert needed[:2] == needed[2:]
    triton = pod.containers().get("triton")
    its_exit = exit_timeout(triton) if triton else 0
    total = server.lame_duck_s + server.shutdown_s + 15 + its_exit + 5
    assert pod.spec["terminationGracePeriodSeconds"] == total
    if triton:
        assert total == _rows()["a Service (kube-proxy)"][3]
        assert (triton["restartPolicy"], its_exit) == ("Always", 30)
    for behind in pods(overlay):
        if behind.owner == "Deployment/triton":
            before = behind.containers()["triton"]["lifecycle"]["preStop"]["sleep"]["seconds"]
            own = exit_timeout(behind.containers()["triton"])
            assert own >= server.shutdown_s
            assert behind.spec["terminationGracePeriodSeconds"] == before + own + 5
        if behind.owner.endswith("workerTemplate"):
            *script, before = behind.containers()["ranks"]["lifecycle"]["preStop"]["exec"]["command"]
            assert script == ["sh", "/scripts/stop.sh"]
            assert total <= int(before) < behind.spec["terminationGracePeriodSeconds"]


def _rows() -> dict[str, list[int]]:
    """The table of docs/explanation/reliability.md: preStop, lame_duck_s, shutdown_s, grace."""
    page = (ROOT / "docs" / "explanation" / "reliability.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    return {name: [int(number) for number in numbers] for name, *numbers in rows}


def exit_timeout(triton: kustomize.Manifest) -> int:
    """Of Triton's command line, or of the script that is its command."""
    line = " ".join(triton.get("args", ()))
    if "leader.sh" in " ".join(triton["command"]):
        line = only("multi-node", "ConfigMap", "ranks")["data"]["leader.sh"]
    found = re.search(r"--exit-timeout-secs=(\d+)", line)
    assert found
    return int(found[1])


def test_containers_are_as_hardened_as_in_compose(overlay: str) -> None:
    for pod in pods(overlay):
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] >= 1000
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        # With the rest: the Pod Security Standard `restricted`.
        kinds = {kind for volume in pod.spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()
        if "picker" not in pod.owner:
            assert pod.spec["automountServiceAccountToken"] is False
        for container in pod.containers().values():
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert "memory" in container["resources"]["limits"]
            writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
            volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
            for mount in container["volumeMounts"]:
                assert mount.get("readOnly") or "emptyDir" in volumes[mount["name"]]
            assert writable <= {"/tmp", "/cache", "/dev/shm"}


def test_images_are_those_that_the_project_has_or_runs_on(overlay: str) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    known = {compose["gateway"]["image"], compose["triton"]["image"].removeprefix("${TRITON_IMAGE:-").removesuffix("}")}
    (derived,) = re.findall(r"TRITON_IMAGE=(\S+)", (FOLDER / "multi-node" / "Dockerfile").read_text())
    assert derived in known
    for pod in pods(overlay):
        for name, container in pod.containers().items():
            if name == "picker":
                assert container["image"].endswith(":v0.10.0")  # whose rules tests/kubernetes/picker.py has
            elif overlay == "multi-node" and name != "gateway":
                assert container["image"].startswith("tritonserver-ssh:")
            else:
                assert container["image"] in known


def test_everything_that_is_named_is_there(overlay: str) -> None:
    manifests = {(each["kind"], each["metadata"]["name"]) for each in rendered(overlay)}
    for pod in pods(overlay):
        for volume in pod.spec["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in manifests
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in manifests
        names = {volume["name"] for volume in pod.spec["volumes"]}
        for container in pod.containers().values():
            assert {mount["name"] for mount in container["volumeMounts"]} <= names


def test_everything_that_selects_finds_something(overlay: str) -> None:
    every = list(pods(overlay))
    owners = {pod.owner for pod in every}
    for manifest in rendered(overlay):
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Service":
            (pod,) = [pod for pod in every if spec["selector"].items() <= pod.labels.items()]
            assert {port["targetPort"] for port in spec["ports"]} <= port_names(pod)
        elif manifest["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"}:
            assert f"Deployment/{spec['scaleTargetRef']['name']}" in owners
            assert "replicas" not in only(overlay, "Deployment", spec["scaleTargetRef"]["name"])["spec"]
        elif manifest["kind"] == "PodDisruptionBudget":
            assert any(spec["selector"]["matchLabels"].items() <= pod.labels.items() for pod in every)
        elif manifest["kind"] == "PodMonitor":
            for pod in every:
                if spec["selector"]["matchLabels"].items() <= pod.labels.items():
                    assert {each["port"] for each in spec["podMetricsEndpoints"]} <= port_names(pod)
                    assert spec["jobLabel"] in pod.labels


def port_names(pod: kustomize.Pod) -> set[str]:
    """The names of a pod's ports."""
    return {port["name"] for container in pod.containers().values() for port in container.get("ports", ())}


@pytest.mark.parametrize("overlay", ["pool", "pool-llmapi", "multi-node"])
def test_the_pool_finds_the_gateways_and_no_other_pods(overlay: str) -> None:
    pool = only(overlay, "InferencePool", "llm")["spec"]
    selected = [pod for pod in pods(overlay) if pool["selector"]["matchLabels"].items() <= pod.labels.items()]
    assert [pod.owner for pod in selected] == [gateways(overlay).owner]
    assert pool["targetPorts"] == [{"number": port_of(selected[0].containers()["gateway"], "http")}]
    reference = pool["endpointPickerRef"]
    service = only(overlay, "Service", reference["name"])["spec"]
    assert reference["port"]["number"] in {port["port"] for port in service["ports"]}
    assert (
        "--pool-name=llm" in only(overlay, "Deployment", "picker")["spec"]["template"]["spec"]["containers"][0]["args"]
    )
    (rule,) = only(overlay, "HTTPRoute", "llm")["spec"]["rules"]
    assert int(rule["timeouts"]["request"].removesuffix("s")) > TimeoutSettings().total_s


@pytest.mark.parametrize("overlay", [each for each in OVERLAYS if each != "gateway-only"])
def test_triton_is_where_the_gateway_looks_and_closed_to_others(overlay: str, tmp_path: Path) -> None:
    triton = settings_of(overlay, tmp_path).models[0].triton
    policies = {each["metadata"]["name"]: each["spec"] for each in rendered(overlay) if each["kind"] == "NetworkPolicy"}
    if triton.url is not None:
        assert (triton.url, triton.metrics_url) == ("127.0.0.1:8001", "http://127.0.0.1:8002/metrics")
        container = gateways(overlay).containers()["triton"]
        line = " ".join(container.get("args", ()))
        if overlay == "multi-node":
            line = only(overlay, "ConfigMap", "ranks")["data"]["leader.sh"]
        assert all(f"--{service}-address=127.0.0.1" in line for service in TRITON_PORTS)
        assert "ports" not in container
        reachable = {port["port"] for rule in policies["llm"]["ingress"] for port in rule["ports"]}
        assert reachable == {"http", "internal"}
    else:
        (address,) = triton.endpoints
        host, _, number = address.removeprefix("dns:///").partition(":")
        service = only(overlay, "Service", host)["spec"]
        assert service["clusterIP"] == "None"
        assert int(number) in {port["port"] for port in service["ports"]}
        (pod,) = [pod for pod in pods(overlay) if pod.owner == "Deployment/triton"]
        assert {port["name"]: port["containerPort"] for port in pod.containers()["triton"]["ports"]} == TRITON_PORTS
        for rule in policies["triton"]["ingress"]:
            assert "from" in rule
            assert {"port": "http"} not in rule["ports"]
        assert policies["triton"]["egress"] == []


def test_scaling_asks_for_metrics_that_there_are(overlay: str) -> None:
    own = set(re.findall(r"^(gateway_\w+) ", load_families({}, EngineLoad()), re.MULTILINE))  # without labels
    for manifest in rendered(overlay):
        if manifest["kind"] == "HorizontalPodAutoscaler":
            pods_metrics = {each["pods"]["metric"]["name"] for each in manifest["spec"]["metrics"] if "pods" in each}
            resources = {each["resource"]["name"] for each in manifest["spec"]["metrics"] if "resource" in each}
            assert pods_metrics in (own, set())
            assert pods_metrics or resources
            assert resources <= gateways(overlay).containers()["gateway"]["resources"]["requests"].keys()
        if manifest["kind"] == "ScaledObject":
            for trigger in manifest["spec"]["triggers"]:
                assert trigger["type"] == "prometheus"
                promql_parser.parse(trigger["metadata"]["query"])
                (name,) = re.findall(r"gateway_\w+", trigger["metadata"]["query"])
                assert name in LABELS
                assert f'namespace="{manifest["metadata"]["namespace"]}"' in trigger["metadata"]["query"]
                assert float(trigger["metadata"]["threshold"]) > 0
                assert trigger["metadata"]["ignoreNullValues"] == "false"  # else a Prometheus without data scales in


def test_pods_find_each_other_by_name(overlay: str) -> None:
    """A LeaderWorkerSet's headless Service is not made where another has its name; names are asked of DNS by egress."""
    services = {each["metadata"]["name"] for each in rendered(overlay) if each["kind"] == "Service"}
    groups = {each["metadata"]["name"] for each in rendered(overlay) if each["kind"] == "LeaderWorkerSet"}
    assert not services & groups
    if groups or "dns:" in kustomize.settings_text(overlay):
        rules = [
            rule
            for each in rendered(overlay)
            if each["kind"] == "NetworkPolicy"
            for rule in each["spec"]["egress"]
            if {"port": 53, "protocol": "UDP"} in rule.get("ports", ())
        ]
        assert len(rules) == 1
        assert {"ipBlock": {"cidr": "169.254.20.10/32"}} in rules[0]["to"]  # a cache on the node


@pytest.mark.parametrize("component", ["istio", "gke"])
def test_components_for_a_gateway_s_implementation_fit_the_pool(component: str, tmp_path: Path) -> None:
    components = [f"../../components/{each}" for each in ("inference-pool", component)]
    for folder in ("sidecar", "common", "components"):
        shutil.copytree(FOLDER / folder, tmp_path / folder)
    overlay = tmp_path / "overlays" / "own"
    overlay.mkdir(parents=True)
    text = {"namespace": "llm", "resources": ["../../sidecar"], "components": components}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(text))
    manifests = {(each["kind"], each["metadata"]["name"]): each for each in kustomize.render(overlay)}
    for manifest in manifests.values():
        check_schemas(manifest)
        if (target := manifest.get("spec", {}).get("targetRef")) is not None:
            assert (target["kind"], target["name"]) in manifests
    (rule,) = manifests["HTTPRoute", "llm"]["spec"]["rules"]
    if component == "istio":
        service = manifests["DestinationRule", "picker"]["spec"]["host"].removesuffix(".llm.svc.cluster.local")
        assert ("Service", service) in manifests
    else:
        assert "timeouts" not in rule
        policy = manifests["HealthCheckPolicy", "llm"]["spec"]["default"]["config"]["httpHealthCheck"]
        assert policy["port"] == manifests["InferencePool", "llm"]["spec"]["targetPorts"][0]["number"]
        assert policy["requestPath"] in OPEN_PATHS
        assert manifests["GCPBackendPolicy", "llm"]["spec"]["default"]["timeoutSec"] > TimeoutSettings().total_s


def test_the_loader_writes_to_the_volume_of_the_models() -> None:
    loader = yaml.safe_load((FOLDER / "loader.yaml").read_text())
    check_schemas(loader)
    (claim,) = [each["persistentVolumeClaim"]["claimName"] for each in loader["spec"]["volumes"]]
    assert only("pool", "PersistentVolumeClaim", claim)
    (container,) = loader["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "models", "mountPath": "/models"}]
    user = gateways("pool").spec["securityContext"]
    assert loader["spec"]["securityContext"] == user  # who writes is who reads


def test_gateways_before_a_triton_that_exists_need_nothing_else(tmp_path: Path) -> None:
    kinds = {each["kind"] for each in rendered("gateway-only")}
    assert kinds >= {
        "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "PodDisruptionBudget", "Secret",
        "Service",
    }  # fmt: skip
    assert kinds & CUSTOM.keys() == set()
    assert [pod.owner for pod in pods("gateway-only")] == ["Deployment/gateway"]
    (model,) = settings_of("gateway-only", tmp_path).models
    assert (str(model.tokenizer), model.max_seq_len) == ("/models/tokenizer", 8192)


def test_the_secret_as_it_comes_starts_no_open_gateway(tmp_path: Path) -> None:
    (variable,) = [
        each for each in gateways("gateway-only").containers()["gateway"]["env"] if each["name"] == "GATEWAY_API_KEYS"
    ]
    reference = variable["valueFrom"]["secretKeyRef"]
    keys = only("gateway-only", "Secret", reference["name"])["stringData"]
    path = tmp_path / "gateway.yaml"
    path.write_text(kustomize.settings_text("gateway-only"))
    with pytest.raises(ConfigError, match="must contain a key"):
        load_settings(path, {"GATEWAY_API_KEYS": keys[reference["key"]]})


def test_alerts_and_the_dashboard_are_those_of_prometheus_and_grafana() -> None:
    for file, content in monitoring_manifests.documents().items():
        assert file.read_text(encoding="utf-8") == content
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text())
    assert only("fleet", "PrometheusRule", "gateway")["spec"] == rules
    dashboard = (ROOT / "deploy" / "grafana" / "dashboards" / "gateway.json").read_text()
    assert json.loads(only("fleet", "ConfigMap", "gateway-dashboard")["data"]["gateway.json"]) == json.loads(dashboard)


def test_an_engine_over_nodes_has_a_rank_for_each_gpu() -> None:
    spec = only("multi-node", "LeaderWorkerSet", "engine")["spec"]["leaderWorkerTemplate"]
    leader, worker = (pod.containers() for pod in pods("multi-node") if pod.owner.startswith("LeaderWorkerSet"))
    gpus = leader["triton"]["resources"]["limits"]["nvidia.com/gpu"]
    assert worker["ranks"]["resources"]["limits"]["nvidia.com/gpu"] == gpus
    assert leader["triton"]["command"] == ["sh", "/scripts/leader.sh", str(gpus)]
    assert spec["size"] == 2


MPIRUN = """#!/bin/sh
printf '%s\\n' "$@" > "$LOG"
while [ "$1" != sh ]; do shift; done
shift 2
for rank in 0 9; do OMPI_COMM_WORLD_RANK=$rank sh "$REPOSITORY/launch.sh" "$@" >> "$LOG"; done
"""


def test_the_leader_starts_a_rank_for_each_gpu_of_the_group(tmp_path: Path) -> None:
    """Through stand-ins for mpirun, ssh and tritonserver; nothing of the real ones was run with it."""
    scripts = only("multi-node", "ConfigMap", "ranks")["data"]
    (tmp_path / "key").mkdir()
    (tmp_path / "key" / "id_ed25519").write_text("secret")
    (tmp_path / "key" / "id_ed25519.pub").write_text("ssh-ed25519 AAAA someone@somewhere\n")
    for name, text in {
        "mpirun": MPIRUN,
        "ssh": '#!/bin/sh\nfor last; do :; done\necho "$@" >> "$SSH_LOG"\n',
        "tritonserver": '#!/bin/sh\necho "tritonserver $*"\n',
    }.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    for name, text in scripts.items():
        here = text.replace("/tmp/", f"{tmp_path}/").replace("/etc/mpi-ssh", str(tmp_path / "key"))
        (tmp_path / name).write_text(here)
    settings = load_settings(ROOT / "examples" / "deployments" / "llama3-405b-two-nodes.yaml", {})
    deployments = [each.model_copy(update={"prefix": "mine_"}) for each in settings.deployments]
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "launch.sh").write_text(launch_script(deployments))
    env = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin", "LOG": str(tmp_path / "log"), "SSH_LOG": str(tmp_path / "ssh.log"),
        "REPOSITORY": str(tmp_path / "repository"),
        "LWS_LEADER_ADDRESS": "engine-0.engine.space",
        "LWS_GROUP_SIZE": "3",
    }  # fmt: skip
    subprocess.run(["sh", tmp_path / "leader.sh", "8"], env=env, check=True, timeout=30)
    log = (tmp_path / "log").read_text().splitlines()
    assert log[:2] == ["-np", "24"]
    assert log[log.index("sh") + 1] == "/models/repository/launch.sh"
    assert (tmp_path / "hosts").read_text().splitlines() == [
        "localhost slots=8", "engine-0-1.engine.space slots=8", "engine-0-2.engine.space slots=8",
    ]  # fmt: skip
    assert [line.split()[-2:] for line in (tmp_path / "ssh.log").read_text().splitlines()] == [
        ["engine-0-1.engine.space", "true"], ["engine-0-2.engine.space", "true"],
    ]  # fmt: skip
    assert (tmp_path / "ssh" / "known_hosts").read_text() == "* ssh-ed25519 AAAA\n"
    assert (tmp_path / "ssh" / "id_ed25519").stat().st_mode & 0o777 == 0o600
    first, other = [line for line in log if line.startswith("tritonserver")]
    assert "--grpc-address=127.0.0.1" in first
    assert "shm-region-prefix-name=prefix0_" in first
    assert "--allow-grpc=false" in other
    assert "shm-region-prefix-name=prefix9_" in other
    assert "--load-model=mine_tensorrt_llm" in other


@pytest.mark.parametrize(
    ("daemon", "seconds", "slept"), [("orted", 9, 2), ("prted", 9, 2), ("sshd", 9, 0), ("orted", 1, 1)]
)
def test_a_worker_ends_once_its_ranks_have(tmp_path: Path, daemon: str, seconds: int, slept: int) -> None:
    """Through a stand-in for sleep, after whose second call no daemon of Open MPI is there any more."""
    for process, name in (("1", "sshd"), ("7", daemon)):
        (tmp_path / process).mkdir()
        (tmp_path / process / "comm").write_text(f"{name}\n")
    sleep = tmp_path / "bin" / "sleep"
    sleep.parent.mkdir()
    log = tmp_path / "log"
    sleep.write_text(f'#!/bin/sh\necho "$1" >> {log}\n[ "$(wc -l < {log})" -lt 2 ] || rm -r {tmp_path}/7\n')
    sleep.chmod(0o755)
    log.touch()
    text = only("multi-node", "ConfigMap", "ranks")["data"]["stop.sh"].replace("/proc/", f"{tmp_path}/")
    env = {"PATH": f"{sleep.parent}:/usr/bin:/bin"}
    subprocess.run(["sh", "-s", str(seconds)], input=text, text=True, env=env, check=True, timeout=30)
    assert log.read_text().splitlines() == ["1"] * slept


def test_scripts_are_posix_shell() -> None:
    scripts: dict[str, Any] = only("multi-node", "ConfigMap", "ranks")["data"]
    for text in scripts.values():
        assert text.startswith("#!/bin/sh\n")
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
