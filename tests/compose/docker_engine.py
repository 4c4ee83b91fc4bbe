"""A Docker engine for the tests: the machine's own where one answers, else one of ours that leaves nothing behind.

Ours gives containers no network of any kind: no bridge, no packet filter rules, no forwarding. Builds use the host's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Debian's names; debootstrap serves base_image.py.
_PACKAGES = ("docker.io", "runc", "containerd", "debootstrap", "iptables")
_CGROUP = "/gateway-compose-test"
_START_S = 60.0
_STOP_S = 60.0


class EngineError(Exception):
    """No engine can be had here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A running engine.

    Attributes:
        env: the environment in which the Docker client and Compose reach it.
        ours: whether these tests started it.
    """

    env: Mapping[str, str]
    ours: bool

    def docker(self, *args: str, check: bool = True, timeout: float = 120.0) -> str:
        """Run the Docker client and return its standard output without the last line break."""
        result = subprocess.run(
            ["docker", *args], env=dict(self.env), capture_output=True, text=True, check=False, timeout=timeout
        )
        if check and result.returncode != 0:
            raise AssertionError(f"docker {' '.join(args)}: {result.stderr.strip()}")
        return result.stdout.strip()

    def leftovers(self, label: str) -> list[str]:
        """Containers, networks and volumes that carry a label, each as ``kind name``."""
        found: list[str] = []
        for kind in ("container", "network", "volume"):
            every = ("--all",) if kind == "container" else ()
            names = self.docker(kind, "ls", *every, "--quiet", "--filter", f"label={label}")
            found += [f"{kind} {name}" for name in names.split()]
        return found

    def remove(self, label: str) -> None:
        """Take away everything that carries a label, whatever state it is in."""
        for item in self.leftovers(label):
            kind, name = item.split()
            self.docker(kind, "rm", "--force", name) if kind != "network" else self.docker(kind, "rm", name)


@contextmanager
def running_engine(cache: Path) -> Iterator[Engine]:
    """Give an engine that runs for the length of the block.

    Args:
        cache: folder for the engine's images, kept between runs.

    Raises:
        EngineError: there is none and none can be installed or started.
    """
    if os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists():
        engine = Engine(dict(os.environ), ours=False)
        if shutil.which("docker") and _answers(engine):
            yield engine
            return
    if os.geteuid() != 0:
        raise EngineError("no Docker engine answers, and only root can start one: start Docker, or run this as root")
    _install()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one engine at a time on one data folder
        with _our_engine(cache) as engine:
            yield engine


@contextmanager
def _our_engine(cache: Path) -> Iterator[Engine]:
    pidfile = cache / "dockerd.pid"
    # What a run that was killed left.
    _stop(pidfile, cache / "exec")
    if (cache / "runtime").exists():
        shutil.rmtree((cache / "runtime").read_text(), ignore_errors=True)
    # Not in the cache: a Unix socket's path may have no more than 107 bytes.
    runtime = Path(tempfile.mkdtemp(prefix="compose-test-"))
    (cache / "runtime").write_text(str(runtime))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DOCKER_", "COMPOSE_"))}
    env |= {"DOCKER_HOST": f"unix://{runtime}/docker.sock", "DOCKER_CONFIG": str(runtime / "config")}
    engine = Engine(env, ours=True)
    command = [
        "dockerd", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none",
        f"--data-root={cache / 'data'}", f"--exec-root={cache / 'exec'}", f"--pidfile={pidfile}",
        f"--host=unix://{runtime}/docker.sock", f"--cgroup-parent={_CGROUP}",
    ]  # fmt: skip
    log = runtime / "dockerd.log"
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + _START_S
        while not _answers(engine):
            if process.poll() is not None or time.monotonic() > deadline:
                raise EngineError(f"dockerd does not start: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield engine
        # What builds leave is their cache; what nobody used for a week is not.
        engine.docker("image", "prune", "--force", "--filter", "until=168h")
    finally:
        _stop(pidfile, cache / "exec")
        process.wait(_STOP_S)
        shutil.rmtree(runtime)
        (cache / "runtime").unlink()


def _stop(pidfile: Path, exec_root: Path) -> None:
    """End the engine of a pid file and take away what an engine leaves: a mount and empty control groups."""
    if pidfile.exists() and (pid := pidfile.read_text().strip()).isdigit() and _is_dockerd(int(pid), pidfile):
        os.kill(int(pid), signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while _is_dockerd(int(pid), pidfile):
            if time.monotonic() > deadline:
                raise EngineError(f"dockerd (process {pid}) does not end")
            time.sleep(0.1)
    pidfile.unlink(missing_ok=True)
    for mount in (exec_root / "netns").glob("*"):
        subprocess.run(["umount", str(mount)], check=False, capture_output=True)
    shutil.rmtree(exec_root, ignore_errors=True)
    for group in (*Path("/sys/fs/cgroup").glob(f"*{_CGROUP}"), Path(f"/sys/fs/cgroup{_CGROUP}")):
        if group.is_dir():
            group.rmdir()


def _is_dockerd(pid: int, pidfile: Path) -> bool:
    # The number may have gone to another process since; a zombie has an empty command line.
    try:
        return f"--pidfile={pidfile}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _answers(engine: Engine) -> bool:
    return bool(engine.docker("version", "--format", "{{.Server.Version}}", check=False, timeout=10))


def _install() -> None:
    if all(shutil.which(program) for program in ("dockerd", "docker", "containerd", "runc", "debootstrap")):
        return
    if not shutil.which("apt-get"):
        raise EngineError("no Docker engine here, and no apt-get to install one: install Docker")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    packages = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *_PACKAGES]
    for command in (["apt-get", "update", "--quiet"], packages):
        result = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        if result.returncode != 0:
            raise EngineError(f"{' '.join(command)}: {result.stderr.strip()[-1000:]}")
