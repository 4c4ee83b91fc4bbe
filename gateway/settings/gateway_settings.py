"""The settings of the whole gateway."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gateway.settings.auth_settings import AuthSettings
from gateway.settings.deployment_settings import DeploymentSettings
from gateway.settings.model_settings import ModelSettings
from gateway.settings.section import RedisUrl, Seconds, Section, at_home, split_commas
from gateway.settings.tls_settings import ServerTlsSettings

_DAY_S = 86400.0

_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
NO_MODEL = "models: no model is configured; set GATEWAY_MODEL and GATEWAY_TRITON_URL, or write gateway.yaml"


class StateSettings(Section):
    """Storage of responses and conversations between requests.

    Attributes:
        store: ``sqlite`` for one file, ``redis`` where gateways on several machines share it, ``none``.
        path: the file of SQLite; by default one below ``$XDG_STATE_HOME`` or ``~/.local/state``.
        redis_url: such as ``redis://user:password@host:6379/0``, ``rediss://`` with TLS, or ``unix://``.
        max_age_s: seconds after the last write after which stored data is deleted.
        max_bytes: most bytes of all stored data; above it the oldest data is deleted first.
        keys: Fernet keys for encrypted reasoning that clients send back: the first key encrypts, all keys decrypt.
        keys_file: a file with further Fernet keys, one per line, used after ``keys``.
    """

    store: Literal["sqlite", "redis", "none"] = "sqlite"
    path: Path | None = None
    redis_url: RedisUrl | None = None
    max_age_s: Seconds = Field(default=30 * _DAY_S, gt=0)
    max_bytes: int = Field(default=2**30, ge=2**20)
    keys: tuple[SecretStr, ...] = ()
    keys_file: Path | None = None

    _split_keys = field_validator("keys", mode="before")(split_commas)

    @field_validator("keys")
    @classmethod
    def _are_fernet_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in value:
            check_fernet_key(key.get_secret_value())
        return value

    _home = field_validator("path", "keys_file")(at_home)

    @model_validator(mode="after")
    def _url_fits(self) -> StateSettings:
        if self.store == "redis" and self.redis_url is None:
            raise ValueError("store: redis requires redis_url")
        if self.store == "sqlite" and self.redis_url is not None:
            raise ValueError("redis_url requires store: redis, but store is sqlite")
        return self


def check_fernet_key(key: str) -> None:
    """Check that a text is a Fernet key, 32 bytes in URL-safe base64 (https://github.com/fernet/spec).

    Raises:
        ValueError: the text is not a key; the message does not show it.
    """
    try:
        size = len(base64.b64decode(key, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != 32:
        raise ValueError(
            "each key must be 32 bytes in URL-safe base64, as Fernet.generate_key() of the package cryptography returns"
        )


class CorsSettings(Section):
    """Web pages that may read the gateway's responses (CORS, https://fetch.spec.whatwg.org/#http-cors-protocol).

    Attributes:
        origins: origins of the pages, such as ``https://app.example``, or ``*`` for all; empty: none.
    """

    origins: tuple[str, ...] = ()

    @field_validator("origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return split_commas(value)

    @field_validator("origins")
    @classmethod
    def _as_browsers_write_them(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each if each == "*" else _origin(each) for each in value)


_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?")
_DEFAULT_PORTS = {("http", ":80"), ("https", ":443")}


def _origin(text: str) -> str:
    """An origin as browsers send it: in lower case, and without a port that is the scheme's own."""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        raise ValueError(f"{text!r} must be an origin: scheme://host, scheme://host:port or *")
    return found[0].removesuffix(found[2]) if (found[1], found[2]) in _DEFAULT_PORTS else found[0]


_LEAST_BYTES = 2**20


class MemorySettings(Section):
    """Bounds on the memory of all worker processes together.

    A limit up to 1 is a share: of what the tightest cgroup allows, or of the machine where none bounds the process. A
    larger one counts bytes.

    Attributes:
        soft: limit above which new large bodies and long prompts wait; 0: no limit.
        hard: limit above which new requests are rejected with 503; 0: no limit.
        wait_s: most seconds that a large request waits before it is rejected with 503.
        token_cache_bytes: size of the cache for token ids of prompt parts; 0: no cache.
    """

    soft: float = Field(default=0.8, ge=0)
    hard: float = Field(default=0.9, ge=0)
    wait_s: Seconds = Field(default=10.0, ge=0)
    token_cache_bytes: int = Field(default=64 * 2**20, ge=0, le=2**40)

    @field_validator("token_cache_bytes")
    @classmethod
    def _none_or_enough(cls, value: int) -> int:
        if 0 < value < _LEAST_BYTES:
            raise ValueError("must be 0 or at least 1048576")
        return value

    @field_validator("soft", "hard")
    @classmethod
    def _share_or_bytes(cls, value: float) -> float:
        if 1 < value < _LEAST_BYTES:
            raise ValueError("must be a share from 0 to 1 or at least 1048576 bytes")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> MemorySettings:
        if self.hard and self.soft > self.hard and (self.soft <= 1) == (self.hard <= 1):
            raise ValueError("soft must be at most hard")
        return self


class ServerSettings(Section):
    """The address that the gateway listens on, and the clients that it serves.

    Attributes:
        host: address to listen on.
        port: TCP port, 0 for a free one.
        api_keys: API keys; empty: every client that can reach the gateway may use it.
        allowed_hosts: additional host names by which clients may call the gateway; ``*.example.com`` allows all names
            below a domain, ``*`` every name. If it is empty, host names are only checked by a gateway without keys that
            listens on loopback.
        log_level: lowest level that is logged.
        tls: TLS for clients; None: no TLS.
        internal_port: a second port for the platform, always without TLS and keys, with health checks, metrics, version
            and ``/docs``; None: no second port.
        internal_host: address of that port; None takes ``host``.
        lame_duck_s: seconds after SIGTERM in which the gateway still serves requests, but reports that it is not ready
            and closes connections; Ctrl-C skips them.
        shutdown_s: seconds for running requests to finish after that.
        reload_s: seconds between checks of the settings file by each process; 0: only SIGHUP reloads it.
        cors: web pages that may send requests.
        relay: whether plain streams use the fast path from the engine's response to the socket. Clients get the same
            bytes without it.
        metrics: what ``/metrics`` shows on ``port``: ``all``; ``slim``, only the metrics for routing; ``key``, all
            metrics with an API key and the slim page without; ``none``. The default is ``all``, or ``slim`` with an
            ``internal_port``.
        docs: who may read ``/docs`` and ``/openapi.json`` on ``port``: ``open``, ``key`` or ``none``. The default is
            ``open``, or ``none`` with an ``internal_port``.
        page: whether ``port`` serves the chat page at ``/``. The default is true, or false with an ``internal_port``,
            which never serves the page.
        memory: limits of the memory for requests.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=9000, ge=0, le=65535)
    api_keys: tuple[SecretStr, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    tls: ServerTlsSettings | None = None
    internal_port: int | None = Field(default=None, ge=0, le=65535)
    internal_host: str | None = None
    lame_duck_s: Seconds = Field(default=5.0, ge=0, allow_inf_nan=False)
    shutdown_s: Seconds = Field(default=30.0, ge=0)
    reload_s: Seconds = Field(default=1.0, ge=0)
    cors: CorsSettings = CorsSettings()
    relay: bool = True
    metrics: Literal["all", "slim", "key", "none"] | None = None
    docs: Literal["open", "key", "none"] | None = None
    page: bool | None = None
    memory: MemorySettings = MemorySettings()

    @property
    def metrics_shown(self) -> Literal["all", "slim", "key", "none"]:
        """The metrics that ``/metrics`` shows on ``port``."""
        return self.metrics or ("all" if self.internal_port is None else "slim")

    @property
    def docs_shown(self) -> Literal["open", "key", "none"]:
        """The clients that may read the documentation on ``port``."""
        return self.docs or ("open" if self.internal_port is None else "none")

    @property
    def page_shown(self) -> bool:
        """Whether ``port`` serves the chat page."""
        return self.internal_port is None if self.page is None else self.page

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        keys = split_commas(value)
        # A list whose variables expanded to nothing must not disable authentication.
        if isinstance(value, str) and value and not keys:
            raise ValueError("must contain a key, not only commas")
        return keys

    _split_hosts = field_validator("allowed_hosts", mode="before")(split_commas)

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name != "*" and not _HOST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} must be a host name without a scheme, a port or a path")
        return value

    @field_validator("api_keys")
    @classmethod
    def _not_blank(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not all(key.get_secret_value().strip() for key in value):
            raise ValueError("a key must not be empty")
        return value


class LimitSettings(Section):
    """Limits of requests and connections.

    Attributes:
        max_body_bytes: largest request body in bytes.
        max_connections: most open connections of each process; further connections are rejected with 503.
        min_body_bytes_per_s: lowest speed of a body after ``timeouts.request_body_s``.
        max_background_responses: most background responses that each process generates at a time; further requests are
            rejected with 429.
    """

    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)
    max_connections: int = Field(default=16384, ge=1)
    min_body_bytes_per_s: int = Field(default=4096, ge=1)
    max_background_responses: int = Field(default=256, ge=1)


class TimeoutSettings(Section):
    """Timeouts in seconds.

    Attributes:
        request_head_s: from the first byte of a request, or from the connection, to the end of its headers; then 408.
        request_body_s: from the first byte of a request to its end; ``limits.min_body_bytes_per_s`` adds time; then
            408.
        first_token_s: from the request to the engine's first response; then 504.
        total_s: from the request to the end of the answer.
        between_tokens_s: from one response of the engine to the next; a longer silence ends the answer with an error.
        headers_s: time after which the headers of a stream are sent even if the engine has not responded.
        client_read_s: time in which a client must read 16 KiB of buffered response; then its connection is closed.
        keepalive_s: time without an event after which a stream sends an SSE comment.
        discovery_s: time that a start or a reload waits for Triton before it continues without it.
    """

    request_head_s: Seconds = Field(default=60.0, gt=0)
    request_body_s: Seconds = Field(default=60.0, gt=0)
    first_token_s: Seconds = Field(default=300.0, gt=0)
    total_s: Seconds = Field(default=1800.0, gt=0)
    between_tokens_s: Seconds = Field(default=60.0, gt=0)
    client_read_s: Seconds = Field(default=60.0, gt=0)
    headers_s: Seconds = Field(default=10.0, gt=0)
    keepalive_s: Seconds = Field(default=15.0, gt=0)
    discovery_s: Seconds = Field(default=5.0, ge=0)


class TelemetrySettings(Section):
    """Traces and metrics for OpenTelemetry collectors; requires the extra ``otel``.

    Attributes:
        traces: whether traces are exported.
        metrics: whether metrics are exported.
        endpoint: base URL of the collector (OTLP over HTTP); None: from the variables of OpenTelemetry, or
            http://localhost:4318.
        service_name: name of the gateway in the collector; None: from the variables of OpenTelemetry, or
            triton-openai-gateway.
        sample_ratio: share of traced requests among those without a sampling decision of the client.
        traceparent_to_triton: whether requests to Triton have a ``traceparent`` header.
        capture_content: whether traces contain prompts and answers.
    """

    traces: bool = False
    metrics: bool = False
    endpoint: str | None = None
    service_name: str | None = None
    sample_ratio: float = Field(default=0.1, ge=0, le=1)
    traceparent_to_triton: bool = False
    capture_content: bool = False

    @model_validator(mode="after")
    def _is_reached_by_http(self) -> TelemetrySettings:
        # Only where something is exported: the variable may be meant for other programs.
        exports = self.traces or self.metrics
        if exports and self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError("endpoint must begin with http:// or https://")
        return self


class Settings(Section):
    """All settings of the gateway. Build one by ``load_settings``, or directly in code.

    Attributes:
        splits: further model names, each of which distributes its requests over several models by weight, such as 5 %
            to a new engine.
    """

    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    state: StateSettings = StateSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    auth: AuthSettings = AuthSettings()
    models: tuple[ModelSettings, ...]
    splits: dict[str, dict[str, float]] = Field(default_factory=dict)
    deployments: tuple[DeploymentSettings, ...] = ()

    @property
    def asks_for_keys(self) -> bool:
        """Whether requests need a key or a token."""
        return bool(self.server.api_keys) or self.auth.asks

    @model_validator(mode="after")
    def _keys_where_they_are_asked_for(self) -> Settings:
        for name in ("metrics", "docs"):
            if getattr(self.server, name) == "key" and not self.asks_for_keys:
                raise ValueError(f"server.{name}: key requires server.api_keys or the keys of auth")
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        if not self.models:
            raise PydanticCustomError("no_model", NO_MODEL)
        named: dict[str, list[tuple[Any, Sequence[Any]]]] = {
            "models": [(model.name, model.aliases) for model in self.models],
            "deployments": [(deployment.name, ()) for deployment in self.deployments],
        }
        for section, entries in named.items():
            for keys, sentence in taken_names(section, entries):
                values = {"section": section, "index": keys[1], "sentence": sentence}
                raise PydanticCustomError("name_taken", "{section}[{index}]: {sentence}", values)
        return self

    @model_validator(mode="after")
    def _splits_lead_to_models(self) -> Settings:
        models = {model.name for model in self.models}
        names = models | {alias for model in self.models for alias in model.aliases}
        for name, weights in self.splits.items():
            problem = None
            if name in names:
                problem = "a model has this name"
            elif unknown := sorted(weights.keys() - models):
                problem = f"{unknown[0]!r} must be the name of a configured model"
            elif not all(0 <= weight < math.inf for weight in weights.values()) or not sum(weights.values()):
                problem = "each weight must be at least 0, and at least one weight above 0"
            if problem:
                raise PydanticCustomError("split", "splits.{name}: {problem}", {"name": name, "problem": problem})
        return self

    @model_validator(mode="after")
    def _mirrors_lead_to_other_models(self) -> Settings:
        models = {model.name for model in self.models}
        for index, model in enumerate(self.models):
            mirror = model.mirror
            if mirror is None:
                continue
            key, problem = "to", None
            if mirror.to == model.name:
                problem = "a model cannot be its own mirror"
            elif mirror.to not in models:
                problem = f"{mirror.to!r} must be the name of a configured model"
            elif mirror.show_text and self.server.internal_port is None:
                key, problem = "show_text", "requires server.internal_port because texts are only shown on that port"
            if problem:
                values = {"index": index, "key": key, "problem": problem}
                raise PydanticCustomError("mirror", "models[{index}].mirror.{key}: {problem}", values)
        return self


class Deployments(Section):
    """The section ``deployments`` alone, for a file without served models."""

    deployments: tuple[DeploymentSettings, ...] = Field(min_length=1)


def taken_names(
    section: str, entries: Sequence[tuple[Any, Sequence[Any]]]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find duplicate names and aliases, which would leave open what model a client reaches.

    Args:
        section: ``models`` or ``deployments``.
        entries: name and aliases of each of its items; values that are not text are skipped.

    Yields:
        The key path of the second use, and one sentence.
    """
    first: dict[str, str] = {}
    for index, (name, aliases) in enumerate(entries):
        values: list[tuple[tuple[str | int, ...], Any]] = [((section, index, "name"), name)]
        values += [((section, index, "aliases", place), alias) for place, alias in enumerate(aliases)]
        for keys, value in values:
            if isinstance(value, str):
                if value in first:
                    yield keys, f"the name {value!r} is already taken by {first[value]}"
                first.setdefault(value, f"{section}[{index}].{keys[2]}")
