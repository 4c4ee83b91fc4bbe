"""Settings of the gateway as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.deployment_settings import DeploymentSettings
from gateway.config.model_settings import ModelSettings
from gateway.config.section import Seconds, Section, split_commas
from gateway.config.state_settings import StateSettings

_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
NO_MODEL = "models: none is configured; set GATEWAY_MODEL and GATEWAY_TRITON_URL, or write gateway.yaml"


class CorsSettings(Section):
    """Web pages that may read the gateway's answers (CORS, https://fetch.spec.whatwg.org/#http-cors-protocol).

    Attributes:
        origins: the pages, such as ``https://app.example``, or ``*`` for all; empty: none.
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
        raise ValueError(
            f"{text!r} is not an origin; write scheme://host or scheme://host:port, with nothing behind it, or *"
        )
    return found[0].removesuffix(found[2]) if (found[1], found[2]) in _DEFAULT_PORTS else found[0]


class ServerSettings(Section):
    """The address that the gateway listens on, and the clients that it serves.

    Attributes:
        host: address to listen on.
        port: TCP port, 0 for a free one.
        api_keys: bearer keys that open the API; empty leaves it open to everyone who reaches it.
        allowed_hosts: names, besides its own, by which clients may call a gateway; ``*.example.com`` stands for all
            names below one, ``*`` alone for every name. Where it is empty, only a gateway without keys that listens on
            loopback looks at names.
        log_level: least severe level that is logged.
        shutdown_s: seconds that running answers have to end after SIGTERM.
        reload_s: seconds between looks at the settings file of each process; 0: only SIGHUP reloads.
        cors: web pages that may ask.
        relay: whether tokens of plain streams go from the engine's response straight to the socket; off, each passes
            all layers. Clients get the same bytes.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=9000, ge=0, le=65535)
    api_keys: tuple[SecretStr, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    shutdown_s: Seconds = Field(default=30.0, ge=0)
    reload_s: Seconds = Field(default=1.0, ge=0)
    cors: CorsSettings = CorsSettings()
    relay: bool = True

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        keys = split_commas(value)
        # Keys whose variables expanded to nothing must not leave the door open.
        if isinstance(value, str) and value and not keys:
            raise ValueError("holds no key, only commas")
        return keys

    _split_hosts = field_validator("allowed_hosts", mode="before")(split_commas)

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name != "*" and not _HOST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a host name; write it without a scheme, a port or a path")
        return value

    @field_validator("api_keys")
    @classmethod
    def _not_blank(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not all(key.get_secret_value().strip() for key in value):
            raise ValueError("a key must not be empty")
        return value


class LimitSettings(Section):
    """Bounds on what a client may send.

    Attributes:
        max_body_bytes: largest request body in bytes.
        max_connections: open connections of each process; further ones are answered 503.
        min_body_bytes_per_s: least speed of a body after ``timeouts.request_body_s``.
        max_background_responses: responses that each process generates in the background at a time; further ones are
            answered 429.
    """

    max_body_bytes: int = Field(default=16 * 2**20, ge=1024)
    max_connections: int = Field(default=16384, ge=1)
    min_body_bytes_per_s: int = Field(default=4096, ge=1)
    max_background_responses: int = Field(default=256, ge=1)


class TimeoutSettings(Section):
    """Bounds on the time that things take, in seconds.

    Attributes:
        request_head_s: from the first byte of a request, or from the connection, to the end of its headers; later is
            408.
        request_body_s: from the first byte of a request to its end, besides what ``limits.min_body_bytes_per_s`` adds;
            later is 408.
        first_token_s: from the request to the engine's first response; later is 504.
        total_s: from the request to the end of the answer.
        between_tokens_s: from one response of the engine to the next; a longer silence ends the answer with an error.
        headers_s: a stream's response headers go out after this even when the engine has not answered.
        keepalive_s: silence after which a stream sends an SSE comment.
        discovery_s: the wait of a start or a reload for Triton, before it goes on without it.
    """

    request_head_s: Seconds = Field(default=60.0, gt=0)
    request_body_s: Seconds = Field(default=60.0, gt=0)
    first_token_s: Seconds = Field(default=300.0, gt=0)
    total_s: Seconds = Field(default=1800.0, gt=0)
    between_tokens_s: Seconds = Field(default=60.0, gt=0)
    headers_s: Seconds = Field(default=10.0, gt=0)
    keepalive_s: Seconds = Field(default=15.0, gt=0)
    discovery_s: Seconds = Field(default=5.0, ge=0)


class Settings(Section):
    """All settings of the gateway. Build one by ``load_settings``, or directly in code."""

    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    state: StateSettings = StateSettings()
    models: tuple[ModelSettings, ...]
    deployments: tuple[DeploymentSettings, ...] = ()

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


class Deployments(Section):
    """The section ``deployments`` alone, for a file without served models."""

    deployments: tuple[DeploymentSettings, ...] = Field(min_length=1)


def taken_names(
    section: str, entries: Sequence[tuple[Any, Sequence[Any]]]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find names and aliases that are given twice, so that a client could not tell which model it reaches.

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
