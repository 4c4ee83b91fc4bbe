"""Settings: one YAML file and the environment, parsed once into validated values and passed down.

The file is ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder when it exists. Environment variables win
over the file. ``GATEWAY_MODEL`` (a served name) with ``GATEWAY_TRITON_URL`` and the other model variables describes one
model and takes the place of the file's ``models``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

Seconds = float

# Environment variable -> where it goes. Those under "model" make up the one model that the environment describes.
_ENVIRONMENT: dict[str, tuple[str, ...]] = {
    "GATEWAY_HOST": ("server", "host"),
    "GATEWAY_PORT": ("server", "port"),
    "GATEWAY_API_KEYS": ("server", "api_keys"),
    "GATEWAY_LOG_LEVEL": ("server", "log_level"),
    "GATEWAY_MAX_BODY_BYTES": ("limits", "max_body_bytes"),
    "GATEWAY_FIRST_TOKEN_TIMEOUT_S": ("timeouts", "first_token_s"),
    "GATEWAY_TOTAL_TIMEOUT_S": ("timeouts", "total_s"),
    "GATEWAY_MODEL": ("model", "name"),
    "GATEWAY_TRITON_URL": ("model", "triton", "url"),
    "GATEWAY_TRITON_MODEL": ("model", "triton", "model"),
    "GATEWAY_TOKENIZER": ("model", "tokenizer"),
    "GATEWAY_MAX_SEQ_LEN": ("model", "max_seq_len"),
    "GATEWAY_TEMPLATE": ("model", "template"),
    "GATEWAY_PATH": ("model", "path"),
    "GATEWAY_ESCAPE_SPECIAL_TOKENS": ("model", "escape_special_tokens"),
}


_NO_MODEL = "models: none is configured; set GATEWAY_MODEL and GATEWAY_TRITON_URL, or write gateway.yaml"


class ConfigError(Exception):
    """Settings that cannot be used; the message has one sentence per finding, each with its key path."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ServerSettings(_Section):
    """Where the gateway listens and who may ask.

    Attributes:
        host: address to listen on.
        port: TCP port, 0 for a free one.
        api_keys: bearer keys that open the API; empty leaves it open to everyone who reaches it.
        log_level: least severe level that is logged.
        shutdown_s: seconds that running answers have to end after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=9000, ge=0, le=65535)
    api_keys: tuple[SecretStr, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    shutdown_s: Seconds = Field(default=30.0, ge=0)

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Keys from the environment come separated by commas."""
        if isinstance(value, str):
            return [key for key in (part.strip() for part in value.split(",")) if key]
        return value

    @field_validator("api_keys")
    @classmethod
    def _not_blank(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not all(key.get_secret_value().strip() for key in value):
            raise ValueError("a key must not be empty")
        return value


class LimitSettings(_Section):
    """Bounds on what a client may send.

    Attributes:
        max_body_bytes: largest request body in bytes.
    """

    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)


class TimeoutSettings(_Section):
    """How long things may take, in seconds.

    Attributes:
        first_token_s: from the request to the engine's first response; later is 504.
        total_s: from the request to the end of the answer.
        headers_s: a stream's response headers go out after this even when the engine has not answered.
        keepalive_s: silence after which a stream sends an SSE comment.
        discovery_s: how long a start waits for Triton when tokenizer or max_seq_len must come from it.
    """

    first_token_s: Seconds = Field(default=300.0, gt=0)
    total_s: Seconds = Field(default=1800.0, gt=0)
    headers_s: Seconds = Field(default=10.0, gt=0)
    keepalive_s: Seconds = Field(default=15.0, gt=0)
    discovery_s: Seconds = Field(default=5.0, ge=0)


class TritonSettings(_Section):
    """Where a model is served.

    Attributes:
        url: host:port of Triton's gRPC endpoint.
        model: the Triton model, normally the ensemble.
    """

    url: str = Field(min_length=1)
    model: str = Field(default="ensemble", min_length=1)

    @field_validator("url")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        if "://" in value or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError("must be host:port of Triton's gRPC endpoint, for example triton:8001")
        return value


