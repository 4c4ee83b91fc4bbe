"""The units of deploy/systemd: systemd takes them, they wait long enough, and the watch restarts Triton."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.settings import TimeoutSettings
from gateway.settings.gateway_settings import ServerSettings
from tests.docs.test_named_commands import wrong
from tests.release.conftest import ROOT

UNITS = ROOT / "deploy" / "systemd"
_WORKERS_S = 15  # until a supervisor kills its workers
_LAUNCH_S = 30 + 10  # --exit-timeout of `gateway launch`, and until it kills Triton
_PROGRAM = "/opt/gateway/bin/gateway"


def section(unit: str, name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((UNITS / unit).read_text().replace("\\\n", " "))
    return parser[name]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace(_PROGRAM, shutil.which("true") or ""))
    units = sorted(map(str, tmp_path.iterdir()))
    assert len(units) == 4
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False, timeout=60
    )
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line] == []
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("unit", ["gateway.service", "triton.service"])
def test_the_units_run_commands_that_there_are(unit: str) -> None:
    service = section(unit, "Service")
    program, *words = shlex.split(service["ExecStart"])
    assert program == _PROGRAM
    assert wrong(words) == ""
    assert service["KillMode"] == "mixed"


def test_systemd_waits_for_the_last_response() -> None:
    server = ServerSettings()
    needed = server.lame_duck_s + server.shutdown_s + _WORKERS_S
    assert int(section("gateway.service", "Service")["TimeoutStopSec"]) > needed
    assert int(section("triton.service", "Service")["TimeoutStopSec"]) > _LAUNCH_S


@pytest.mark.parametrize(("statuses", "restarted"), [("200", False), ("503 503 200", False), ("503", True)])
def test_the_watch_restarts_a_triton_whose_engine_hangs(tmp_path: Path, statuses: str, restarted: bool) -> None:
    """Through stand-ins for curl, sleep and systemctl; the last status stays."""
    line = section("engine-watch.service", "Service")["ExecStart"].replace("%%", "%")
    shell, option, script = shlex.split(line)
    (tmp_path / "statuses").write_text("\n".join(statuses.split()) + "\n")
    for name, text in {
        "curl": f'cd {tmp_path}; head -n1 statuses | tr -d "\\n"; [ "$(wc -l < statuses)" = 1 ] || sed -i 1d statuses',
        "sleep": f'echo "$1" >> {tmp_path}/slept',
        "systemctl": f'echo "$@" > {tmp_path}/called',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin"}
    subprocess.run([shell, option, script], env=env, check=True, timeout=30)
    assert (tmp_path / "called").exists() == restarted
    if restarted:
        assert (tmp_path / "called").read_text() == "restart triton\n"
        waited = sum(map(int, re.findall(r"\d+", (tmp_path / "slept").read_text())))
        assert waited > TimeoutSettings().first_token_s
