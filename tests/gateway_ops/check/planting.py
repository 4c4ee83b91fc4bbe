"""How mistakes are planted into a repository, and found again."""

from __future__ import annotations

import re
from pathlib import Path

from gateway_ops.check.findings import Finding, Severity
from gateway_ops.check.repository import check_repository

ENGINE, ENSEMBLE, TEXT, BACK, BLS = (
    f"{name}/config.pbtxt"
    for name in ("tensorrt_llm", "ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls")
)
FIRST = r"(parameters \{ key: \"gpt_model_type\")"
"""Where `added` puts a parameter of the engine."""
BLS_FIRST = r"(parameters \{ key: \"accumulate_tokens\")"
"""And of the BLS model."""


def edit(file: Path, pattern: str, replacement: str) -> None:
    """Change the first match in a file; there must be one."""
    text, count = re.subn(pattern, replacement, file.read_text(), count=1)
    assert count == 1, pattern
    file.write_text(text)


def bad(folder: Path) -> list[Finding]:
    """What a review finds that is not mere information."""
    return [finding for finding in check_repository(folder) if finding.severity is not Severity.INFO]


def parameter(name: str, value: str) -> tuple[str, str]:
    """Pattern and replacement for a parameter's value."""
    return rf'(key: "{name}" value {{ string_value: )"[^"]*"', rf'\1"{value}"'


def added(name: str, value: str) -> str:
    """Replacement of ``FIRST`` that puts a parameter in front."""
    return rf'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n\1'
