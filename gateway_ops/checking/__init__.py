"""Findings: what is wrong or doubtful in a settings file, and what an endpoint can do. Changes nothing."""

from gateway_ops.checking.findings import Finding, Severity
from gateway_ops.checking.report import Report, check

__all__ = ["Finding", "Report", "Severity", "check"]
