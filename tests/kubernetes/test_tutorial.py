"""The overlay of docs/tutorials/production-on-kubernetes.md: rendered, valid, and taken by the gateway."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.http.access.key_ring import named_keys
from gateway.settings import Settings, TimeoutSettings, load_settings
from tests.kubernetes.manifests import CUSTOM, FOLDER, ROOT, Manifest, check_schemas, render

KEYS = "named-keys"
_CHECKOUT = "triton-openai-gateway"


def block(page: str, words: str) -> str:
    """The one block of YAML of a page of docs/ that has these words."""
    every = re.findall(r"(?ms)^```yaml\n(.*?)^```$", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    (found,) = [each for each in every if words in each]
    return found


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The folder of the tutorial beside a checkout."""
    shutil.copytree(FOLDER, tmp_path / _CHECKOUT / "deploy" / "kubernetes")
    folder = tmp_path / "llm"
    folder.mkdir()
    for name, words in {
        "kustomization.yaml": "configMapGenerator",
        "gateway.yaml": "metrics_url",
        "keys.yaml": "hash:",
    }.items():
        (folder / name).write_text(block("tutorials/production-on-kubernetes.md", words))
    return folder


def by_name(folder: Path, **more: list[Any]) -> dict[tuple[str, str], Manifest]:
    """The manifests of a folder, valid as far as schemas of them are here, with more in lists of its overlay."""
    if more:
        text: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
        more = {name: [*text.get(name, ()), *added] for name, added in more.items()}
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(text | more))
    found = render(folder)
    for manifest in found:
        check_schemas(manifest)
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def settings_of(pod: Manifest, folder: Path) -> Settings:
    """The settings of the gateway in a pod, with the folder's files in place of the mounted ones."""
    (container,) = pod["containers"]
    env = {each["name"]: each.get("value", "a secret") for each in container["env"]}
    assert "GATEWAY_API_KEYS" not in env
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    (secret,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == KEYS)
    assert secret["secretName"] == "gateway-named-keys"
    assert env["GATEWAY_KEYS_FILE"] == f"{mounts[KEYS]['mountPath']}/keys.yaml"
    return load_settings(folder / "gateway.yaml", env | {"GATEWAY_KEYS_FILE": str(folder / "keys.yaml")})


def test_the_overlay_starts_with_a_file_of_keys_and_nothing_else(own: Path) -> None:
    manifests = by_name(own)
    assert {kind for kind, _ in manifests} & ({"Secret"} | CUSTOM.keys()) == set()
    pod = manifests["Deployment", "gateway"]["spec"]["template"]["spec"]
    settings = settings_of(pod, own)
    assert settings.asks_for_keys
    assert [key.name for key in named_keys(settings.auth)] == ["alice"]
    assert pod["containers"][0]["image"] == "REGISTRY/gateway:0.2.0"
    assert manifests["PersistentVolumeClaim", "models"]["spec"]["storageClassName"] == "your-class"
    assert manifests["ConfigMap", "gateway"]["data"]["gateway.yaml"] == (own / "gateway.yaml").read_text()


def test_alerts_and_a_route_can_be_added(own: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "production-on-kubernetes.md").read_text()
    (component,) = re.findall(r"add `\.\./(\S+)` to `components`", page)
    (labels,) = re.findall(r"`labels: (\[.*?\])`", (ROOT / "docs" / "how-to" / "kubernetes.md").read_text())
    (own / "route.yaml").write_text(block("tutorials/production-on-kubernetes.md", "HTTPRoute"))
    more = {"components": [f"../{component}"], "resources": ["route.yaml"], "labels": yaml.safe_load(labels)}
    manifests = by_name(own, **more)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert "release" in manifests[kind, "gateway"]["metadata"]["labels"]
    (rule,) = manifests["HTTPRoute", "llm"]["spec"]["rules"]
    (backend,) = rule["backendRefs"]
    assert backend["port"] in [port["port"] for port in manifests["Service", backend["name"]]["spec"]["ports"]]
    assert int(rule["timeouts"]["request"].removesuffix("s")) > TimeoutSettings().total_s


def test_the_ways_out_can_be_closed(own: Path) -> None:
    patches = yaml.safe_load(block("how-to/kubernetes.md", "/spec/egress"))
    policy = by_name(own, patches=patches)["NetworkPolicy", "llm"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    open_ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert open_ports == {8001, 8002, 53}  # of Triton and of the DNS


def test_a_certificate_and_a_redis_can_be_added(own: Path) -> None:
    patches = yaml.safe_load(block("tutorials/production-on-kubernetes.md", "GATEWAY_TLS_CERTIFICATE"))
    manifests = by_name(own, patches=patches)
    (port,) = manifests["Service", "llm"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "http")
    pod = manifests["Deployment", "gateway"]["spec"]["template"]["spec"]
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {KEYS: "gateway-named-keys", "tls": "llm-tls"}
    env = {each["name"]: each.get("value", "redis://localhost") for each in pod["containers"][0]["env"]}
    settings = load_settings(own / "gateway.yaml", env | {"GATEWAY_KEYS_FILE": str(own / "keys.yaml")})
    assert settings.server.tls is not None
    assert str(settings.server.tls.certificate) == "/tls/tls.crt"
    assert settings.auth.redis_url
    assert settings.auth.gateways == 2


@pytest.mark.parametrize("base", ["sidecar", "fleet", "multi-node"])
def test_every_shape_takes_keys_with_names(base: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "kubernetes")
    overlay = tmp_path / "kubernetes" / "own"
    overlay.mkdir()
    text = {"namespace": "llm", "resources": [f"../{base}"], "components": [f"../components/{KEYS}"]}
    (overlay / "kustomization.yaml").write_text(yaml.safe_dump(text))
    (spec,) = [
        each["spec"].get("leaderWorkerTemplate", {}).get("leaderTemplate") or each["spec"]["template"]
        for (kind, name), each in by_name(overlay).items()
        if kind in {"Deployment", "LeaderWorkerSet"} and name != "triton"
    ]
    (container,) = spec["spec"]["containers"]
    variables = {each["name"] for each in container["env"]}
    assert variables >= {"GATEWAY_KEYS_FILE", "GATEWAY_CONFIG", "GATEWAY_INTERNAL_PORT"}
    assert "GATEWAY_API_KEYS" not in variables
    assert KEYS in {volume["name"] for volume in spec["spec"]["volumes"]}


def test_files_that_the_tutorial_names_are_there() -> None:
    page = (ROOT / "docs" / "tutorials" / "production-on-kubernetes.md").read_text()
    named = set(re.findall(rf"\.\./{_CHECKOUT}/(\S+?)[\]\s`]", page))
    assert len(named) > 3
    assert [name for name in named if not (ROOT / name).exists()] == []
