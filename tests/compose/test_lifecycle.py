"""Down leaves nothing, a second up makes nothing anew, and keys are asked for once they are set."""

from __future__ import annotations

from compose_project import GATEWAY, Project

_UP = ("up", "--detach", "--wait", "--wait-timeout", "120")
_MARKER = "/models/marker"
_WRITE = f"open('{_MARKER}', 'w').write('kept')"
_EXISTS = f"import os; print(os.path.exists('{_MARKER}'))"
_READ = f"print(open('{_MARKER}').read())"


def inside_triton(up: Project, program: str) -> str:
    return up.compose("exec", "-T", "triton-cpu", "python3", "-c", program).out.strip()


def status(up: Project, *headers: str) -> str:
    options = [word for header in headers for word in ("-H", header)]
    return up.inside("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *options, f"{GATEWAY}/v1/models").out


def test_down_leaves_only_the_volumes_and_a_second_up_reuses_everything(up: Project) -> None:
    label, volume = f"com.docker.compose.project={up.name}", f"{up.name}_models"
    images = [up.inspect(service)["Image"] for service in ("gateway", "triton-cpu")]
    inside_triton(up, _WRITE)
    up.compose("down")
    assert {kind.split()[0] for kind in up.engine.leftovers(label)} <= {"volume"}
    volumes = up.engine.docker("volume", "ls", "--quiet", "--filter", f"label={label}").split()
    assert sorted(volumes) == [volume, f"{up.name}_no-model-dir", f"{up.name}_state"]

    # Again, and with keys.
    again = up.compose(*_UP, GATEWAY_API_KEYS="first-key,second-key")
    assert "GATEWAY_API_KEYS" not in again.err
    assert [up.inspect(service)["Image"] for service in ("gateway", "triton-cpu")] == images
    assert inside_triton(up, _READ) == "kept"
    assert up.get("/health/ready")[0] == 200
    assert [status(up), status(up, "Authorization: Bearer third-key")] == ["401", "401"]
    assert status(up, "Authorization: Bearer second-key") == "200"
    assert "no API keys are set" not in up.engine.docker("logs", up.container("gateway"))

    up.compose("down", "--volumes")
    assert up.engine.leftovers(label) == []
    up.compose(*_UP)
    assert inside_triton(up, _EXISTS) == "False"
