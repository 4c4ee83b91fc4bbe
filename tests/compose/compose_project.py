"""The shipped docker-compose.yml as a project of its own in the tests' engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from docker_engine import Engine

ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final = Path(sys.executable).with_name("docker-compose")
LOOPBACK: Final = "docker/ci/compose.loopback.yml"
GATEWAY: Final = "http://127.0.0.1:9000"


@dataclass(frozen=True, slots=True)
class Run:
    """What a command did."""

    code: int
    out: str
    err: str
    seconds: float


@dataclass
class Project:
    """One Compose project.

    Attributes:
        engine: where it runs.
        name: project name; carries all its containers, networks and volumes.
        env: what .env would hold.
        files: Compose files, relative to the repository.
    """

    engine: Engine
    name: str
    env: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ("docker-compose.yml", LOOPBACK)
    profiles: tuple[str, ...] = ("cpu",)

    def compose(self, *args: str, check: bool = True, timeout: float = 300.0, **env: str) -> Run:
        """Run Compose on the project with the environment of the engine, ``self.env`` and ``env``, and no .env file."""
        command = ["nice", str(COMPOSE), "--env-file", os.devnull, "--project-directory", str(ROOT), "-p", self.name]
        for option, values in (("-f", self.files), ("--profile", self.profiles)):
            command += [word for value in values for word in (option, str(ROOT / value) if option == "-f" else value)]
        begun = time.monotonic()
        done = subprocess.run(
            [*command, *args], env={**self.engine.env, **self.env, **env}, cwd=ROOT, capture_output=True, text=True,
            check=False, timeout=timeout,
        )  # fmt: skip
        run = Run(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)
        if check and run.code != 0:
            said = "\n".join((run.out[-3000:], run.err[-3000:], self.logs()))
            raise AssertionError(f"compose {' '.join(args)}: {run.code}\n{said}")
        return run

    def logs(self) -> str:
        """The end of all containers' logs."""
        return self.compose("logs", "--no-color", "--tail", "40", check=False).out[-8000:]

    def container(self, service: str) -> str:
        """Name of a service's container."""
        return f"{self.name}-{service}-1"

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine says of a service's container."""
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", self.container(service)))[0]
        return found

    def inside(self, *command: str, timeout: float = 60.0, stdin: str | None = None) -> Run:
        """Run a command of this machine in the project's network namespace."""
        pid = str(self.inspect("net")["State"]["Pid"])
        enter = [shutil.which("nsenter") or "nsenter", "--target", pid, "--net", *command]
        env = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        begun = time.monotonic()
        done = subprocess.run(enter, capture_output=True, text=True, check=False, timeout=timeout, input=stdin, env=env)
        return Run(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)

    def python(self, program: str, timeout: float = 60.0) -> str:
        """Run a Python program with the tests' packages in the namespace and return what it prints."""
        run = self.inside(sys.executable, "-c", program, timeout=timeout)
        assert run.code == 0, run.err
        return run.out.strip()

    def get(self, path: str, timeout: float = 10.0) -> tuple[int, str]:
        """GET a path of the gateway; status 0 when nothing answers."""
        curl = ["curl", "-sS", "-m", str(timeout), "-w", "\n%{http_code}", GATEWAY + path]
        run = self.inside(*curl, timeout=timeout + 5)
        body, _, status = run.out.rpartition("\n")
        return int(status or 0), body

    def wait(self, condition: Callable[[], bool], deadline_s: float) -> float:
        """Wait until a condition holds; returns the seconds it took."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() - begun < deadline_s, f"not within {deadline_s} s\n{self.logs()}"
            time.sleep(0.1)
        return time.monotonic() - begun
