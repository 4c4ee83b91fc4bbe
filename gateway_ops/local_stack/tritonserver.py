"""Runs the ``tritonserver`` of the package nvidia-pytriton as a child process on loopback."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gateway_ops.local_stack.server_process import ServerProcess, server_arguments
from gateway_ops.local_stack.server_watch import ServerWatch
from gateway_ops.local_stack.triton_http import TritonHttp
from gateway_ops.local_stack.triton_installation import (
    TritonStartError,
    find_tritonserver,
    not_for_stubs,
    prepare_backend_directory,
    stub_environment,
)

MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")
EMBEDDING = "embedding"
EMBEDDING_VARIABLE = "EMBEDDING_MODEL_DIR"
"""Names the folder of the model `EMBEDDING`, which loads without one where it is not set."""

_HOST = "127.0.0.1"
_POLL_S = 0.1
_STOP_POLL_S = 0.02
_ATTEMPTS = 5
UNLOADING = "All models are stopped, unloading models"  # said when no request is in flight any more
_LOG_TAIL_BYTES = 256 * 1024
_PORT_TAKEN = ("Address already in use", "Failed to bind", "failed to bind", "Failed to start", "failed to start")
# A race of Triton's Python backend while its stubs start; seen once in some hundred starts on a busy machine.
STUMBLED = "boost::interprocess::lock_exception"


def free_ports(count: int) -> list[int]:
    """Find ``count`` different TCP ports that were free on loopback a moment ago."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((_HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def decisive_log_lines(log: str, limit: int = 8) -> list[str]:
    """Choose the lines of a tritonserver log that explain its failure, without tracebacks.

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
    """A tritonserver on 127.0.0.1 with ports of its own; a context that stops it.

    The server and its stubs are killed when this Python process ends, however it ends, and when the object is
    collected.

    Args:
        repository: the model repository.
        model_dir: folder of the model, passed to the models as ``MODEL_DIR``; None leaves it unset.
        engine: passed as ``TRITON_ENGINE``; None leaves it unset.
        env: further environment variables, they win over everything else.
        log_path: file for standard output and error; a new file in the temporary folder by default.
        exit_timeout_s: seconds that Triton waits for requests in flight after SIGTERM.
        gpu_metrics: whether its metrics include GPUs; needs one.
        options: further options of its command line.
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
        options: Sequence[str] = (),
    ) -> None:
        self.repository = repository
        self._gpu_metrics = gpu_metrics
        self._options = tuple(options)
        self._model_dir = model_dir
        self._engine = engine
        self._env = dict(env or {})
        self._exit_timeout_s = exit_timeout_s
        self._process: ServerProcess | None = None
        self._ports: list[int] = [0, 0, 0]
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
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.running

    @property
    def ending(self) -> str:
        """The way the process ended, as a phrase after its name; empty while it runs."""
        return self._process.ending if self._process is not None else ""

    @property
    def stumbled(self) -> bool:
        """Whether a race of Triton's Python backend at a stub's start ended it; another start may succeed."""
        return not self.running and STUMBLED in self.log()

    def start(self) -> None:
        """Start the process without waiting for its models; see ``wait_ready``.

        Ports are kept over a restart where they are still free, so that clients find the server again.

        Raises:
            TritonStartError: nothing to start, it is already running, or its repository is where no stub starts.
        """
        if self.running:
            raise TritonStartError("tritonserver is already running")
        reason = not_for_stubs(self.repository)
        if reason is not None:
            raise TritonStartError(f"{reason} Move it into a folder without it.")
        installation = find_tritonserver()
        backends = prepare_backend_directory(installation)
        if not self._ports_free():
            self._ports = free_ports(3)
        if self._process is not None:
            self._process.kill()  # stubs that outlived it
        self._process = ServerProcess()
        with self.log_path.open("ab") as log:
            log.truncate(0)
            self._process.start([str(installation.binary), *self._arguments(backends)], self._environment(), log)

    def wait_ready(
        self,
        models: Sequence[str] = MODELS,
        deadline_s: float = 120.0,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Wait until every named model of this process is ready.

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
            if self._http.is_named(self._name):
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
        """Tell whether Triton reports a model as ready."""
        return self._http.model_ready(model)

    def watch(self, engine_dead: Callable[[], bool] = bool) -> ServerWatch:
        """Watch a ready server; see ``ServerWatch``."""
        return ServerWatch(self._http, self.pid, engine_dead)

    def stop(self, deadline_s: float = 20.0) -> None:
        """Stop the server: SIGTERM, then SIGKILL after the deadline; without effect when it does not run.

        Requests in flight have the exit timeout to end. The reference engine is killed once there are none: unloading
        it takes Triton seconds and saves nothing.
        """
        if self._process is None:
            return
        deadline = time.monotonic() + deadline_s
        self._process.terminate()
        while self.running and time.monotonic() < deadline and not self._has_nothing_to_save():
            time.sleep(_STOP_POLL_S)
        self.kill()

    def kill(self) -> None:
        """Kill the server and its stubs with SIGKILL, as a crash would, and wait for the exit."""
        if self._process is not None:
            self._process.kill()

    def log(self) -> str:
        """The end of the log, at most 256 KiB."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - _LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")

    def _arguments(self, backends: Path) -> list[str]:
        http, grpc, metrics = self._ports
        return [
            *server_arguments(self._name, self.repository, exit_timeout_s=self._exit_timeout_s),
            f"--backend-directory={backends}",
            f"--http-address={_HOST}",
            f"--http-port={http}",
            f"--grpc-address={_HOST}",
            f"--grpc-port={grpc}",
            f"--metrics-address={_HOST}",
            f"--metrics-port={metrics}",
            f"--allow-gpu-metrics={str(self._gpu_metrics).lower()}",
            *self._options,
        ]

    def _environment(self) -> dict[str, str]:
        own = ("MODEL_DIR", "TRITON_ENGINE", EMBEDDING_VARIABLE)
        env = {name: value for name, value in os.environ.items() if name not in own}
        env = stub_environment(env)
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

    @property
    def _name(self) -> str:
        return self._process.name if self._process is not None else ""

    @property
    def _http(self) -> TritonHttp:
        return TritonHttp(_HOST, self._ports[0])

    def _has_nothing_to_save(self) -> bool:
        return self._engine == "reference" and UNLOADING in self.log()
