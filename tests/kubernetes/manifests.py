"""The manifests of ``deploy/kubernetes/`` as ``kubectl kustomize`` renders them, and the pods in them."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonschema
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "kubernetes"
OVERLAYS: Final = tuple(sorted(path.parent.name for path in (FOLDER / "overlays").glob("*/kustomization.yaml")))
Manifest = dict[str, Any]
CUSTOM: Final[dict[str, Manifest]] = yaml.safe_load(Path(__file__).with_name("custom_kinds.yaml").read_text())
KUBERNETES: Final = ("1.30", "1.37")
"""The oldest that docs/how-to/kubernetes.md names, and the newest whose schemas are there."""


class Pod(NamedTuple):
    """A pod that some manifest makes."""

    owner: str
    labels: dict[str, str]
    spec: Manifest

    def containers(self) -> dict[str, Manifest]:
        """All containers, sidecars among them, by name."""
        return {each["name"]: each for each in (*self.spec.get("initContainers", ()), *self.spec["containers"])}


@functools.cache
def rendered(overlay: str) -> tuple[Manifest, ...]:
    """The manifests of an overlay; the test is skipped where nothing can render them."""
    return render(FOLDER / "overlays" / overlay)


def render(folder: Path) -> tuple[Manifest, ...]:
    """The manifests of a folder."""
    program = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    if shutil.which(program[0]) is None:
        pytest.skip("neither kubectl nor kustomize is installed", allow_module_level=True)
    done = subprocess.run([*program, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"of a field that is going to go: {done.stderr}"
    return tuple(yaml.safe_load_all(done.stdout))


def check_schemas(manifest: Manifest) -> None:
    """Compare a manifest with the schemas of its kind, or with the facts of its source."""
    if (known := CUSTOM.get(manifest["kind"])) is not None:
        assert manifest["apiVersion"] == known["apiVersion"]
        jsonschema.validate(manifest["spec"], known["spec"])
        return
    for version in KUBERNETES:
        kubernetes_validate.validate(manifest, version, strict=True)


def only(overlay: str, kind: str, name: str) -> Manifest:
    """The manifest of a kind and name."""
    (found,) = [each for each in rendered(overlay) if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods(overlay: str) -> Iterator[Pod]:
    """Every pod of an overlay."""
    for each in rendered(overlay):
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "Deployment":
            yield _pod(name, each["spec"]["template"])
        elif each["kind"] == "LeaderWorkerSet":
            for role in ("leaderTemplate", "workerTemplate"):
                yield _pod(f"{name}/{role}", each["spec"]["leaderWorkerTemplate"][role])


def _pod(owner: str, template: Manifest) -> Pod:
    return Pod(owner, template["metadata"]["labels"], template["spec"])


def gateways(overlay: str) -> Pod:
    """The pod with the gateway."""
    (found,) = [pod for pod in pods(overlay) if "gateway" in pod.containers()]
    return found


def environment(container: Manifest) -> dict[str, str]:
    """The variables of a container; those of secrets as a word."""
    return {each["name"]: each.get("value", "from a secret") for each in container.get("env", ())}


def settings_text(overlay: str) -> str:
    """The gateway's settings file."""
    text: str = only(overlay, "ConfigMap", "gateway")["data"]["gateway.yaml"]
    return text


def picker_config() -> Manifest:
    """The endpoint picker's configuration."""
    config: Manifest = yaml.safe_load(only("pool", "ConfigMap", "picker")["data"]["picker.yaml"])
    return config
