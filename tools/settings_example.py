"""Writer of gateway.example.yaml: every setting of the table in docs/reference/configuration.md, or an example.

Run ``python -m tools.settings_example`` (part of ``make docs``).
"""

from __future__ import annotations

import posixpath
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_origin

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gateway.settings import Settings
from tools.coverage.settings_document import section_of
from tools.generated_part import by_hand

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "configuration.md"
FILE: Final = ROOT / "gateway.example.yaml"
_PLACE: Final = PAGE.parent.relative_to(ROOT).as_posix()
_WIDTH: Final = 165
_COLUMN: Final = 32
_ROW: Final = re.compile(r"^\| `([a-z_.\[\]]+)` \| (?:`(\w+)`)? ?\| [^|]*\| ([^|]*)\|$", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#]*)[^)]*\)")
_HEAD: Final = """\
# Every setting of the gateway; gateway.minimal.yaml has the few that are needed.
# Copy either to gateway.yaml, or name the file in GATEWAY_CONFIG.
# What is commented out shows the default. Behind a second #, and in `models` where there is no default, is an example.
# Unknown keys are rejected. `gateway check gateway.yaml` explains each mistake with its line.
# Models follow changes of this file; after a change of a template alone, touch this file.
# Written by `python -m tools.settings_example`: change the table in docs/reference/configuration.md instead.
"""
_SECOND_MODEL: Final = """
  # - name: qwen                  # any number of models, on the same Triton or on others
  #   triton: {url: "other-triton:8001", model: qwen_ensemble}
"""
_NEEDED: Final = ("name", "triton", "triton.url", "tokenizer", "max_seq_len")
_ACTIVE: Final = {"models[]", *(f"models[].{key}" for key in _NEEDED)}
EXAMPLES: Final[Mapping[str, str]] = {
    "server.tls.certificate": "tls.crt",
    "server.tls.key": "tls.key",
    "server.tls.client_ca": "ca.crt",
    "server.tls.client_certificates": "required",
    "server.internal_port": "9001",
    "server.internal_host": "10.0.0.5",
    "server.metrics": "all",
    "server.docs": "open",
    "server.page": "true",
    "state.path": "state.sqlite",
    "state.redis_url": "redis://redis:6379/0",
    "state.keys_file": "state.keys",
    "telemetry.endpoint": "http://localhost:4318",
    "telemetry.service_name": "triton-openai-gateway",
    "auth.keys[].name": "alice",
    "auth.keys[].hash": '"sha256:..."',
    "auth.keys[].expires": "2027-01-31",
    "auth.keys[].models": "[llama3]",
    "auth.keys[].limits.requests_per_minute": "60",
    "auth.keys[].limits.tokens_per_minute": "200000",
    "auth.keys[].limits.in_flight": "4",
    "auth.keys[].limits.max_tokens": "2048",
    "auth.keys_file": "keys.yaml",
    "auth.jwt.issuer": "https://login.example.com",
    "auth.jwt.audience": "[llm-gateway]",
    "auth.jwt.jwks_url": "https://login.example.com/.well-known/jwks.json",
    "auth.jwt.jwks_file": "jwks.json",
    "auth.jwt.models_claim": "models",
    "auth.jwt.limits_claim": "limits",
    "auth.jwt.models": "[llama3]",
    "auth.jwt.limits.requests_per_minute": "60",
    "auth.jwt.limits.tokens_per_minute": "200000",
    "auth.jwt.limits.in_flight": "4",
    "auth.jwt.limits.max_tokens": "2048",
    "auth.redis_url": "redis://redis:6379/0",
    "models[].name": "llama3",
    "models[].triton.url": "triton:8001",
    "models[].triton.metrics_url": "http://triton:8002/metrics",
    "models[].triton.tls.ca": "triton-ca.crt",
    "models[].triton.tls.certificate": "gateway.crt",
    "models[].triton.tls.key": "gateway.key",
    "models[].triton.tls.server_name": "triton.internal",
    "models[].triton.metadata": '{triton-grpc-protocol-infer: "${TRITON_SECRET}"}',
    "models[].engine_version": "1.2.1",
    "models[].tokenizer": "/models/llama3",
    "models[].max_seq_len": "8192",
    "models[].vocab_size": "128256",
    "models[].tokens_per_block": "64",
    "models[].template": "chat_templates/llama3.jinja",
    "models[].family": "hermes",
    "models[].lora.task_id": "1",
    "models[].lora.folder": "adapters/french",
    "models[].lora.name": "french",
    "models[].lora.path": "/adapters/french",
    "models[].prompt_tables": "{pirate: tables/pirate.npy}",
    "models[].speculative.num_draft_tokens": "5",
    "models[].speculative.max_draft_tokens": "8",
    "models[].encoder.tensors": "{text: INPUT_TEXT}",
    "models[].encoder.inputs": "{task_id: 0}",
    "models[].encoder.parameters": "{embed_model: bge}",
    "models[].encoder.request_fields": "[input_type, truncate]",
    "models[].encoder.output": "sentence_embedding",
    "models[].encoder.count": "token_count",
    "models[].encoder.input_types": '{query: {prefix: "query: "}}',
    "models[].encoder.default_input_type": "query",
    "models[].encoder.normalize": "true",
    "models[].encoder.labels": "[negative, positive]",
    "models[].encoder.batch": "32",
    "models[].admission.max_running": "64",
    "models[].admission.max_waiting_tokens": "1000000",
    "models[].mirror.to": "qwen",
    "models[].defaults.temperature": "0.6",
    "models[].defaults.top_p": "0.9",
    "models[].defaults.top_k": "40",
    "models[].defaults.min_p": "0.05",
    "models[].defaults.repetition_penalty": "1.1",
    "models[].defaults.presence_penalty": "0",
    "models[].defaults.frequency_penalty": "0",
    "models[].defaults.max_tokens": "1024",
    "splits": "{chat: {llama3: 95, qwen: 5}}",
}
"""Values of settings that have no default which is a value, in YAML."""


def document() -> str:
    """The file's content."""
    rows = _ROW.findall(by_hand(PAGE.read_text(encoding="utf-8")))
    remarks = {key: _remark(variable, text) for key, variable, text in rows}
    fields = {name: field for name, field in Settings.model_fields.items() if name != "deployments"}
    parts = {name: "\n".join(_lines(name, field, "", remarks)) for name, field in fields.items()}
    models, splits = parts.pop("models"), parts.pop("splits")
    defaults = ("\n".join(f"# {line}" for line in part.split("\n")) for part in parts.values())
    return "\n".join([_HEAD, *defaults, "", models, _SECOND_MODEL, splits]) + "\n"


def _remark(variable: str, text: str) -> str:
    """A row's variable and meaning as plain text."""
    plain = _LINK.sub(_linked, text).replace("`", "").replace("see below", f"see {_PLACE}/{PAGE.name}").strip()
    return ": ".join(filter(None, (variable, plain)))


def _linked(link: re.Match[str]) -> str:
    page = posixpath.normpath(
        posixpath.join(_PLACE, posixpath.dirname(link[2]), posixpath.basename(link[2]) or PAGE.name)
    )
    return page if link[1] in {posixpath.basename(page), "below"} else f"{link[1]} ({page})"


def _lines(path: str, field: FieldInfo, mark: str, remarks: Mapping[str, str]) -> Iterator[str]:
    """Write a setting, or a section with its settings.

    Args:
        path: its key, such as ``models[].triton.url``; that of a list of sections ends with its name.
        field: of the settings.
        mark: ``# `` where a section above is commented out already, else empty.
        remarks: comments by key.
    """
    section = None if get_origin(field.annotation) is Mapping else section_of(field.annotation)
    is_list = section is not None and get_origin(field.annotation) is tuple
    path += "[]" if is_list else ""
    own = "" if mark or _is_shown(path, field) else "# "
    key = path.removesuffix("[]").rpartition(".")[2]
    if section is None:
        yield from (f"{own}{line}" for line in _setting(key, EXAMPLES.get(path) or _default(field), remarks[path]))
        return
    yield f"{own}{key}:"
    below = [
        line
        for name, each in section.model_fields.items()
        for line in _lines(f"{path}.{name}", each, mark or own, remarks)
    ]
    bullets = ["- ", *["  "] * len(below)] if is_list else [""] * len(below)
    yield from (f"{own}  {bullet}{line}" for bullet, line in zip(bullets, below, strict=False))


def _is_shown(path: str, field: FieldInfo) -> bool:
    """Whether a setting is shown without a comment mark: in models what all need, elsewhere what has a default."""
    if path.startswith("models[]"):
        return path in _ACTIVE
    return path not in EXAMPLES and field.default not in (None, PydanticUndefined) and path != "auth.keys[]"


def _setting(key: str, value: str, remark: str) -> Iterator[str]:
    line = f"{key}: {value}"
    if not remark:
        yield line
    elif len(beside := f"{line:<{_COLUMN}} # {remark}") <= _WIDTH:
        yield beside
    else:
        yield from textwrap.wrap(remark, _WIDTH, initial_indent="# ", subsequent_indent="# ")
        yield line


def _default(field: FieldInfo) -> str:
    """A default as YAML in one line."""
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
