"""The sources of settings: a file, and environment variables that override it."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.settings.gateway_settings import Settings
from gateway.settings.settings_validation import validate
from gateway.settings.yaml_file import ConfigError, SettingsDocument, read_document

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """A settings file, or none, with the environment over it.

    Attributes:
        path: the file; None when there is only the environment.
        environment: variables, which override the file.
    """

    path: Path | None
    environment: Mapping[str, str]

    @staticmethod
    def find(path: Path | None = None, environment: Mapping[str, str] | None = None) -> SettingsSource:
        """Find the file to read: ``path``, else ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder.

        Args:
            path: the YAML file; None to search it.
            environment: variables to read instead of the process's own.
        """
        env = dict(os.environ if environment is None else environment)
        file = path or (Path(env["GATEWAY_CONFIG"]) if env.get("GATEWAY_CONFIG") else None)
        if file is None and Path("gateway.yaml").is_file():
            file = Path("gateway.yaml")
        return SettingsSource(file, env)

    def load(self) -> Settings:
        """Read and validate the settings.

        Raises:
            ConfigError: when the file is unreadable, a key is unknown or missing, or a value is wrong.
        """
        read = read_document(self.path) if self.path else SettingsDocument()
        document = SettingsDocument(copy.deepcopy(read.data), read.lines, read.problems)
        sources = apply_environment(document.data, self.environment)
        settings, problems = validate(document, sources, self.path.parent if self.path else None)
        if settings is None:
            raise ConfigError.of(problems, self.path)
        return settings

    def stamp(self) -> Stamp | None:
        """Time, size and identity of the file, which change with it; None without a regular file."""
        return stamp_of(self.path)


def stamp_of(path: Path | None) -> Stamp | None:
    """Time, size and identity of a file, which change with it; None without a regular file."""
    try:
        found = path.stat() if path and path.is_file() else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev) if found else None


def load_settings(path: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings file and the environment once.

    Args:
        path: the YAML file; None takes ``GATEWAY_CONFIG``, else ``gateway.yaml`` in the working folder if it is there.
        environment: variables to read instead of the process's own.

    Raises:
        ConfigError: when a file is unreadable, a key is unknown or missing, or a value is wrong.
    """
    return SettingsSource.find(path, environment).load()


