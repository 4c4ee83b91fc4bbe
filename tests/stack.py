"""The gateway as its users meet it: a process of its own, on a free loopback port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.ports import free_port
from tests.warm_gateways import ForkedGateway, WarmGateways

if TYPE_CHECKING:
    from openai import OpenAI

GATEWAY = Path(sys.executable).with_name("gateway")
TRANSPORT = "GATEWAY_TRANSPORT"  # how tests that do not say reach Triton: GATEWAY_TRANSPORT=grpcio make test


def _text(file: str | None) -> str:
    return Path(file).read_text() if file and Path(file).is_file() else ""


def strict_client(url: str, **more: Any) -> OpenAI:
    """OpenAI's SDK for a gateway; it rejects what does not validate strictly, and does not try again."""
    from openai import OpenAI  # noqa: PLC0415 - half a second, and most tests need none

    options = {"api_key": "unused", "max_retries": 0, "timeout": 60, "_strict_response_validation": True, **more}
    return OpenAI(base_url=f"{url}/v1", **options)


class GatewayProcess:
    """``gateway serve`` with the given settings in its environment, or in a file; a context manager.

    Args:
        log: its log file; a file of settings stands beside it.
        settings: what is in the file of settings; None is none.
        env: settings by environment variables.
    """

    def __init__(self, log: Path, settings: Mapping[str, Any] | None = None, /, **env: str) -> None:
        if settings is not None:
            file = log.with_suffix(".yaml")
            file.write_text(json.dumps(settings), encoding="utf-8")  # which is YAML, too
            env["GATEWAY_CONFIG"] = str(file)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        base = {key: value for key, value in os.environ.items() if not key.startswith("GATEWAY_")}
        if TRANSPORT in os.environ and "GATEWAY_MODEL" in env:
            base[TRANSPORT] = os.environ[TRANSPORT]
        # x: the host that requests by hand name.
        own = {"GATEWAY_HOST": "127.0.0.1", "GATEWAY_PORT": str(self.port), "GATEWAY_ALLOWED_HOSTS": "x"}
        own["GATEWAY_LAME_DUCK_S"] = "0"
        own["XDG_STATE_HOME"] = str(log.parent)  # not the user's
        # An engine that hangs (docs/contributing/wire-contract.md, 9.1) costs a test a minute, not five.
        if "first_token_s" not in _text(env.get("GATEWAY_CONFIG")):
            own["GATEWAY_FIRST_TOKEN_TIMEOUT_S"] = "60"
        self._env = base | own | env
        # One for all calls, without certificates: to load those takes more than a call. By the internal port, if any.
        asked = f"http://127.0.0.1:{env.get('GATEWAY_INTERNAL_PORT', self.port)}"
        self._client = httpx.Client(base_url=asked, verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self._process: subprocess.Popen[bytes] | ForkedGateway | None = None

    @classmethod
    def of_model(cls, log: Path, name: str, url: str, tokenizer: Path, length: int, **env: str) -> GatewayProcess:
        """One that serves one model, of a Triton at ``url`` and with a context of ``length`` tokens."""
        own = {"GATEWAY_MODEL": name, "GATEWAY_TRITON_URL": url, "GATEWAY_TOKENIZER": str(tokenizer)}
        return cls(log, **own, GATEWAY_MAX_SEQ_LEN=str(length), **env)

    def __enter__(self) -> GatewayProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, ready: bool = True, timeout: float = 60.0) -> None:
        """Start it, its modules imported already, and wait until it answers (``ready``: until its model does)."""
        self.fork()
        self.wait("/health/ready" if ready else "/health/live", 200, timeout)

    def fork(self) -> None:
        """Start it, its modules imported already, and return at once; see `WarmGateways`."""
        self._process = WarmGateways.of_this_process().start(["serve"], self._env, stdout=self.log)

    def launch(self, most_files: int | None = None) -> None:
        """Start the command ``gateway serve``, which takes seconds more, and return at once.

        Args:
            most_files: that it may have open; None leaves that as it is here.
        """
        command = [str(GATEWAY), "serve"]
        if most_files is not None:
            command = ["sh", "-c", f'ulimit -n {most_files} && exec "$@"', "sh", *command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, env=self._env, stdout=log, stderr=log)

    def answers(self) -> bool:
        """Whether it takes connections; fails when it has ended."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-4000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def maps(self) -> str:
        """Files and libraries that it has in its memory."""
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/maps").read_text()

    def children(self) -> list[int]:
        """The ids of its processes."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]

    def files(self) -> int:
        """How many files and connections it has open."""
        assert self._process is not None
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def wait(self, path: str, status: int, timeout: float = 60.0) -> httpx.Response:
        """Poll ``path`` until it answers ``status``; fails with the log when the process ends or time runs out."""
        deadline = time.monotonic() + timeout
        last: object = None
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                break
            try:
                answer = self._client.get(path, timeout=5)
                if answer.status_code == status:
                    return answer
                last = (answer.status_code, answer.text)
            except httpx.TransportError as error:
                last = error
            time.sleep(0.05)
        raise AssertionError(f"{path} did not answer {status}: {last}\n{self.log.read_text()[-4000:]}")

    def post(self, body: dict[str, Any]) -> httpx.Response:
        """A chat request; its answer, whatever the status."""
        return self._client.post("/v1/chat/completions", json=body, timeout=30)

    def metrics(self) -> str:
        """The page of metrics."""
        return self._client.get("/metrics", timeout=5).text

    def metric(self, name: str, label: str = "", page: str | None = None) -> float:
        """The sum of a metric's samples over all labels, or of those with one label; 0 when there are none."""
        text = self.metrics() if page is None else page
        samples = re.findall(rf"^{name}(?:{{.*{label}.*}})? (\S+)$", text, re.MULTILINE)
        assert samples or f"# TYPE {name.removesuffix('_total')}" in text, f"no metric {name}"
        return sum(float(sample) for sample in samples)

    def log_lines(self) -> list[str]:
        """What it has logged so far."""
        return self.log.read_text().splitlines()

    def logged(self, words: str, timeout: float = 20.0, count: int = 1) -> list[str]:
        """Wait for so many lines with some words, which a thread writes behind what they tell of; returns those."""
        deadline = time.monotonic() + timeout
        while len(lines := [line for line in self.log_lines() if words in line]) < count:
            assert time.monotonic() < deadline, f"{words!r} is in {len(lines)} lines of the log, not {count}"
            time.sleep(0.05)
        return lines

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, wait, exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._process = None
