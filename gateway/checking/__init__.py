"""Findings: what is wrong or doubtful in a settings file, and what an endpoint can do. Changes nothing."""

from gateway.checking.findings import Finding, Severity
from gateway.checking.report import Report, check

__all__ = ["Finding", "Report", "Severity", "check"]
