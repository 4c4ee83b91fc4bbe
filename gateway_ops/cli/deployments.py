"""Reads and chooses deployments of a settings file for commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway_ops.cli.console import fail

if TYPE_CHECKING:
    from gateway.settings.deployment_settings import DeploymentSettings


def load_deployments(file: Path, overrides: Sequence[str] = ()) -> tuple[DeploymentSettings, ...]:
    """Read the deployments of a settings file.

    Args:
        file: a settings file.
        overrides: ``[deployment/]key:value``, as `gateway repo --set` takes them.

    Raises:
        typer.Exit: the deployments are wrong or contradict each other, which is printed.
    """
    from gateway.settings.settings_validation import validate_deployments  # noqa: PLC0415
    from gateway.settings.yaml_file import ConfigError, SettingsDocument, SettingsProblem, dotted, read_document  # noqa: PLC0415
    from gateway_ops.repository.contradictions import contradictions  # noqa: PLC0415
    from gateway_ops.repository.overrides import OverrideError, apply_overrides  # noqa: PLC0415

    try:
        read = read_document(file)
        document = SettingsDocument(apply_overrides(read.data, list(overrides)), read.lines, read.problems)
    except (ConfigError, OverrideError) as error:
        raise fail(error) from None
    deployments, problems = validate_deployments(document)
    problems += [
        SettingsProblem(f"{dotted(found.keys)}: {found.reason}.", found.fix, document.line(found.keys))
        for found in contradictions(deployments)
    ]
    if problems:
        raise fail(ConfigError.of(problems, file))
    return tuple(deployments)


def choose_deployments(
    file: Path, deployments: Sequence[DeploymentSettings], only: Sequence[str]
) -> tuple[DeploymentSettings, ...]:
    """Choose deployments by name, all of them where ``only`` is empty.

    Raises:
        typer.Exit: no deployment has one of the names.
    """
    unknown = set(only) - {deployment.name for deployment in deployments}
    if unknown:
        raise fail(f"{file}: unknown deployment {min(unknown)!r}.")
    return tuple(deployment for deployment in deployments if not only or deployment.name in only)
