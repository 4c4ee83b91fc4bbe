"""What the running containers may do, by the engine's and the kernel's own account."""

from __future__ import annotations

from pathlib import Path

import pytest
from compose_project import Project

SERVICES = ("gateway", "triton-cpu")
pytestmark = pytest.mark.parametrize("service", SERVICES)


def test_the_kernel_agrees(up: Project, service: str) -> None:
    status = Path(f"/proc/{up.inspect(service)['State']['Pid']}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) == {"1000"}
    assert {int(fields[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


def test_nothing_but_volumes_and_tmp_can_be_written(up: Project, service: str) -> None:
    program = "import sys; [open(f + '/probe', 'w') for f in sys.argv[1:]]"
    name = up.container(service)
    folders = ("/opt", "/etc", "/triton_repo") if service == "triton-cpu" else ("/opt", "/etc", "/models")
    for folder in folders:
        run = up.compose("exec", "-T", service, "python3", "-c", program, folder, check=False)
        assert run.code != 0
        assert "Read-only file system" in run.err or "Permission denied" in run.err, (name, folder, run.err)
    assert up.compose("exec", "-T", service, "python3", "-c", program, "/tmp").code == 0


def test_its_health_check_needs_no_shell(up: Project, service: str) -> None:
    check = up.inspect(service)["Config"]["Healthcheck"]["Test"]
    assert check[:2] == ["CMD", "python3"]
    if service == "triton-cpu":
        assert "{preprocessing,tensorrt_llm,postprocessing,ensemble,tensorrt_llm_bls}" in check[-1]


def test_the_gateway_image_is_small(up: Project, service: str) -> None:
    image = up.inspect(service)["Image"]
    size = int(up.engine.docker("image", "inspect", "--format", "{{.Size}}", image))
    assert size < (375e6 if service == "gateway" else 1600e6)
