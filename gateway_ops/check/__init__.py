"""The findings of ``gateway check``: mistakes in settings files and repositories, abilities of endpoints. Read-only."""

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.report import CheckReport, check

__all__ = ["CheckReport", "Finding", "Severity", "check"]