class ModelSettings(_Section):
    """One served model.

    Attributes:
        name: the id that clients send as ``model``.
        triton: where it is served.
        path: ``tokens`` speaks token ids with the engine step, ``ensemble`` text with the ensemble, ``auto`` decides.
        tokenizer: folder with tokenizer.json; None takes the folder that Triton's own configuration names.
        max_seq_len: prompt plus generated tokens at most; None takes what Triton's own configuration says.
        template: file with a Jinja chat template, relative to the settings file; None takes the tokenizer folder's.
        escape_special_tokens: whether text such as ``<|im_end|>`` in a message stays plain text instead of becoming
            a control token.
        max_stops: stop strings a request may have.
    """

    name: str = Field(min_length=1, max_length=256)
    triton: TritonSettings
    path: Literal["auto", "tokens", "ensemble"] = "auto"
    tokenizer: Path | None = None
    max_seq_len: int | None = Field(default=None, ge=2)
    template: Path | None = None
    escape_special_tokens: bool = True
    max_stops: int = Field(default=4, ge=1, le=64)


class Settings(_Section):
    """Everything the gateway is told. Build one by ``load_settings``, or directly in code."""

    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    models: tuple[ModelSettings, ...]

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        if not self.models:
            raise ValueError(_NO_MODEL)
        names = [model.name for model in self.models]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"models: the name {doubled[0]!r} is given to more than one model")
        return self


def load_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings file and the environment.

    Args:
        path: the YAML file; None takes ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder if it is there.
        environment: variables to read instead of the process's own.

    Raises:
        ConfigError: when a file is unreadable, a key is unknown or missing, or a value is wrong.
    """
    env = os.environ if environment is None else environment
    file = path or (Path(env["GATEWAY_CONFIG"]) if env.get("GATEWAY_CONFIG") else None)
    if file is None and Path("gateway.yaml").is_file():
        file = Path("gateway.yaml")
    data = _read_file(file) if file else {}
    sources = _apply_environment(data, env)
    if not data.get("models"):
        raise ConfigError(f"{_NO_MODEL}.")
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_sentence(item, sources) for item in error.errors())) from None


class _UniqueKeys(yaml.SafeLoader):
    """A safe loader that refuses a key written twice instead of dropping the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            keys = [str(key.value) for key, _ in node.value]
            doubled = next((key for key in keys if keys.count(key) > 1), "<<")
            raise ConfigError(f"{doubled}: this key is written twice near line {node.start_mark.line + 1}.")
        return mapping


def _read_file(path: Path) -> dict[str, Any]:
    """The YAML mapping in ``path``, its relative paths made relative to the file's folder."""
    try:
        with path.open(encoding="utf-8") as stream:
            data = yaml.load(stream, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: the settings file cannot be read ({error.strerror}).") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path}: the settings file is not valid YAML ({reason}).") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: the settings file must hold a mapping.")
    for model in data.get("models") or () if isinstance(data.get("models"), list) else ():
        for key in ("tokenizer", "template") if isinstance(model, dict) else ():
            if isinstance(model.get(key), str):
                model[key] = str(path.parent / Path(model[key]).expanduser())
    return data


def _apply_environment(data: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Lay the environment over ``data``; returns which variable each dotted key path came from."""
    sources: dict[str, str] = {}
    model: dict[str, Any] = {}
    for variable, keys in _ENVIRONMENT.items():
        value = env.get(variable, "").strip()
        # Kubernetes sets GATEWAY_PORT=tcp://... where a Service is named "gateway"; that is not ours.
        if not value or (variable == "GATEWAY_PORT" and value.startswith("tcp://")):
            continue
        section, rest = (model, keys[1:]) if keys[0] == "model" else (data, keys)
        for key in rest[:-1]:
            section = section.setdefault(key, {})
            if not isinstance(section, dict):
                raise ConfigError(f"{'.'.join(rest[:-1])}: must be a mapping.")
        section[rest[-1]] = value
        sources[".".join(("models[0]", *rest) if keys[0] == "model" else rest)] = variable
    if model and "name" not in model:
        raise ConfigError(f"GATEWAY_MODEL: must name the served model when {next(iter(sources.values()))} is set.")
    if model:
        model.setdefault("triton", {})
        data["models"] = [model]
        sources.setdefault("models[0].triton.url", "GATEWAY_TRITON_URL")
    return sources


def _sentence(error: Any, sources: Mapping[str, str]) -> str:
    """One finding as ``path: what is wrong.``, with the variable's name where the environment set it."""
    path = ""
    for part in error["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    reasons = {"extra_forbidden": "is not a known key", "missing": "is required"}
    reason = reasons.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    if not path:  # raised by a whole-model check, which names its key itself
        return f"{reason}."
    where = f"{path} ({sources[path]})" if path in sources else path
    return f"{where}: {reason[0].lower() + reason[1:]}."
