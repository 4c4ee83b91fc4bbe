"""Runs the steps of a plan once each, resumes an interrupted build, and replaces no files of others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.engines.commands import Command
from gateway_ops.engines.machine import Machine, same_version
from gateway_ops.engines.manifest import (
    Manifest,
    ManifestError,
    changed_files,
    manifest_path,
    read_manifest,
    step_key,
    write_manifest,
    written_files,
)
from gateway_ops.engines.weights import unusable_model
from gateway_ops.repository.build_steps import prepares_checkpoint
from gateway_ops.repository.tool_flags import rejected_words

Tell = Callable[[str], None]
_WORK = ".work"
_TAIL_LINES, _TAIL_BYTES = 12, 2**16
_HINTS = {
    "No space left on device": "The disk is full: free some, and run the command again.",
    "out of memory": "Too little memory for this step; `gateway engine plan` shows how much memory the engine needs.",
}


class BuildError(Exception):
    """A build that cannot continue; the message names the place and the fix."""


def build(
    deployment: DeploymentSettings,
    commands: Sequence[Command],
    machine: Machine,
    tell: Tell,
    *,
    judge: Callable[[], None] = lambda: None,
    rebuild: bool = False,
) -> None:
    """Run the steps of a deployment that were not run yet.

    Args:
        deployment: without contradictions.
        commands: its commands in order.
        machine: this machine.
        tell: called with a line for each step that begins or was run before.
        judge: called when the model is there, before the first conversion.
        rebuild: whether results of other inputs are set aside and built again.

    Raises:
        BuildError: a step cannot be run, or failed.
    """
    _suitable(deployment, machine)
    for command in commands:
        _not_rejected(deployment, command)
    _model_is_whole(deployment, commands)
    if not commands:
        return
    base = _base(commands)
    with _alone(base):
        for number, command in enumerate(commands, 1):
            if number == 2 and commands[0].step.name == "download":
                judge()
            numbered = partial(_numbered, tell, f"{deployment.name}, step {number} of {len(commands)}")
            with _model_alone(command, base):
                _named(deployment, command, machine, numbered, base, rebuild=rebuild)


def _numbered(tell: Tell, place: str, said: str) -> None:
    tell(f"{place}: {said}")


def _named(
    deployment: DeploymentSettings, command: Command, machine: Machine, tell: Tell, base: Path, *, rebuild: bool
) -> None:
    """Run a step; what the disk or a manifest denies is named with its place."""
    try:
        _step(deployment, command, machine, tell, base, rebuild=rebuild)
    except ManifestError as error:
        raise BuildError(str(error)) from None
    except OSError as error:
        where = error.filename or command.partial
        raise BuildError(f"{command.step.title}: {where}: {error.strerror}.") from None


def _suitable(deployment: DeploymentSettings, machine: Machine) -> None:
    wanted, found = deployment.trtllm, machine.trtllm
    if not found:
        raise BuildError(
            f"TensorRT-LLM is not installed for the python3 of this PATH. Run this in the image of version {wanted} "
            "that will serve (nvcr.io/nvidia/tritonserver, tags that end in trtllm-python-py3)."
        )
    if not same_version(wanted, found):
        raise BuildError(
            f"this image has TensorRT-LLM {found}, but deployment {deployment.name!r} has trtllm: {wanted}. "
            "An engine runs in the version that built it: use the image of that version, or change the deployment."
        )
    if deployment.engine == "tensorrt" and not machine.gpus:
        raise BuildError(
            "nvidia-smi finds no GPU on this machine. Build an engine on the kind of GPU that will run it."
        )


def _model_is_whole(deployment: DeploymentSettings, commands: Sequence[Command]) -> None:
    """Look at a model that no step fetches, before a tool spends an hour on half of it."""
    if commands and (commands[0].step.name == "download" or not commands[0].words):
        return
    sources = commands[0].step.reads if prepares_checkpoint(deployment) else (deployment.folder,)
    reason = unusable_model(Path(sources[0]))
    if reason is not None:
        raise BuildError(f"{reason} Download the whole model, or correct model.source and model.folder.")


def _not_rejected(deployment: DeploymentSettings, command: Command) -> None:
    rejected = rejected_words(command.step.tool, deployment.trtllm, command.step.options) if command.words else []
    if rejected:
        raise BuildError(f"{command.step.title}: {'; '.join(rejected)}.")


def _base(commands: Sequence[Command]) -> Path:
    """The folder of lock and logs: beside the last folder that is made."""
    engine = next((one for one in commands if one.step.name == "engine"), commands[-1])
    return engine.result.with_name(f"{engine.result.name}{_WORK}")


@contextlib.contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Hold the lock of a build; tools inherit it, so that one which outlived its builder still holds it."""
    try:
        base.mkdir(parents=True, exist_ok=True)
        lock = os.open(base / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BuildError(f"{error.filename}: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.set_inheritable(lock, True)
        yield
    except BlockingIOError:
        raise BuildError(f"{base} is in use by another build, or by a tool that a build left running.") from None
    finally:
        os.close(lock)


def _model_alone(command: Command, base: Path) -> contextlib.AbstractContextManager[None]:
    """Hold a lock of its own for a download: other engines may be built from the same model at the same time."""
    shared = command.result.with_name(f"{command.result.name}{_WORK}")
    fetches = command.step.name == "download" and not (command.result / "config.json").is_file()
    return _alone(shared) if fetches and shared != base else contextlib.nullcontext()


def _step(
    deployment: DeploymentSettings, command: Command, machine: Machine, tell: Tell, base: Path, *, rebuild: bool
) -> None:
    step, result = command.step, command.result
    if not command.words:
        if not (result / "config.json").is_file():
            raise BuildError(f"{step.by_hand}. Put it at {result}, and run this command again.")
        tell(f"{step.title}: {result} is there")
        return
    trtllm = "" if step.tool == "hf" else machine.trtllm
    capability = machine.gpus[0].capability if step.name == "engine" else ""
    gpu = machine.gpus[0].name if step.name == "engine" else ""
    final = (step.tool, *step.options)
    key = step_key(final, tuple(Path(folder) for folder in step.reads), trtllm, capability)
    if _done(command, key, tell, rebuild=rebuild):
        return
    _set_aside_partial(command, tell)
    tell(f"{step.title} (log: {base / step.name}.log)")
    began = time.monotonic()
    _run(command, base)
    _complete(deployment, command)
    seconds = round(time.monotonic() - began, 1)
    manifest = Manifest(step.name, deployment.name, key, final, trtllm, gpu, capability, seconds)
    _keep(command, manifest)


def _done(command: Command, key: str, tell: Tell, *, rebuild: bool) -> bool:
    """Whether the result is there, and is what the step would make; what is something else is never replaced.

    Raises:
        BuildError: something else is there.
    """
    step, result = command.step, command.result
    what: str | None
    if not result.exists() or (result.is_dir() and not any(result.iterdir())):
        return False
    try:
        manifest = read_manifest(result, single=command.single)
    except ManifestError:
        what = f"has a manifest that cannot be read ({manifest_path(result, single=command.single).name})"
    else:
        taken = manifest is None and step.name == "download" and (result / "config.json").is_file()
        what = _not_whole(result) if taken else _otherwise(command, manifest, key)
        if what is None:
            tell(f"{step.title}: {f'{result} is there' if taken else 'done before'}")
            return True
    if not rebuild:
        raise BuildError(f"{result} {what}. Use --rebuild to rename it and build it again; nothing is deleted.")
    tell(f"{result} {what}: renamed to {_aside(result)}")
    return False


def _not_whole(model: Path) -> str | None:
    reason = unusable_model(model)
    return f"is incomplete: {reason.rstrip('.')}" if reason is not None else None


def _otherwise(command: Command, manifest: Manifest | None, key: str) -> str | None:
    """Say in what way a result is not the step's own; None where it is."""
    result = command.result
    if manifest is None:
        return "exists, and has no manifest of this gateway"
    if not manifest.intact:
        return f"has a manifest that was edited by hand ({manifest_path(result, single=command.single).name})"
    if manifest.key != key:
        gpu = f" on {manifest.gpu}" if manifest.gpu else ""
        version = f" by TensorRT-LLM {manifest.trtllm}" if manifest.trtllm else ""
        return f"was built from other inputs, options, version or GPU (built{version}{gpu})"
    changed = list(changed_files(result.parent if command.single else result, manifest, whole=False))
    return f"has changed since it was built: {'; '.join(changed)}" if changed else None


def _aside(path: Path) -> Path:
    """Rename a folder or file, with its manifest, to a name that is free; nothing is deleted."""
    number = 1
    while (other := path.with_name(f"{path.name}.before-{number}")).exists():
        number += 1
    beside = manifest_path(path, single=True)
    path.rename(other)
    if beside.exists():
        beside.rename(other.with_name(f"{other.name}.manifest"))
    return other


def _set_aside_partial(command: Command, tell: Tell) -> None:
    half = command.partial
    if not half.exists() or command.step.name == "download":  # a download is resumed
        return
    tell(f"{half} is an unfinished result of an earlier run: renamed to {_aside(half)}, and built again")


def _run(command: Command, base: Path) -> None:
    log = base / f"{command.step.name}.log"
    command.partial.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - the plan's own words, no shell
                command.words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                close_fds=False,  # the lock goes with it
            )
        except FileNotFoundError:
            raise BuildError(f"{command.words[0]} is not on PATH: run this in TensorRT-LLM's image.") from None
        try:
            status = process.wait()
        except BaseException:
            _end(process)
            raise
    if status:
        raise BuildError(_failure(command, status, log))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a tool and what it started, for the builder itself is being ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def _failure(command: Command, status: int, log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        text = file.read().decode(errors="replace")
    tail = "\n".join(f"  {line}" for line in text.splitlines()[-_TAIL_LINES:])
    how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
    hint = next((f" {fix}" for sign, fix in _HINTS.items() if sign in text), "")
    kept = f" What it wrote is in {command.partial}." if command.partial.exists() else ""
    return f"{command.step.title}: {command.words[0]} {how}.{hint}{kept} The end of {log}:\n{tail}"


def expected_files(deployment: DeploymentSettings, command: Command) -> tuple[str, ...]:
    """The files that a step's complete result must have."""
    step, ranks = command.step, deployment.parallelism.tp * deployment.parallelism.pp
    if step.name == "engine":
        return ("config.json", *(f"rank{rank}.engine" for rank in range(ranks)))
    if step.name == "checkpoint" and deployment.engine == "tensorrt":
        return ("config.json", *(f"rank{rank}.safetensors" for rank in range(ranks)))
    if step.name.startswith("adapter"):
        return ("model.lora_weights.npy", "model.lora_config.npy")
    return (step.made[0],) if step.made is not None else ("config.json",)


def _complete(deployment: DeploymentSettings, command: Command) -> None:
    missing = [name for name in expected_files(deployment, command) if not (command.partial / name).is_file()]
    if missing:
        raise BuildError(
            f"{command.step.title}: {command.words[0]} succeeded, but {command.partial} lacks {', '.join(missing)}."
        )


def _keep(command: Command, manifest: Manifest) -> None:
    """Hash the written files, write their manifest, and rename the result to its final name."""
    made, written, result = command.step.made, command.partial, command.result
    outputs = written_files(written)
    if made is None:
        write_manifest(written, replace(manifest, outputs=outputs))
        if result.exists():
            result.rmdir()  # it is empty
        written.rename(result)
        return
    # The manifest first: a file without a manifest counts as another tool's, while a manifest alone means nothing.
    write_manifest(result, replace(manifest, outputs={result.name: outputs[made[0]]}), single=True)
    (written / made[0]).replace(result)
    shutil.rmtree(written)
