"""Failures while a deployment is prepared."""

from __future__ import annotations


class DeploymentError(Exception):
    """Something this machine lacks or refuses; the message is one sentence that says what to do, fit to be shown."""
