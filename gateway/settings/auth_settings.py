"""Settings of authentication: named keys, tokens of an identity provider, limits."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from gateway.settings.section import RedisUrl, Seconds, Section, at_home, split_commas

HASH_FORM: Final = re.compile(r"sha256:[0-9a-f]{64}")
NAME_FORM: Final = r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}"
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures whose checking key is public; a symmetric key would let each holder sign."""

_MOST: Final = 2**53  # whole numbers up to it are exact as floats, in which limits are counted


class KeyLimits(Section):
    """Limits of a key; None is no limit.

    Attributes:
        requests_per_minute: most requests per minute; all of them may arrive in a burst.
        tokens_per_minute: most tokens of prompts and answers per minute; all of them may be used in a burst.
        in_flight: most concurrent requests.
        max_tokens: most tokens of one answer.
    """

    requests_per_minute: int | None = Field(default=None, ge=1, le=_MOST)
    tokens_per_minute: int | None = Field(default=None, ge=1, le=_MOST)
    in_flight: int | None = Field(default=None, ge=1, le=_MOST)
    max_tokens: int | None = Field(default=None, ge=1, le=_MOST)


def _moment(value: object) -> object:
    """The moment at which something ends: of a day its end, and all times in UTC where they do not say."""
    if isinstance(value, str):
        value = value.strip()
        if len(value) > len("2000-01-01"):
            value = dt.datetime.fromisoformat(value.replace("Z", "+00:00"))
        else:
            value = dt.date.fromisoformat(value)
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
    if isinstance(value, dt.date):
        return dt.datetime.combine(value + dt.timedelta(days=1), dt.time(), dt.timezone.utc)
    return value


Moment = Annotated[dt.datetime, BeforeValidator(_moment)]


class KeySettings(Section):
    """A key with a name.

    Attributes:
        name: for the log and the metrics.
        hash: ``sha256:`` and the digest of the key in hexadecimal digits, as ``gateway key`` prints it.
        expires: when the key expires: at the end of a day or at a time, in UTC unless it has another time zone.
        models: names or aliases of allowed models; None: all models.
        limits: limits of the key.
        weight: weight of its share in full queues, from 0.001 to 1000.
    """

    name: str = Field(pattern=f"^{NAME_FORM}$")
    hash: str
    expires: Moment | None = None
    models: tuple[str, ...] | None = None
    limits: KeyLimits = KeyLimits()
    weight: float = Field(default=1.0, ge=0.001, le=1000, allow_inf_nan=False)

    @field_validator("hash")
    @classmethod
    def _is_digest(cls, value: str) -> str:
        if not HASH_FORM.fullmatch(value):
            raise ValueError(
                "must be sha256: and 64 lower-case hexadecimal digits, as `gateway key` prints, not the key itself"
            )
        return value


def repeated_keys(keys: Sequence[KeySettings]) -> str | None:
    """Name the first duplicate name or hash of keys; None without one."""
    for what in ("name", "hash"):
        seen: dict[str, str] = {}
        for key in keys:
            value = getattr(key, what)
            if value in seen:
                return f"two keys have the {what} of {key.name!r}"
            seen[value] = key.name
    return None


class KeysFile(Section):
    """A file of keys.

    Attributes:
        keys: named keys.
    """

    keys: tuple[KeySettings, ...] = ()

    @field_validator("keys")
    @classmethod
    def _differ(cls, value: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        problem = repeated_keys(value)
        if problem is not None:
            raise ValueError(problem)
        return value


class JwtSettings(Section):
    """Tokens of an identity provider (JWT, RFC 7519), accepted instead of keys.

    Attributes:
        issuer: required value of ``iss`` in a token.
        audience: accepted values of ``aud`` in a token.
        jwks_url: URL of the provider's public keys (RFC 7517).
        jwks_file: a file with the public keys instead of the URL.
        algorithms: accepted signature algorithms.
        name_claim: the claim with the caller's name.
        models_claim: the claim with a list of allowed models; None: ``models`` applies.
        limits_claim: the claim with an object like ``limits``; None: ``limits`` applies.
        models: allowed models of tokens without this claim; None: all models.
        limits: limits of tokens without this claim.
        refresh_s: seconds between updates of the public keys.
        leeway_s: tolerated clock difference in seconds.
    """

    issuer: str = Field(min_length=1)
    audience: tuple[str, ...] = Field(min_length=1)
    jwks_url: str | None = None
    jwks_file: Path | None = None
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "ES256"), min_length=1)
    name_claim: str = Field(default="sub", min_length=1)
    models_claim: str | None = None
    limits_claim: str | None = None
    models: tuple[str, ...] | None = None
    limits: KeyLimits = KeyLimits()
    refresh_s: Seconds = Field(default=300.0, ge=10)
    leeway_s: Seconds = Field(default=30.0, ge=0, le=300)

    _split = field_validator("audience", "algorithms", "models", mode="before")(split_commas)
    _home = field_validator("jwks_file")(at_home)

    @model_validator(mode="after")
    def _one_source(self) -> JwtSettings:
        if (self.jwks_url is None) == (self.jwks_file is None):
            raise ValueError("requires either jwks_url or jwks_file")
        if self.jwks_url is not None and not self.jwks_url.startswith(("https://", "http://")):
            raise ValueError("jwks_url must begin with https:// or http://")
        return self


class AuthSettings(KeysFile):
    """Keys and identity providers in addition to ``server.api_keys``, and their limits.

    Attributes:
        keys: named keys.
        keys_file: a YAML or JSON file with more keys, which is reloaded when it changes.
        jwt: tokens that are accepted instead of keys.
        assumed_max_tokens: tokens that are reserved for an answer if a request has no ``max_tokens``.
        redis_url: URL of the Redis in which gateways share the limits; None: each gateway counts separately.
        gateways: number of gateways that share the limits: each applies its share of every limit while Redis is
            unreachable.
    """

    keys_file: Path | None = None
    jwt: JwtSettings | None = None
    assumed_max_tokens: int = Field(default=1024, ge=1)
    redis_url: RedisUrl | None = None
    gateways: int = Field(default=1, ge=1)

    @field_validator("keys", mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        """The list, which a variable holds as JSON."""
        if not isinstance(value, str):
            return value
        try:
            found: Any = json.loads(value)
        except ValueError:
            raise ValueError("must be JSON: a list of objects with name and hash") from None
        return found

    _home = field_validator("keys_file")(at_home)

    @property
    def asks(self) -> bool:
        """Whether requests need a key or a token."""
        return bool(self.keys or self.keys_file is not None or self.jwt is not None)