# Variable -> where it goes. Those under "model" make up the one model that the environment describes.
VARIABLES: dict[str, tuple[str, ...]] = {
    "GATEWAY_HOST": ("server", "host"),
    "GATEWAY_PORT": ("server", "port"),
    "GATEWAY_API_KEYS": ("server", "api_keys"),
    "GATEWAY_ALLOWED_HOSTS": ("server", "allowed_hosts"),
    "GATEWAY_LOG_LEVEL": ("server", "log_level"),
    "GATEWAY_SHUTDOWN_S": ("server", "shutdown_s"),
    "GATEWAY_LAME_DUCK_S": ("server", "lame_duck_s"),
    "GATEWAY_INTERNAL_PORT": ("server", "internal_port"),
    "GATEWAY_INTERNAL_HOST": ("server", "internal_host"),
    "GATEWAY_TLS_CERTIFICATE": ("server", "tls", "certificate"),
    "GATEWAY_TLS_KEY": ("server", "tls", "key"),
    "GATEWAY_TLS_CLIENT_CA": ("server", "tls", "client_ca"),
    "GATEWAY_TLS_CLIENT_CERTIFICATES": ("server", "tls", "client_certificates"),
    "GATEWAY_TLS_MINIMUM_VERSION": ("server", "tls", "minimum_version"),
    "GATEWAY_CORS_ORIGINS": ("server", "cors", "origins"),
    "GATEWAY_RELAY": ("server", "relay"),
    "GATEWAY_METRICS": ("server", "metrics"),
    "GATEWAY_DOCS": ("server", "docs"),
    "GATEWAY_PAGE": ("server", "page"),
    "GATEWAY_MEMORY_SOFT": ("server", "memory", "soft"),
    "GATEWAY_MEMORY_HARD": ("server", "memory", "hard"),
    "GATEWAY_MAX_BODY_BYTES": ("limits", "max_body_bytes"),
    "GATEWAY_MAX_CONNECTIONS": ("limits", "max_connections"),
    "GATEWAY_FIRST_TOKEN_TIMEOUT_S": ("timeouts", "first_token_s"),
    "GATEWAY_TOTAL_TIMEOUT_S": ("timeouts", "total_s"),
    "GATEWAY_BETWEEN_TOKENS_TIMEOUT_S": ("timeouts", "between_tokens_s"),
    "GATEWAY_STATE_STORE": ("state", "store"),
    "GATEWAY_STATE_PATH": ("state", "path"),
    "GATEWAY_STATE_REDIS_URL": ("state", "redis_url"),
    "GATEWAY_STATE_MAX_AGE_S": ("state", "max_age_s"),
    "GATEWAY_STATE_MAX_BYTES": ("state", "max_bytes"),
    "GATEWAY_STATE_KEYS": ("state", "keys"),
    "GATEWAY_STATE_KEYS_FILE": ("state", "keys_file"),
    "GATEWAY_TRACES": ("telemetry", "traces"),
    "GATEWAY_OTLP_METRICS": ("telemetry", "metrics"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("telemetry", "endpoint"),
    "OTEL_SERVICE_NAME": ("telemetry", "service_name"),
    "GATEWAY_KEYS": ("auth", "keys"),
    "GATEWAY_KEYS_FILE": ("auth", "keys_file"),
    "GATEWAY_LIMITS_REDIS_URL": ("auth", "redis_url"),
    "GATEWAY_LIMITS_GATEWAYS": ("auth", "gateways"),
    "GATEWAY_JWT_ISSUER": ("auth", "jwt", "issuer"),
    "GATEWAY_JWT_AUDIENCE": ("auth", "jwt", "audience"),
    "GATEWAY_JWT_JWKS_URL": ("auth", "jwt", "jwks_url"),
    "GATEWAY_JWT_JWKS_FILE": ("auth", "jwt", "jwks_file"),
    "GATEWAY_MODEL": ("model", "name"),
    "GATEWAY_MODEL_ALIASES": ("model", "aliases"),
    "GATEWAY_TRITON_URL": ("model", "triton", "url"),
    "GATEWAY_TRITON_ENDPOINTS": ("model", "triton", "endpoints"),
    "GATEWAY_TRITON_MODEL": ("model", "triton", "model"),
    "GATEWAY_TRITON_METRICS_URL": ("model", "triton", "metrics_url"),
    "GATEWAY_TRANSPORT": ("model", "triton", "transport"),
    "GATEWAY_TRITON_TLS_CA": ("model", "triton", "tls", "ca"),
    "GATEWAY_TRITON_TLS_CERTIFICATE": ("model", "triton", "tls", "certificate"),
    "GATEWAY_TRITON_TLS_KEY": ("model", "triton", "tls", "key"),
    "GATEWAY_TRITON_TLS_SERVER_NAME": ("model", "triton", "tls", "server_name"),
    "GATEWAY_TRITON_METADATA": ("model", "triton", "metadata"),
    "GATEWAY_TOKENIZER": ("model", "tokenizer"),
    "GATEWAY_MAX_SEQ_LEN": ("model", "max_seq_len"),
    "GATEWAY_TEMPLATE": ("model", "template"),
    "GATEWAY_FAMILY": ("model", "family"),
    "GATEWAY_REASONING_OUTPUT": ("model", "reasoning_output"),
    "GATEWAY_STRUCTURED_OUTPUT_WITHOUT_GUIDANCE": ("model", "structured_output_without_guidance"),
    "GATEWAY_PATH": ("model", "path"),
    "GATEWAY_ENGINE_VERSION": ("model", "engine_version"),
    "GATEWAY_ESCAPE_SPECIAL_TOKENS": ("model", "escape_special_tokens"),
    "GATEWAY_IMPOSSIBLE_PARAMETERS": ("model", "policies", "impossible"),
    "GATEWAY_HINT_PARAMETERS": ("model", "policies", "hints"),
    "GATEWAY_UNKNOWN_PARAMETERS": ("model", "policies", "unknown"),
    "GATEWAY_TEMPERATURE": ("model", "defaults", "temperature"),
    "GATEWAY_TOP_P": ("model", "defaults", "top_p"),
    "GATEWAY_LOGITS_FOR_LOGPROBS": ("model", "logits_for_logprobs"),
}


def _is_encoder(model: object) -> bool:
    return isinstance(model, dict) and model.get("task", "generate") != "generate"


def apply_environment(data: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Override ``data`` by environment variables.

    Returns:
        The variable by dotted key path.

    Raises:
        ConfigError: when the variables describe a model without a name, or a section of the file is not a mapping.
    """
    sources: dict[str, str] = {}
    model: dict[str, Any] = {}
    for variable, keys in VARIABLES.items():
        value = env.get(variable, "").strip()
        # Kubernetes sets GATEWAY_PORT=tcp://... where a Service is named "gateway"; that is not the gateway's own.
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
        first = next(name for path, name in sources.items() if path.startswith("models[0]"))
        raise ConfigError(f"GATEWAY_MODEL: must name the served model when {first} is set.")
    if model:
        model.setdefault("triton", {})
        # The variables describe the model that generates; others of a file stay.
        listed = data.get("models")
        others = [each for each in listed if _is_encoder(each)] if isinstance(listed, list) else []
        data["models"] = [model, *others]
        sources.setdefault("models[0].triton.url", "GATEWAY_TRITON_URL")
    return sources
