"""The Helm chart: what Helm renders is what kustomize renders, its values are explained, and its example works."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import load_settings
from tests.kubernetes.manifests import FOLDER, Manifest, check_schemas, render
from tools import chart_values
from tools.chart_values import CHART

TEMPLATES = sorted((CHART / "templates").iterdir())
# Which folder of manifests has the shape of which files of values.
SHAPES = {
    "overlays/gateway-only": (),
    "sidecar": ("choices/sidecar.yaml",),
    "overlays/pool": ("choices/pool.yaml", "monitoring.yaml"),
    "overlays/pool-llmapi": ("choices/pool-llmapi.yaml", "monitoring.yaml"),
    "overlays/multi-node": ("choices/multi-node.yaml", "monitoring.yaml"),
}
Named = dict[tuple[str, str], Manifest]


def helm(*arguments: str | Path) -> str:
    """What Helm prints; the test is skipped where it is not installed."""
    if shutil.which("helm") is None:
        pytest.skip("helm is not installed: make build/programs-venv/bin/helm")
    done = subprocess.run(["helm", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def template(*files: str | Path, **values: str) -> Named:
    """The manifests of the chart with files of values and single values."""
    given = [word for file in files for word in ("--values", CHART / file)]
    given += [word for name, value in values.items() for word in ("--set-json", f"{name.replace('__', '.')}={value}")]
    return named(yaml.safe_load_all(helm("template", "llm", CHART, "--namespace", "llm", *given)))


def named(manifests: Any) -> Named:
    """Manifests by kind and name, without what Helm and kustomize add in other ways: namespaces and a label of all."""
    found = {}
    for each in manifests:
        metadata = {name: value for name, value in each["metadata"].items() if name != "namespace"}
        if metadata.get("annotations") == {"helm.sh/resource-policy": "keep"}:
            del metadata["annotations"]
        labels = {name: value for name, value in metadata.pop("labels", {}).items() if not name.endswith("/part-of")}
        each["metadata"] = metadata | ({"labels": labels} if labels else {})
        if "gateway.yaml" in each.get("data", {}):  # comments may differ
            each["data"]["gateway.yaml"] = yaml.safe_load(each["data"]["gateway.yaml"])
        found[each["kind"], each["metadata"]["name"]] = each
    return found


@pytest.mark.parametrize("folder", SHAPES)
def test_helm_renders_what_kustomize_renders(folder: str) -> None:
    keys = {"apiKeys": '","'} if folder == "overlays/gateway-only" else {}
    meant = named(render(FOLDER / folder))
    found = template(*SHAPES[folder], **keys)
    assert found.keys() == meant.keys()
    for name, manifest in meant.items():
        assert found[name] == manifest, name


def test_the_gateways_of_clouds_get_what_their_components_have() -> None:
    found = template("choices/pool.yaml", inferencePool__istio="true", inferencePool__gke="true")
    for file in ("istio/picker-tls.yaml", "gke/policies.yaml"):
        for name, manifest in named(yaml.safe_load_all((FOLDER / "components" / file).read_text())).items():
            assert found[name] == manifest
    (rule,) = found["HTTPRoute", "llm"]["spec"]["rules"]
    assert "timeouts" not in rule


def test_what_is_set_arrives() -> None:
    found = template(
        "choices/sidecar.yaml", apiKeys='"a,b: c"', gateway__env='[{"name": "A", "value": "1"}]', name='"mine"',
        models__storageClassName='"nfs"', gateway__egress='[{"ports": [{"port": 6379}]}]',
        monitoring__namespace='"prometheus"', monitoring__enabled="true", monitoring__labels='{"release": "stack"}',
        namedKeys='"mine"',
    )  # fmt: skip
    assert found["Secret", "gateway-keys"]["stringData"] == {"api-keys": "a,b: c"}
    pod = found["Deployment", "mine"]["spec"]["template"]
    variables = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert variables[-3:] == ["GATEWAY_API_KEYS", "GATEWAY_KEYS_FILE", "A"]  # given both, both are taken
    assert pod["metadata"]["labels"].items() >= found["Service", "mine"]["spec"]["selector"].items()
    assert found["PersistentVolumeClaim", "models"]["spec"]["storageClassName"] == "nfs"
    policy = found["NetworkPolicy", "mine"]["spec"]
    assert (policy["policyTypes"], policy["egress"]) == (["Ingress", "Egress"], [{"ports": [{"port": 6379}]}])
    assert "'prometheus'" in str(policy["ingress"])
    assert found["PodMonitor", "gateway"]["metadata"]["labels"] == {"release": "stack"}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The file of values that the chart's page shows."""
    (text,) = re.findall(r"(?ms)^```yaml\n(.*?)^```$", chart_values.PAGE.read_text(encoding="utf-8"))
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return file


