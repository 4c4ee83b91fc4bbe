"""A redis-server of the tests' own, on a free port, with its data in a folder."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import redis

from tests.ports import free_port

MISSING = (
    None if shutil.which("redis-server") else "redis-server is not installed (Debian: apt-get install redis-server)"
)


class RedisServer:
    """A server that keeps what it acknowledged when it is killed: it waits for the disk before it answers."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *options: str) -> None:
        """Start it and wait until it answers."""
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", "", *options]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < end, (self._folder / "redis.log").read_text()
            time.sleep(0.01)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "redis.log").read_text()
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.exceptions.ConnectionError:  # also while it loads its file
            return False

    def client(self) -> redis.Redis:
        """A client beside the store."""
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it at once, or send it another signal."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(20)
