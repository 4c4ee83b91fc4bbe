"""The gateway as a child process of ``gateway up``."""

from __future__ import annotations

import http
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.telemetry.early_signals import SUPERVISOR_VARIABLE
from gateway_ops.local_stack import LocalStackError

_POLL_S: Final = 0.1
_HTTP_TIMEOUT_S: Final = 5.0
_LOG_TAIL_LINES: Final = 8
_GRACE_S: Final = 5  # for running responses after Ctrl-C, before they end with an error


def check_port_free(host: str, port: int) -> None:
    """Check that the gateway can listen, before a slow start.

    Raises:
        LocalStackError: the port is taken or may not be used, or the host is not one of this machine's.
    """
    reason = cannot_listen(host, port)
    if reason is not None:
        raise LocalStackError(
            f"Cannot listen on {host} port {port} ({reason}): "
            f"stop what uses it (gateway down --port {port}, if it is a gateway), or choose another port with --port."
        )


def cannot_listen(host: str, port: int) -> str | None:
    """Say why a port cannot be used; None when it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return None


class GatewayProcess:
    """``gateway serve`` in a session of its own, so that Ctrl-C reaches only the supervisor.

    Args:
        host: address to listen on.
        port: port to listen on.
        log_path: the file for its output; replaced.
    """

    def __init__(self, host: str, port: int, log_path: Path) -> None:
        self.log_path = log_path
        self._host = host
        self._port = port
        # An address that means "all" is not an address to connect to.
        self._connect_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Base URL for clients on this machine."""
        host = f"[{self._connect_host}]" if ":" in self._connect_host else self._connect_host
        return f"http://{host}:{self._port}"

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self, settings: Mapping[str, str]) -> None:
        """Start the process and return immediately.

        Args:
            settings: environment variables with the gateway's settings other than host and port.
        """
        environment = {
            **os.environ,
            "GATEWAY_CONFIG": os.devnull,  # a gateway.yaml in the working folder describes another deployment
            **settings,
            "GATEWAY_HOST": self._host,
            "GATEWAY_PORT": str(self._port),
            "GATEWAY_SHUTDOWN_S": str(_GRACE_S),
            "GATEWAY_LAME_DUCK_S": "0",
            SUPERVISOR_VARIABLE: str(os.getpid()),
        }
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "gateway_ops.cli", "serve"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def wait_ready(self, deadline_s: float) -> None:
        """Wait until the gateway is ready to serve its model.

        Raises:
            LocalStackError: the process ended, or the deadline passed.
        """
        end = time.monotonic() + deadline_s
        while not self._is_ready():
            if not self.running:
                raise LocalStackError(f"The gateway ended while it was starting:\n{self.log_tail()}")
            if time.monotonic() > end:
                raise LocalStackError(f"The gateway was not ready after {deadline_s:g} s:\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def stop(self, deadline_s: float = _GRACE_S + 10.0) -> None:
        """Stop the process: SIGTERM, then SIGKILL after the deadline; returns when it has ended."""
        if self._process is None:
            return
        self._process.terminate()  # does nothing to a process that has ended
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def engine_dead(self) -> bool:
        """Whether the gateway has found that an engine gives no tokens."""
        return answers(self._connect_host, self._port, "/health/live?engine=1", http.HTTPStatus.SERVICE_UNAVAILABLE)

    def log_tail(self) -> str:
        """The last lines of the log."""
        return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_TAIL_LINES:])

    def _is_ready(self) -> bool:
        return answers(self._connect_host, self._port, "/health/ready")


def answers(host: str, port: int, path: str, status: int = http.HTTPStatus.OK) -> bool:
    """Tell whether a gateway responds to a path with a status."""
    # No urllib: it would go through a proxy that the environment names.
    connection = http.client.HTTPConnection(host, port, timeout=_HTTP_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == status
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
