"""``gateway launch`` as an operator runs it, and what there is of it on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from gateway_ops.cli.root import app
from gateway_ops.local_stack.sweeper import NAME_VARIABLE, SHARED_MEMORY
from tests.ports import free_port

GATEWAY = Path(sys.executable).with_name("gateway")
DEADLINE_S = 60.0


def command_of(pid: int) -> str:
    """Empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def render(folder: Path, *deployments: dict[str, Any]) -> Path:
    """The settings file of deployments, with their repository rendered beside it."""
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump({"deployments": list(deployments)}))
    done = CliRunner().invoke(app, ["repo", str(file), "-o", str(folder / "repository")])
    assert done.exit_code == 0, done.output
    return file


class Launched:
    """A running ``gateway launch``; a context manager that leaves nothing of it."""

    def __init__(self, file: Path, *options: str, **env: str) -> None:
        self.ports = [free_port() for _ in range(3)]
        self.said: list[str] = []
        self._logs = file.parent / f"logs-{self.ports[0]}"
        self._mark = f"TESTED_LAUNCH={self.ports[0]}"
        names = ("--http-port", "--grpc-port", "--metrics-port")
        ports = [word for name, port in zip(names, self.ports, strict=True) for word in (name, str(port))]
        where = [str(file), "--repository", str(file.with_name("repository")), "--log-dir", str(self._logs)]
        key, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            [GATEWAY, "launch", *where, *ports, *options], stderr=subprocess.PIPE, text=True,
            env=os.environ | env | {key: value},
        )  # fmt: skip

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()  # its servers go with it
        self.process.communicate()

    @property
    def url(self) -> str:
        """Of Triton's HTTP endpoint."""
        return f"http://127.0.0.1:{self.ports[0]}"

    def wait_for(self, words: str) -> str:
        """Read its lines until one has these words."""
        assert self.process.stderr is not None
        deadline = threading.Timer(DEADLINE_S, self.process.kill)  # Triton may hang while it loads models
        deadline.start()
        try:
            for line in self.process.stderr:
                self.said.append(line)
                if words in line:
                    return line
        finally:
            deadline.cancel()
        raise AssertionError(f"it never said {words!r}: {''.join(self.said)}")

    def wait(self) -> tuple[int, str]:
        """Wait for its end: exit status, and all that it said."""
        _, rest = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, "".join(self.said) + rest

    def members(self, mark: str = "") -> list[int]:
        """Processes of its servers, those with a mark in their command lines."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (entry / "environ").read_text(errors="replace").split("\0")
                named = any(one.startswith(f"{NAME_VARIABLE}=") for one in variables)
                if named and self._mark in variables and alive(int(entry.name)) and mark in command_of(int(entry.name)):
                    found.append(int(entry.name))
        return found

    def servers(self) -> list[int]:
        """The ids of its tritonservers."""
        return self.members("bin/tritonserver --id=")

    def left(self) -> list[object]:
        """Whatever is left of its servers: processes, and regions of shared memory."""
        text = "".join(log.read_text(errors="replace") for log in self._logs.glob("triton.log*"))
        names = set(re.findall(r"gateway-[0-9a-f]+-[0-9a-f]{12}", text))
        assert names, "its logs name no server"
        regions = [region for name in names for region in SHARED_MEMORY.glob(f"{name}_*")]
        return [*map(command_of, self.members()), *regions]
