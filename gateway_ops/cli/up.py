"""``gateway up``: a real Triton on the CPU and the gateway in front of it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from gateway_ops.cli.console import Progress, fail
from gateway_ops.cli.detach import run_detached
from gateway_ops.local_stack import platform_check
from gateway_ops.local_stack.errors import DeploymentError
from gateway_ops.local_stack.gateway_process import check_port_free
from gateway_ops.local_stack.smollm2 import MODEL_NAME, ensure_model_folder
from gateway_ops.local_stack.stack import ModelFolder, Stack, StackOptions, find_repository, models_of
from gateway_ops.local_stack.state import Process, RunFolder, RunState
from gateway_ops.local_stack.usage import curl_line, python_snippet

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class PathChoice(str, Enum):
    """How the gateway reaches the engine."""

    AUTO = "auto"
    TOKENS = "tokens"
    ENSEMBLE = "ensemble"


class EngineChoice(str, Enum):
    """What runs behind the Triton model ``tensorrt_llm``."""

    REFERENCE = "reference"
    TRANSFORMERS = "transformers"


def up(
    model: Annotated[
        Path | None,
        typer.Option(help="Folder of a Llama model in Hugging Face style; SmolLM2-135M-Instruct when not given."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address the gateway listens on; Triton stays on loopback.", envvar="GATEWAY_HOST")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port the gateway listens on.", envvar="GATEWAY_PORT")
    ] = 9000,
    detach: Annotated[bool, typer.Option("--detach", help="Return when ready; gateway down stops it.")] = False,
    path: Annotated[
        PathChoice, typer.Option(help="Token ids straight to the engine (tokens), or text through the ensemble.")
    ] = PathChoice.AUTO,
    engine: Annotated[
        EngineChoice, typer.Option(help="What runs behind the Triton model tensorrt_llm.")
    ] = EngineChoice.REFERENCE,
    repository: Annotated[
        Path | None, typer.Option(help="Triton model repository; triton_repo of this clone when not given.")
    ] = None,
    triton_only: Annotated[
        bool,
        typer.Option(
            "--triton-only",
            help="No gateway: Triton alone, with all models of the repository; --port only names it for gateway down.",
        ),
    ] = False,
) -> None:
    """Start Triton with the five TensorRT-LLM models, by default on the CPU, and the gateway; Ctrl-C stops both."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        with Progress() as progress:
            _check(None if triton_only else host, port)
            triton_repo = (repository or find_repository()).resolve()
            if triton_only:
                models_of(triton_repo)  # a folder that is none is said before anything is started
            # A repository of one's own names its models itself, unless it reads MODEL_DIR.
            needs_model = not triton_only or repository is None or model is not None
            found = _find_model(model, progress) if needs_model else None
            chosen = StackOptions(host, port, found, engine.value, path.value, triton_repo, triton_only)
            if not detach:
                _run(chosen, progress)
                return
            state = run_detached(_arguments(chosen, model), RunFolder(port), progress)
        _print_usage(state, RunFolder(port), f"gateway down --port {port} stops it.")
    except DeploymentError as error:
        raise fail(error) from None
    except KeyboardInterrupt:
        raise fail("interrupted before it was ready; everything is stopped.", _INTERRUPTED) from None


def _check(host: str | None, port: int) -> None:
    # Cheap, and before anything is downloaded or started.
    found = platform_check.problems(platform_check.gather(), need_venv=False)
    if found:
        raise DeploymentError("\n".join(found))
    if host is not None:
        check_port_free(host, port)


def _find_model(model: Path | None, progress: Progress) -> ModelFolder:
    if model is None:
        return ModelFolder.read(ensure_model_folder(progress.step), MODEL_NAME)
    folder = model.expanduser().resolve()
    return ModelFolder.read(folder, folder.name)


def _arguments(chosen: StackOptions, model: Path | None) -> list[str]:
    named = [] if model is None or chosen.model is None else ["--model", str(chosen.model.folder)]
    return [
        *named,
        *(["--triton-only"] if chosen.triton_only else []),
        *("--host", chosen.host, "--port", str(chosen.port), "--path", chosen.path),
        *("--engine", chosen.engine, "--repository", str(chosen.repository)),
    ]


def _run(chosen: StackOptions, progress: Progress) -> None:
    # In the foreground: until Ctrl-C, or until a part dies.
    folder = RunFolder(chosen.port)
    with folder.claim(), Stack(chosen, folder) as stack:
        url = stack.gateway.url if stack.gateway is not None else ""
        state = RunState(Process.of(os.getpid()), False, url, chosen.what)
        folder.write(state)
        try:
            stack.start(progress.step)
            state = replace(state, ready=True, triton_grpc=stack.triton.grpc_url, triton_http=stack.triton.http_url)
            folder.write(state)
            progress.close()
            _print_usage(state, folder, "Ctrl-C stops everything.")
            stack.watch()
        except KeyboardInterrupt:
            # Stopping has deadlines of its own; a second Ctrl-C would only leave things behind.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            if not state.ready:
                raise
            typer.echo("\nstopping", err=True)
    typer.echo("stopped", err=True)


def _print_usage(state: RunState, folder: RunFolder, how_to_stop: str) -> None:
    if not state.url:
        told = f"Ready: {state.model} in Triton: gRPC {state.triton_grpc}, HTTP {state.triton_http}"
        typer.echo("\n".join([told, f"Log: {folder.log('triton')}", how_to_stop]))
        return
    lines = [
        f"Ready: {state.model} at {state.url}/v1 (Triton: gRPC {state.triton_grpc}, HTTP {state.triton_http})",
        "",
        curl_line(state.url, state.model, os.environ),
        "",
        python_snippet(state.url, state.model, os.environ),
        "",
        f"Logs: {folder.log('gateway')}, {folder.log('triton')}",
        how_to_stop,
    ]
    typer.echo("\n".join(lines))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
