"""Chooses the tritonserver of a launch: NVIDIA's image, PATH, or the embedded one where no GPU is needed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.launch.commands import IMAGE_BINARY
from gateway_ops.local_stack.triton_installation import (
    TritonStartError,
    find_tritonserver,
    prepare_backend_directory,
    stub_environment,
)


@dataclass(frozen=True, slots=True)
class Installation:
    """A tritonserver with the options and the environment that it needs.

    Attributes:
        binary: the executable; may be missing, which a check reports.
        options: options of the command line.
        env: the environment.
    """

    binary: Path
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


def choose_installation(named: Path | None, deployments: Sequence[DeploymentSettings]) -> Installation:
    """Choose the tritonserver that serves deployments.

    Raises:
        TritonStartError: only the embedded one exists, and it lacks a part.
    """
    env = dict(os.environ)
    if named is not None:
        return Installation(named, env=env)
    found = shutil.which(str(IMAGE_BINARY)) or shutil.which("tritonserver")
    if found is not None:
        return Installation(Path(found), env=env)
    if any(one.engine in ("tensorrt", "llmapi") for one in deployments):
        return Installation(IMAGE_BINARY, env=env)  # only NVIDIA's image has these backends
    try:
        embedded = find_tritonserver()
    except TritonStartError:
        return Installation(IMAGE_BINARY, env=env)
    backends = prepare_backend_directory(embedded)
    return Installation(embedded.binary, (f"--backend-directory={backends}",), stub_environment(env))
