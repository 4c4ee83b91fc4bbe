"""The real ``tritonserver`` of the package nvidia-pytriton as a child process on loopback."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gateway_ops.local_stack.sweeper import Sweeper, new_server_name, sweep_stale
from gateway_ops.local_stack.triton_installation import (
    TritonStartError,
    find_libpython,
    find_tritonserver,
    prepare_backend_directory,
)

MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")

_HOST = "127.0.0.1"
_POLL_S = 0.1
_STOP_POLL_S = 0.02
_HTTP_TIMEOUT_S = 2.0
_ATTEMPTS = 5
_UNLOADING = "All models are stopped, unloading models"  # said when no request is in flight any more
_LOG_TAIL_BYTES = 256 * 1024
_PORT_TAKEN = ("Address already in use", "Failed to bind", "failed to bind", "Failed to start", "failed to start")
# A race of Triton's Python backend while its stubs start; seen once in some hundred starts on a busy machine.
_STUMBLED = "boost::interprocess::lock_exception"


def free_ports(count: int) -> list[int]:
    """Return ``count`` different TCP ports that were free on loopback a moment ago."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def decisive_log_lines(log: str, limit: int = 8) -> list[str]:
    """Pick the lines of a tritonserver log that explain its failure, without frames of tracebacks.

    Returns:
        The load error of each model if there is one, else all errors, else the end of the log.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"E\d{4} |error: ", line) and "CudaDriverHelper" not in line]
    loads = [line for line in errors if "failed to load '" in line]
    picked: list[str] = []
    for line in loads or errors or lines[-limit:]:
        text = re.sub(r'^E\d{4} .*?\] "?|"$', "", line)
        text = re.split(r"\\n|(?<=[^:]): Internal: $", text)[0]
        if text not in picked:
            picked.append(text)
    return picked[:limit]


class TritonServer:
    """One tritonserver on 127.0.0.1 with ports of its own; a context manager that stops it.

    It and its stubs are killed when this Python process ends, however it ends, and when the object is collected.

    Args:
        repository: the model repository.
        model_dir: folder of the model, passed to the models as ``MODEL_DIR``; None leaves it unset.
        engine: passed as ``TRITON_ENGINE``; None leaves it unset.
        env: further environment variables, they win over everything else.
        log_path: file for standard output and error; a new file in the temporary folder by default.
        exit_timeout_s: seconds that Triton waits for requests in flight after SIGTERM.
        gpu_metrics: whether its metrics tell of the GPUs; needs one.
    """

    def __init__(
        self,
        repository: Path,
        *,
        model_dir: Path | None,
        engine: str | None = "reference",
        env: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        exit_timeout_s: int = 3,
        gpu_metrics: bool = False,
    ) -> None:
        self.repository = repository
        self._gpu_metrics = gpu_metrics
        self._model_dir = model_dir
        self._engine = engine
        self._env = dict(env or {})
        self._exit_timeout_s = exit_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._sweeper: Sweeper | None = None
        self._ports: list[int] = [0, 0, 0]
        self._name = ""
        if log_path is None:
            handle, path = tempfile.mkstemp(prefix="tritonserver-", suffix=".log")
            os.close(handle)
            log_path = Path(path)
        self.log_path = log_path

    def __enter__(self) -> TritonServer:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def http_url(self) -> str:
        """Base URL of the HTTP endpoint."""
        return f"http://{_HOST}:{self._ports[0]}"

    @property
    def grpc_url(self) -> str:
        """``host:port`` of the gRPC endpoint, as gRPC clients want it."""
        return f"{_HOST}:{self._ports[1]}"

    @property
    def metrics_url(self) -> str:
        """URL of the Prometheus page."""
        return f"http://{_HOST}:{self._ports[2]}/metrics"

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def ending(self) -> str:
        """The end of the process, worded to follow its name in a sentence; empty while it runs or before a start."""
        status = self._process.poll() if self._process is not None else None
        if status is None:
            return ""
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"

    @property
    def stumbled(self) -> bool:
        """Whether it died of a race of Triton's Python backend in the start of a stub: another start may go well."""
        return not self.running and _STUMBLED in self.log()

    def start(self) -> None:
        """Start the process; returns at once, ``wait_ready`` waits for the models.

        Ports are kept over a restart where they are still free, so that clients find the server again.

        Raises:
            TritonStartError: nothing to start, or it is already running.
        """
        if self.running:
            raise TritonStartError("tritonserver is already running")
        installation = find_tritonserver()
        backends = prepare_backend_directory(installation)
        if not self._ports_free():
            self._ports = free_ports(3)
        self._sweep()
        sweep_stale()
        self._name = new_server_name()
        self._sweeper = Sweeper(self._name)
        with self.log_path.open("ab") as log:
            log.truncate(0)
            self._process = subprocess.Popen(  # noqa: S603 - the binary of the installed package
                [str(installation.binary), *self._arguments(backends)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )

    def wait_ready(
        self,
        models: Sequence[str] = MODELS,
        deadline_s: float = 120.0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Wait until every named model of this very process is ready.

        Args:
            models: names of models.
            deadline_s: seconds to wait at most.
            progress: called with the name of each model as it becomes ready.

        Raises:
            TritonStartError: the process ended (with the decisive lines of its log) or the deadline passed.
        """
        deadline = time.monotonic() + deadline_s
        waiting = list(models)
        attempts = 1
        while True:
            if not self.running:
                lines = decisive_log_lines(self.log())
                if attempts >= _ATTEMPTS or not (self._port_was_taken() or self.stumbled):
                    raise TritonStartError("tritonserver ended while it was starting:", lines)
                attempts += 1
                self._ports = free_ports(3)
                self.start()
            if self._is_ours():
                for model in [name for name in waiting if self.model_ready(name)]:
                    waiting.remove(model)
                    if progress is not None:
                        progress(model)
                if not waiting:
                    return
            if time.monotonic() > deadline:
                lines = decisive_log_lines(self.log())
                raise TritonStartError(f"not ready after {deadline_s:g} s: {', '.join(waiting)}", lines)
            time.sleep(_POLL_S)

    def model_ready(self, model: str) -> bool:
        """Whether Triton says that a model is ready."""
        return self._get(f"/v2/models/{model}/ready") is not None

    def stop(self, deadline_s: float = 20.0) -> None:
        """Stop it: SIGTERM, wait for the exit, SIGKILL after the deadline. Does nothing when it does not run.

        Requests in flight have the exit timeout to end. The reference engine is killed once there are none: unloading
        it takes Triton seconds and saves nothing.
        """
        if self._process is None:
            return
        deadline = time.monotonic() + deadline_s
        self._process.send_signal(signal.SIGTERM)  # does nothing to a process that has ended
        while self.running and time.monotonic() < deadline and not self._has_nothing_to_save():
            time.sleep(_STOP_POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kill it and its stubs with SIGKILL, as a crash would, and wait for the exit."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._sweep()

    def log(self) -> str:
        """Return the end of the log (at most 256 KiB)."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")

    def _arguments(self, backends: Path) -> list[str]:
        http, grpc, metrics = self._ports
        return [
            f"--id={self._name}",
            f"--model-repository={self.repository}",
            f"--backend-directory={backends}",
            f"--backend-config=python,shm-region-prefix-name={self._name}_",
            "--disable-auto-complete-config",
            f"--http-address={_HOST}",
            f"--http-port={http}",
            f"--grpc-address={_HOST}",
            f"--grpc-port={grpc}",
            f"--metrics-address={_HOST}",
            f"--metrics-port={metrics}",
            f"--allow-gpu-metrics={str(self._gpu_metrics).lower()}",
            f"--exit-timeout-secs={self._exit_timeout_s}",
        ]

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if name not in ("MODEL_DIR", "TRITON_ENGINE")}
        # The stub embeds the first python3 on PATH, and so this environment's packages.
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
        libpython = find_libpython()
        if libpython is not None:
            env["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(libpython), env.get("LD_LIBRARY_PATH")]))
        env.pop("PYTHONHOME", None)
        if self._model_dir is not None:
            env["MODEL_DIR"] = str(self._model_dir)
        if self._engine is not None:
            env["TRITON_ENGINE"] = self._engine
        return {**env, **self._env}

    def _ports_free(self) -> bool:
        for port in self._ports:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((_HOST, port))
                except OSError:
                    return False
        return all(self._ports)

    def _port_was_taken(self) -> bool:
        log = self.log()
        return any(mark in log for mark in _PORT_TAKEN) and not self._ports_free()

    def _is_ours(self) -> bool:
        # Another server may sit on a port that we lost: the id tells them apart.
        answer = self._get("/v2")
        try:
            return answer is not None and json.loads(answer).get("name") == self._name
        except (ValueError, AttributeError):
            return False

    def _get(self, path: str) -> bytes | None:
        # No urllib: it would go through a proxy that the environment names.
        connection = http.client.HTTPConnection(_HOST, self._ports[0], timeout=_HTTP_TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return body if answer.status == http.HTTPStatus.OK else None

    def _has_nothing_to_save(self) -> bool:
        return self._engine == "reference" and _UNLOADING in self.log()

    def _sweep(self) -> None:
        # Stubs that outlived their server, and shared memory that a killed one could not remove.
        if self._sweeper is not None:
            self._sweeper.close()
            self._sweeper = None
