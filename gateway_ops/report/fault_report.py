"""A bug report: versions, settings, served models and their features, the last errors."""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gateway.settings import ConfigError, Settings, SettingsSource
from gateway_ops.chat.chat_server import ChatServer
from gateway_ops.chat.streamed_answer import ChatError
from gateway_ops.report.last_errors import last_errors
from gateway_ops.report.shown_settings import HIDDEN, secrets_of, shown_settings

_TIMEOUT_S = 10.0
_SHORTEST_SECRET = 4
_SHORTEST_VARIABLE = 8
_NAMES_A_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_LOOKS_SECRET = re.compile(r"\bsk-[\w-]{4,}|(?<=Bearer )\S+|(?<=://)[^/@\s]+(?=@)|[^\s:/@'\"]+:[^\s/@]+(?=@)")
_SERVED = (
    "ready", "path", "triton_model", "max_seq_len", "token_ids", "logprobs", "max_top_logprobs", "guide_types",
    "guide_backend", "family", "escape_special_tokens", "max_stops", "streams", "estimates", "losses",
)  # fmt: skip


def fault_report(
    versions: Mapping[str, Any], source: SettingsSource, url: str | None, api_key: str | None, log: Path | None
) -> dict[str, Any]:
    """Collect a report without prompts, answers and keys; a missing part says why it is missing.

    Args:
        versions: installed versions.
        source: source of the settings.
        url: URL of a running gateway; None without one.
        api_key: a key of the gateway.
        log: its log, where it is a file.
    """
    settings, problem = _settings(source)
    report = {
        "versions": versions,
        "settings": problem if settings is None else shown_settings(settings),
        "variables": sorted(name for name in source.environment if name.startswith(("GATEWAY_", "OTEL_"))),
        "models": "not asked for" if url is None else _models(url, api_key),
        "errors": "not asked for" if log is None else _errors(log),
    }
    secrets = {api_key or "", *secrets_of(settings), *_secret_variables()}
    known = sorted((each for each in secrets if len(each) >= _SHORTEST_SECRET), key=len, reverse=True)
    cleaned: dict[str, Any] = _without(report, known)
    return cleaned


def _secret_variables() -> Iterator[str]:
    """Values of variables that may be secrets by their names; short ones are words that stand anywhere."""
    for name, value in os.environ.items():
        if _NAMES_A_SECRET.search(name):
            yield from (each for each in (value, *value.split(",")) if len(each) >= _SHORTEST_VARIABLE)


def _settings(source: SettingsSource) -> tuple[Settings | None, str]:
    try:
        return source.load(), ""
    except ConfigError as error:
        count = len(str(error).splitlines())
        return None, f"not readable: {count} lines with mistakes; `gateway check` shows them"


def _models(url: str, api_key: str | None) -> Any:
    try:
        server = ChatServer(url, api_key, _TIMEOUT_S)
        names = [each["id"] for each in server.models()]
        return {name: _served(server.get(f"/v1/models/{urllib.parse.quote(name, safe='')}")) for name in names}
    except ChatError as error:
        return f"not readable: {error}"


def _served(model: Any) -> Any:
    if not isinstance(model, dict) or not isinstance(model.get("gateway"), dict):
        return "not a model of this gateway"
    how = {name: model["gateway"].get(name) for name in _SERVED}
    return {**how, "capabilities": model.get("capabilities")}


def _errors(log: Path) -> Any:
    try:
        return last_errors(log)
    except OSError as error:
        return f"not readable: {error.strerror}"


def _without(value: Any, secrets: Iterable[str]) -> Any:
    """The same with every secret hidden, wherever it stands."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return _LOOKS_SECRET.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {_without(name, secrets): _without(each, secrets) for name, each in value.items()}
    return [_without(each, secrets) for each in value] if isinstance(value, list) else value
