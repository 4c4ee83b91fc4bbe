"""The findings of ``gateway check``: mistakes in settings files and repositories, abilities of endpoints. Read-only."""

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.report import Report, check

__all__ = ["Finding", "Report", "Severity", "check"]
