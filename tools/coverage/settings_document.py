"""The settings of deployments in docs/reference/configuration.md: every key, its default and upstream's name for it.

Run ``python -m tools.coverage.settings_document`` in the root of the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from gateway.settings.deployment_settings import DeploymentSettings
from gateway_ops.repository.template_variables import VARIABLES, Variable
from tools.generated_part import replaced

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
PART: Final = "deployments"
_HEAD = """\

## Options of a deployment

Every key below `deployments[]`; [how they are used](../how-to/deployments.md). *Upstream* is the variable of TensorRT-LLM's
templates that `fill_template.py` fills; `gateway repo --set NAME:VALUE` takes these names as well. A default that is
not in code is upstream's own, which holds where nothing is written. `gateway check --schema` prints the JSON schema.
"""


def render() -> str:
    """The part of the page."""
    upstream: dict[str, list[Variable]] = {}
    for variable in VARIABLES:
        if variable.key:
            upstream.setdefault(variable.key, []).append(variable)
    parts = [_HEAD, "### The deployment itself\n", *_table("", DeploymentSettings, upstream)]
    for key, section in _sections(DeploymentSettings):
        parts += [f"### {key}\n", f"{_first_line(section)}\n", *_table(f"{key}.", section, upstream)]
    rejected = [f"`{variable.name}` ({variable.rejected})" for variable in VARIABLES if variable.rejected]
    parts += ["### Variables without a key\n", f"{', '.join(rejected)}.", ""]
    return "\n".join(parts)


def _sections(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is not None:
            yield f"{prefix}{name}", section
            yield from _sections(section, f"{prefix}{name}.")


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, alone or in a list; None for a plain value."""
    candidates = (annotation, *get_args(annotation))
    return next((one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").strip().splitlines()[0]


def _table(prefix: str, section: type[BaseModel], upstream: dict[str, list[Variable]]) -> Iterator[str]:
    yield "| key | default | meaning | upstream |"
    yield "|---|---|---|---|"
    for name, field in section.model_fields.items():
        if section_of(field.annotation) is None:
            key = f"{prefix}{name}"
            variables = upstream.get(key, [])
            names = ", ".join(f"`{variable.name}`" for variable in variables)
            default = _default(field.default)
            if not default and "none:" not in (field.description or ""):
                default = next((one.default for one in variables if not one.required), "")
            yield f"| `{key}` | {default} | {field.description} | {names} |"
    yield ""


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), PART, render()), encoding="utf-8")
