"""Triton with the gateway: started in order, watched, and stopped in the opposite order."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

import gateway_ops
from gateway_ops.local_stack import LocalStackError
from gateway_ops.local_stack.gateway_process import GatewayProcess
from gateway_ops.local_stack.minilm import EMBEDDING_MODEL
from gateway_ops.local_stack.server_watch import RestartPolicy
from gateway_ops.local_stack.state import RunFolder
from gateway_ops.local_stack.triton_installation import TritonStartError
from gateway_ops.local_stack.tritonserver import (
    EMBEDDING,
    EMBEDDING_VARIABLE,
    MODELS,
    TritonServer,
    decisive_log_lines,
)

_WATCH_S: Final = 0.2
_CPU_ENGINE: Final = "reference"
_TRITON_DEADLINE_S: Final = 120.0
_GPU_DEADLINE_S: Final = 1800.0  # weights of many gigabytes, and CUDA graphs to capture
_GATEWAY_DEADLINE_S: Final = 60.0
_RESTARTS: Final = RestartPolicy(most=5)


@dataclass(frozen=True, slots=True)
class HuggingFaceFolder:
    """A model folder in Hugging Face's layout.

    Attributes:
        folder: folder with config.json, tokenizer.json and weights.
        name: the model's name for clients.
        max_seq_len: most tokens of prompt and answer.
        sampling: variables of the gateway's defaults for requests, which the environment overrides.
    """

    folder: Path
    name: str
    max_seq_len: int
    sampling: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path, name: str) -> HuggingFaceFolder:
        """Read a model folder.

        Raises:
            LocalStackError: a needed file is missing, or config.json has no context length.
        """
        for file in ("config.json", "tokenizer.json"):
            if not (folder / file).is_file():
                raise LocalStackError(f"{folder} is not a model folder: it has no {file}.")
        if not any(folder.glob("*.safetensors")):
            raise LocalStackError(f"{folder} is not a model folder: it has no weights (*.safetensors).")
        try:
            positions = json.loads((folder / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
            return HuggingFaceFolder(folder, name, int(positions))
        except (ValueError, KeyError, TypeError):
            raise LocalStackError(f"{folder / 'config.json'} has no readable max_position_embeddings.") from None


@dataclass(frozen=True, slots=True)
class StackOptions:
    """The options of a stack.

    Attributes:
        host: address for the gateway to listen on.
        port: its port.
        model: the served model; None, without a gateway, where the repository names its own models.
        engine: engine of the Triton model ``tensorrt_llm``, the value of ``TRITON_ENGINE``.
        path: the gateway's path to the engine: auto, tokens or ensemble.
        repository: Triton's model repository.
        triton_only: leave the gateway out.
        template: file with the chat template; None takes the model folder's.
        family: the model family; None to detect it.
        embedding: folder of the encoder of the Triton model ``embedding``; None without one.
    """

    host: str
    port: int
    model: HuggingFaceFolder | None
    engine: str
    path: str
    repository: Path
    triton_only: bool = False
    template: Path | None = None
    family: str | None = None
    embedding: Path | None = None

    @property
    def what(self) -> str:
        """The name of the model or of the repository."""
        return self.model.name if self.model is not None else str(self.repository)


def find_repository() -> Path:
    """Find the model repository that comes with the gateway.

    Raises:
        LocalStackError: the package was installed without it.
    """
    folder = Path(gateway_ops.__file__).parent / "triton_repo"  # in a checkout a link to the folder of that name
    if not folder.is_dir():
        raise LocalStackError(f"The model repository {folder} does not exist: name it with --repository.")
    return folder.resolve()


def models_of(repository: Path) -> list[str]:
    """List the models of a repository by name.

    Raises:
        LocalStackError: the repository cannot be read, or has no models.
    """
    try:
        found = sorted(one.name for one in repository.iterdir() if (one / "config.pbtxt").is_file())
    except OSError as error:
        raise LocalStackError(f"{repository} cannot be read ({error.strerror}).") from None
    if not found:
        raise LocalStackError(f"{repository} is not a model repository: no folder in it has a config.pbtxt.")
    return found


_BATCH_TOKENS = 2048  # a CPU takes a second for these; other texts wait for two batches at most


def embedding_entry(folder: Path, triton_url: str) -> dict[str, Any]:
    """Make the entry of the settings ``models`` for the Triton model ``embedding``.

    Args:
        folder: folder of the encoder.
        triton_url: host:port of Triton's gRPC endpoint.
    """
    triton = {"url": triton_url, "model": EMBEDDING}
    return {
        "name": EMBEDDING_MODEL, "aliases": [EMBEDDING], "task": "embed", "triton": triton, "tokenizer": str(folder),
        "encoder": {"batch_tokens": _BATCH_TOKENS},
    }  # fmt: skip


class Stack:
    """A tritonserver with a gateway in front of it, unless left out; a context that always stops both.

    Args:
        options: the choices.
        folder: the folder for logs.
    """

    def __init__(self, options: StackOptions, folder: RunFolder) -> None:
        self.options = options
        self._on_gpu = options.engine != _CPU_ENGINE
        model = options.model
        env = {"MAX_SEQ_LEN": str(model.max_seq_len)} if model is not None else {}
        self.triton = TritonServer(
            options.repository,
            model_dir=model.folder if model is not None else None,
            engine=options.engine,
            env=env | ({EMBEDDING_VARIABLE: str(options.embedding)} if options.embedding is not None else {}),
            log_path=folder.log("triton"),
            gpu_metrics=self._on_gpu,
        )
        self.gateway = (
            None if options.triton_only else GatewayProcess(options.host, options.port, folder.log("gateway"))
        )
        self._settings = folder.path / "gateway.yaml"
        self._deadline_s = _GPU_DEADLINE_S if self._on_gpu else _TRITON_DEADLINE_S
        chat = MODELS if options.embedding is None else (*MODELS, EMBEDDING)
        self._models = models_of(options.repository) if options.triton_only else chat
        self._exit = ExitStack()
        self._ready_log = 0

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def start(self, progress: Callable[[str], None]) -> None:
        """Start both and wait until they are ready.

        Raises:
            LocalStackError: one of them does not start; the message has the decisive lines of its log.
        """
        progress(f"starting Triton Inference Server and loading {self.options.what}")
        try:
            self._exit.callback(self.triton.stop)
            self.triton.start()
            self.triton.wait_ready(self._models, self._deadline_s)
        except TritonStartError as error:
            raise LocalStackError(f"{error}\nThe whole log: {self.triton.log_path}") from error
        self._ready_log = len(self.triton.log())
        if self.gateway is not None and self.options.model is not None:
            progress("starting the gateway")
            self._start_gateway(self.gateway, self.options.model)

    def _start_gateway(self, gateway: GatewayProcess, model: HuggingFaceFolder) -> None:
        self._exit.callback(gateway.stop)
        chosen = {
            "GATEWAY_TEMPLATE": self.options.template,
            "GATEWAY_FAMILY": self.options.family,
            "GATEWAY_CONFIG": self._write_settings(),
        }
        gateway.start(
            {
                **{name: str(value) for name, value in chosen.items() if value is not None},
                **{name: value for name, value in model.sampling.items() if name not in os.environ},
                "GATEWAY_MODEL": model.name,
                "GATEWAY_TRITON_URL": self.triton.grpc_url,
                "GATEWAY_TRITON_METRICS_URL": self.triton.metrics_url,
                "GATEWAY_TOKENIZER": str(model.folder),
                "GATEWAY_MAX_SEQ_LEN": str(model.max_seq_len),
                "GATEWAY_PATH": self.options.path,
                "TRITON_ENGINE": self.options.engine,  # a variable of the engine's configuration
            }
        )
        gateway.wait_ready(_GATEWAY_DEADLINE_S)

    def _write_settings(self) -> Path | None:
        """Write the settings file of the encoder, beside the chat model of the environment; None without one."""
        if self.options.embedding is None:
            return None
        self._settings.write_text(
            json.dumps({"models": [embedding_entry(self.options.embedding, self.triton.grpc_url)]}), encoding="utf-8"
        )
        return self._settings

    def watch(self, tell: Callable[[str], None], policy: RestartPolicy = _RESTARTS) -> NoReturn:
        """Keep both running, and restart a Triton that died or hangs.

        Args:
            tell: takes a line for the operator.
            policy: policy of restarts.

        Raises:
            LocalStackError: the gateway died, or Triton did too often, with the lines of its log that say why.
        """
        restarts = 0
        while True:
            began = time.monotonic()
            trouble = self._wait_for_trouble()
            restarts = 0 if time.monotonic() - began >= policy.calm_s else restarts
            # Only what Triton wrote since it was ready: harmless complaints of its start do not explain its death.
            lines = "".join(f"{line}\n" for line in decisive_log_lines(self.triton.log()[self._ready_log :]))
            if restarts >= policy.most:
                raise LocalStackError(f"tritonserver {trouble}.\n{lines}The whole log: {self.triton.log_path}")
            wait_s = policy.wait_s(restarts)
            restarts += 1
            tell(f"tritonserver {trouble}; starting it again in {wait_s:g} s ({restarts} of {policy.most})\n{lines}")
            self.triton.kill()
            time.sleep(wait_s)
            self._restart_triton()
            tell("tritonserver is ready again")

    def _restart_triton(self) -> None:
        address = self.triton.grpc_url
        try:
            self.triton.start()
            self.triton.wait_ready(self._models, self._deadline_s)
        except TritonStartError as error:
            raise LocalStackError(f"{error}\nThe whole log: {self.triton.log_path}") from error
        if self.triton.grpc_url != address:
            raise LocalStackError(f"Another program now uses Triton's port {address}.")
        self._ready_log = len(self.triton.log())

    def _wait_for_trouble(self) -> str:
        """Wait until Triton must be started again; why, as the rest of a sentence on it."""
        watch = self.triton.watch(self.gateway.engine_dead if self.gateway is not None else bool)
        while True:
            pid = self.triton.pid
            trouble = self.triton.ending if pid is None else watch.trouble(pid)
            if trouble:
                return trouble
            if self.gateway is not None and not self.gateway.running:
                raise LocalStackError(
                    f"The gateway died:\n{self.gateway.log_tail()}\nThe whole log: {self.gateway.log_path}"
                )
            time.sleep(_WATCH_S)
