"""``gateway up`` and ``gateway down``: a real Triton on the CPU with the gateway in front of it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import urlsplit

import typer

from gateway_ops.cli.console import Progress, echo, fail
from gateway_ops.cli.detach import run_detached
from gateway_ops.local_stack import LocalStackError, platform_check
from gateway_ops.local_stack.gateway_process import answers, check_port_free
from gateway_ops.local_stack.state import Process, RunFolder, RunState

if TYPE_CHECKING:
    from gateway_ops.local_stack.stack import HuggingFaceFolder, StackOptions

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def up(  # noqa: PLR0913, PLR0917 - one for each option
    model: Annotated[
        Path | None, typer.Option(help="Hugging Face folder of a Llama model; SmolLM2-135M-Instruct when not given.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address the gateway listens on; Triton stays on loopback.", envvar="GATEWAY_HOST")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the gateway.", envvar="GATEWAY_PORT")] = 9000,
    detach: Annotated[bool, typer.Option("--detach", help="Return when ready; gateway down stops it.")] = False,
    path: Annotated[
        Literal["auto", "tokens", "ensemble"],
        typer.Option(help="Send token ids to the engine (tokens), or text to the ensemble (ensemble)."),
    ] = "auto",
    engine: Annotated[
        Literal["reference", "transformers"], typer.Option(help="Engine behind the Triton model tensorrt_llm.")
    ] = "reference",
    template: Annotated[
        Path | None,
        typer.Option(
            help="Jinja chat template, or chat_templates/NAME.jinja of the gateway's own; the model's when not given.",
            envvar="GATEWAY_TEMPLATE",
        ),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            help="How the model writes tool calls and reasoning; detected from its files and template when not given.",
            envvar="GATEWAY_FAMILY",
        ),
    ] = None,
    repository: Annotated[Path | None, typer.Option(help="Model repository; the gateway's own by default.")] = None,
    embedding: Annotated[
        bool | None,
        typer.Option(
            "--embedding/--no-embedding",
            help="Load all-MiniLM-L6-v2 into the Triton model embedding; by default without --model and --repository.",
        ),
    ] = None,
    triton_only: Annotated[
        bool,
        typer.Option(
            "--triton-only",
            help="Start only Triton, with all models of the repository; --port identifies it for gateway down and "
            "stays free for your own gateway.",
        ),
    ] = False,
) -> None:
    """Start Triton with a chat model and an encoder, by default on the CPU, and the gateway; Ctrl-C stops both."""
    # Imported here, and below: the other commands need none of it.
    from gateway_ops.local_stack.stack import StackOptions, find_repository, models_of  # noqa: PLC0415

    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        with Progress() as progress:
            _check(None if triton_only else host, port)
            found_template = _find_template(template)
            _check_family(family)
            triton_repo = (repository or find_repository()).resolve()
            if triton_only:
                models_of(triton_repo)  # a wrong folder is reported before anything starts
            # The user's own repository names its models itself, unless it reads MODEL_DIR.
            needs_model = not triton_only or repository is None or model is not None
            found = _find_model(model, progress) if needs_model else None
            if found_template is not None and found is not None:
                _check_template(found_template, found)
            embeds = model is None and repository is None if embedding is None else embedding
            encoder = _find_encoder(triton_repo, progress) if embeds else None
            chosen = StackOptions(
                host, port, found, engine, path, triton_repo, triton_only, found_template, family, encoder
            )
            if not detach:
                _run(chosen, progress)
                return
            state = run_detached(_arguments(chosen, model), RunFolder(port), progress)
        _print_usage(state, RunFolder(port), f"gateway down --port {port} stops it.")
    except LocalStackError as error:
        raise fail(error) from None
    except KeyboardInterrupt:
        raise fail("interrupted before it was ready; everything is stopped.", _INTERRUPTED) from None


def _check(host: str | None, port: int) -> None:
    # Cheap, and before anything is downloaded or started.
    found = platform_check.problems(platform_check.gather(), need_venv=False)
    if found:
        raise LocalStackError("\n".join(found))
    if host is not None:
        check_port_free(host, port)


def _find_model(model: Path | None, progress: Progress) -> HuggingFaceFolder:
    from gateway_ops.local_stack.smollm2 import MODEL_NAME, SAMPLING, ensure_model_folder  # noqa: PLC0415
    from gateway_ops.local_stack.stack import HuggingFaceFolder  # noqa: PLC0415

    if model is None:
        return replace(HuggingFaceFolder.read(ensure_model_folder(progress.step), MODEL_NAME), sampling=SAMPLING)
    folder = model.expanduser().resolve()
    return HuggingFaceFolder.read(folder, folder.name)


def _find_encoder(repository: Path, progress: Progress) -> Path:
    from gateway_ops.local_stack.minilm import ensure_embedding_folder  # noqa: PLC0415
    from gateway_ops.local_stack.stack import models_of  # noqa: PLC0415
    from gateway_ops.local_stack.tritonserver import EMBEDDING  # noqa: PLC0415

    if EMBEDDING not in models_of(repository):
        raise LocalStackError(f"--embedding: {repository} has no model {EMBEDDING}.")
    try:
        return ensure_embedding_folder(progress.step)
    except LocalStackError as error:
        raise LocalStackError(f"{error}\nTo start without embeddings: --no-embedding.") from None


def _find_template(template: Path | None) -> Path | None:
    if template is None:
        return None
    from gateway.settings.model_settings import template_path  # noqa: PLC0415

    found = template_path(template.expanduser(), Path.cwd())
    if not found.is_file():
        raise LocalStackError(f"--template: file not found: {found}.")
    return found


def _check_template(template: Path, model: HuggingFaceFolder) -> None:
    from gateway.text.prompt import TemplateError, load_template  # noqa: PLC0415
    from gateway.text.tokens import Tokenizer  # noqa: PLC0415

    try:
        fault = load_template(Tokenizer.from_folder(model.folder), template).fault
    except TemplateError as error:
        raise LocalStackError(f"--template: {template}: {error}") from None
    if fault is not None:
        raise LocalStackError(f"--template: {template}: it cannot render a user message: {fault}.")


def _check_family(family: str | None) -> None:
    from gateway.text.families.family_choice import UnknownFamilyError, named  # noqa: PLC0415

    try:
        if family is not None:
            named(family)
    except UnknownFamilyError as error:
        raise LocalStackError(f"--family: {error}") from None


def _arguments(chosen: StackOptions, model: Path | None) -> list[str]:
    named = [] if model is None or chosen.model is None else ["--model", str(chosen.model.folder)]
    return [
        *named,
        *([] if chosen.template is None else ["--template", str(chosen.template)]),
        *([] if chosen.family is None else ["--family", chosen.family]),
        "--no-embedding" if chosen.embedding is None else "--embedding",
        *(["--triton-only"] if chosen.triton_only else []),
        *("--host", chosen.host, "--port", str(chosen.port), "--path", chosen.path),
        *("--engine", chosen.engine, "--repository", str(chosen.repository)),
    ]


def _run(chosen: StackOptions, progress: Progress) -> None:
    # In the foreground: until Ctrl-C, until the gateway dies, or until Triton has died too often.
    from gateway_ops.local_stack.stack import Stack  # noqa: PLC0415
    from gateway_ops.local_stack.tritonserver import EMBEDDING  # noqa: PLC0415

    folder = RunFolder(chosen.port)
    with folder.claim(), Stack(chosen, folder) as stack:
        url = stack.gateway.url if stack.gateway is not None else ""
        embedding = "" if chosen.embedding is None else EMBEDDING
        state = RunState(Process.of(os.getpid()), False, url, chosen.what, embedding=embedding)
        if chosen.model is not None:
            state = replace(state, tokenizer=str(chosen.model.folder), max_seq_len=chosen.model.max_seq_len)
        folder.write(state)
        try:
            stack.start(progress.step)
            triton = stack.triton
            state = replace(state, ready=True, triton_grpc=triton.grpc_url, triton_http=triton.http_url)
            state = replace(state, triton_metrics=triton.metrics_url)
            folder.write(state)
            progress.close()
            _print_usage(state, folder, "Ctrl-C stops everything.")
            stack.watch(lambda line: echo(line.rstrip(), err=True))
        except KeyboardInterrupt:
            # Stopping has deadlines of its own; a second Ctrl-C would only leave things behind.
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            if not state.ready:
                raise
            typer.echo("\nstopping", err=True)
    typer.echo("stopped", err=True)


def _print_usage(state: RunState, folder: RunFolder, how_to_stop: str) -> None:
    models = f"{state.model} and {state.embedding}" if state.embedding else state.model
    if not state.url:
        lead = f"Ready: {models} in Triton: gRPC {state.triton_grpc}, HTTP {state.triton_http}"
        log = f"Log: {folder.log('triton')}"
        typer.echo(f"{lead}\n\n{_own_gateway(state, folder.port)}\n\n{log}\n{how_to_stop}")
        return
    parts = [
        f"Ready: {models} at {state.url}/v1 (Triton: gRPC {state.triton_grpc}, HTTP {state.triton_http})",
        "\n".join(_to_try(state.url)),
        curl_line(state.url, state.model, os.environ),
        python_snippet(state.url, state.model, os.environ),
        _own_gateway(state, folder.port),
        f"Logs: {folder.log('gateway')}, {folder.log('triton')}\n{how_to_stop}",
    ]
    typer.echo("\n\n".join(parts))


def _own_gateway(state: RunState, port: int) -> str:
    """The line that starts another gateway before this Triton, or that shows what a model of a repository can."""
    if not state.tokenizer:
        return f"What a model can do: {_command()} check {state.triton_grpc} --model NAME"
    variables = {
        "GATEWAY_PORT": port + 1 if state.url else port,
        "GATEWAY_MODEL": state.model,
        "GATEWAY_TRITON_URL": state.triton_grpc,
        "GATEWAY_TRITON_METRICS_URL": state.triton_metrics,
        "GATEWAY_TOKENIZER": state.tokenizer,
        "GATEWAY_MAX_SEQ_LEN": state.max_seq_len,
    }
    line = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items() if value)
    return f"To run your own gateway in front of this Triton:\n{line} {_command()} serve"


def _to_try(url: str) -> list[str]:
    """Name what talks to the gateway without another line of code."""
    parts = urlsplit(url)
    page = answers(parts.hostname or "", parts.port or 80, "/")
    command = _command()
    lines = [("In a browser:", f"{url}/")] if page else []
    lines += [("In a terminal:", f"{command} chat {url}"), ("What it can do:", f"{command} check {url}")]
    return [f"{what:<16}{how}" for what, how in lines]


def _command() -> str:
    """The command that runs ``gateway`` in this shell."""
    started_as = sys.argv[0]
    return shlex.quote(os.path.relpath(started_as)) if Path(started_as).name == "gateway" else "gateway"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


_DEADLINE_S = 45.0  # Triton and the gateway have deadlines of their own, which fit in


def down(
    port: Annotated[int, typer.Option(help="Port of the gateway.", envvar="GATEWAY_PORT")] = 9000,
) -> None:
    """Stop what gateway up started on a port, and wait until it has ended."""
    state = RunFolder(port).read()
    if RunFolder(port).stop(_DEADLINE_S):
        whole = state is None or state.url
        typer.echo(f"The gateway on port {port} and its Triton are stopped." if whole else "Triton is stopped.")
    else:
        typer.echo(f"Nothing to stop: no gateway is up on port {port}.")


_QUESTION: Final = "What is the capital of France?"


def curl_line(url: str, model: str, environ: Mapping[str, str]) -> str:
    """Make one shell line that streams an answer.

    Args:
        url: base URL of the gateway, without ``/v1``.
        model: name of the served model.
        environ: the gateway's environment; where it sets API keys the line uses the first.
    """
    messages = [{"role": "user", "content": _QUESTION}]
    body = {"model": model, "messages": messages, "temperature": 0, "stream": True}
    words = ["curl", "-N", shlex.quote(f"{url}/v1/chat/completions"), "-H 'Content-Type: application/json'"]
    if environ.get("GATEWAY_API_KEYS"):
        words.append('-H "Authorization: Bearer ${GATEWAY_API_KEYS%%,*}"')
    return " ".join([*words, "-d", shlex.quote(json.dumps(body))])


def python_snippet(url: str, model: str, environ: Mapping[str, str]) -> str:
    """Make a short program with the OpenAI SDK; the arguments are those of ``curl_line``."""
    key = 'os.environ["GATEWAY_API_KEYS"].split(",")[0]' if environ.get("GATEWAY_API_KEYS") else '"unused"'
    lines = ["import os", ""] if key != '"unused"' else []
    lines += [
        "from openai import OpenAI  # pip install openai",
        "",
        f'client = OpenAI(base_url="{url}/v1", api_key={key})',
        "answer = client.chat.completions.create(",
        f"    model={json.dumps(model)},",
        f'    messages=[{{"role": "user", "content": "{_QUESTION}"}}],',
        "    temperature=0,",
        ")",
        "print(answer.choices[0].message.content)",
    ]
    return "\n".join(lines)