def test_the_example_of_the_page_starts_with_a_file_of_keys_and_a_certificate(example: Path, tmp_path: Path) -> None:
    found = template(example)
    for name, manifest in found.items():
        if name != ("ConfigMap", "gateway"):  # whose text is parsed here
            check_schemas(manifest)
    assert ("Secret", "gateway-keys") not in found
    pod = found["Deployment", "gateway"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["imagePullSecrets"], container["image"]) == (
        [{"name": "your-secret"}], "registry.example.com/gateway:0.2.0",
    )  # fmt: skip
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    mounted = {each["mountPath"]: secrets.get(each["name"]) for each in container["volumeMounts"]}
    env = {each["name"]: each.get("value", "a secret") for each in container["env"]}
    assert "GATEWAY_API_KEYS" not in env
    assert mounted[str(Path(env["GATEWAY_KEYS_FILE"]).parent)] == "gateway-named-keys"
    (tmp_path / "gateway.yaml").write_text(yaml.safe_dump(found["ConfigMap", "gateway"]["data"]["gateway.yaml"]))
    settings = load_settings(tmp_path / "gateway.yaml", env)
    assert settings.asks_for_keys
    assert settings.server.tls is not None
    assert mounted[str(settings.server.tls.certificate.parent)] == "llm-tls"
    assert found["Service", "llm"]["spec"]["ports"][0]["port"] == 443


@pytest.mark.parametrize(("keys", "shown"), [("apiKeys", "gateway-keys"), ("namedKeys", "mine")])
def test_helm_prints_where_the_key_is_and_the_first_request(keys: str, shown: str) -> None:
    values = ("--set", f"{keys}=mine", "--set", "name=front")
    printed = helm("install", "llm", CHART, "--namespace", "space", "--dry-run=client", *values).partition("NOTES:")[2]
    secrets = {"gateway-keys", "mine"} & set(re.findall(r"[\w-]+", printed))
    assert secrets == {shown}
    assert "kubectl -n space port-forward service/front 9000:80" in printed
    assert "curl http://127.0.0.1:9000/v1/models" in printed


def test_helm_finds_no_fault_and_packs_the_chart(tmp_path: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)
    helm("package", CHART, "--destination", tmp_path)
    (archive,) = tmp_path.iterdir()
    assert re.fullmatch(r"triton-openai-gateway-\d+\.\d+\.\d+\.tgz", archive.name)
    with tarfile.open(archive) as packed:
        assert "triton-openai-gateway/choices/pool.yaml" in packed.getnames()


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_templates_use_declared_values_and_five_words(file: Path) -> None:
    """`nindent` puts what `toYaml` and `include` make where it stands."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for action in re.findall(r"\{\{-?(.*?)-?\}\}", file.read_text()):
        words = re.sub(r'"[^"]*"|\.[\w.]*', "", action)
        assert set(re.findall(r"[a-zA-Z]+", words)) <= {
            "if", "else", "end", "range", "toYaml", "include", "define", "nindent",
        }  # fmt: skip
        for path in re.findall(r"\.Values\.([\w.]+)", action):
            declared = values
            for name in path.split("."):
                declared = declared[name]


def test_the_page_explains_every_value() -> None:
    page = chart_values.PAGE.read_text(encoding="utf-8")
    assert page == chart_values.replaced(page), "make docs"
    explained = [name for name, *_ in chart_values.rows()]
    unexplained = [
        path
        for path in _paths(yaml.safe_load((CHART / "values.yaml").read_text()))
        if not any(path == each or path.startswith(f"{each}.") for each in explained)
    ]
    assert unexplained == []


def _paths(values: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"
