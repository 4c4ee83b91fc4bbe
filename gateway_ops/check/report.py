"""The report of ``gateway check`` with all findings on a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from gateway.settings import Task
from gateway_ops.check.endpoint import ServedDescription, describe_gateway, describe_triton
from gateway_ops.check.findings import STARTS_WITHOUT, Finding, Severity
from gateway_ops.check.repository import check_repository
from gateway_ops.check.settings_file import check_file


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check.

    Attributes:
        findings: in the order of the file, or of the endpoint's models.
        models: the discovered models, by served name or Triton model.
        proves: whether engines got a probe.
    """

    findings: tuple[Finding, ...]
    models: Mapping[str, ServedDescription]
    proves: bool = False

    @property
    def errors(self) -> int:
        """The number of errors."""
        return sum(finding.severity is Severity.ERROR for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Make plain values: ``ok``, ``traffic`` (``yes``, ``no, because ...``, null), ``findings``, ``models``."""
        return {
            "ok": not self.errors,
            "traffic": self._traffic() if self.proves else None,
            "findings": [{**asdict(finding), "severity": finding.severity.value} for finding in self.findings],
            "models": {name: asdict(model) for name, model in self.models.items()},
        }

    def _traffic(self) -> str:
        """Whether requests can be sent, and the first reason why not."""
        open_ = [each for each in self.findings if each.severity is Severity.ERROR or each.fix == STARTS_WITHOUT]
        if open_:
            return f"no, because: {open_[0].what}"
        if not self.models:
            return "no, because no model is configured"
        return "yes"


async def check(
    target: str,
    *,
    model: str,
    api_key: str | None,
    offline: bool,
    task: Task | None = None,
    tokenizer: Path | None = None,
) -> CheckReport:
    """Check a settings file, a model repository, a Triton or a running gateway.

    Args:
        target: a file or a folder; ``host:port`` of a Triton's gRPC endpoint; or the URL of a gateway.
        model: the Triton model to describe, when the target is a Triton.
        api_key: a key, when the target is a gateway.
        offline: whether to skip the Tritons that a file names.
        task: task of the model, when the target is a Triton; None where its configuration tells.
        tokenizer: folder of its tokenizer, for another task than to generate.
    """
    if target.startswith(("http://", "https://")):
        findings, models = await describe_gateway(target, api_key)
    elif is_triton(target):
        findings, models = await describe_triton(target, model, task, tokenizer)
    elif is_folder(target):
        findings, models = await anyio.to_thread.run_sync(check_repository, Path(target)), {}
    else:
        findings, models = await check_file(Path(target), offline=offline)
    return CheckReport(tuple(findings), models, proves=not offline and not is_folder(target))


def is_folder(target: str) -> bool:
    """Tell whether a target is a folder, which is a model repository."""
    return Path(target).is_dir()


def is_triton(target: str) -> bool:
    """Tell whether a target is host:port; an existing file of this form is a file."""
    host, _, port = target.rpartition(":")
    return bool(host) and port.isdigit() and "/" not in target and not Path(target).exists()
