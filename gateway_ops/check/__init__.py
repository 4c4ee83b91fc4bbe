"""The work of ``gateway check``: findings on settings files and repositories, and features of endpoints. Read-only."""

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.report import CheckReport, check

__all__ = ["CheckReport", "Finding", "Severity", "check"]
