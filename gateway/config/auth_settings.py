"""Settings of who may ask: keys with names, tokens of an identity provider, limits."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from gateway.config.section import RedisUrl, Seconds, Section, at_home, split_commas

HASH_FORM: Final = re.compile(r"sha256:[0-9a-f]{64}")
NAME_FORM: Final = r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}"
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures whose checking key is public; a symmetric key would let each holder sign."""

_MOST: Final = 2**53  # whole numbers up to it are exact as floats, in which limits are counted


class KeyLimits(Section):
    """What the holder of a key may ask for; None is no limit.

    Attributes:
        requests_per_minute: requests; one minute's number may come in a burst.
        tokens_per_minute: tokens of prompts and answers; one minute's number may come in a burst.
        in_flight: requests that are served at a time.
        max_tokens: tokens of one answer.
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
        hash: ``sha256:`` and the digest of the key in hexadecimal digits, as ``gateway key new`` prints it.
        expires: when it ends: a day, of which it is the end, or a time; in UTC unless it says another zone.
        models: names or aliases of models that it may use; None for all.
        limits: of what it may ask for.
        weight: of its share where models have more requests than room, from 0.001 to 1000.
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
                "must be sha256: and 64 hexadecimal digits in lower case, as `gateway key new` prints it; not the key"
            )
        return value


def repeated_keys(keys: Sequence[KeySettings]) -> str | None:
    """The first name or hash that stands there twice, in words; None where there is none."""
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
        keys: with names.
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
    """Tokens of an identity provider (JWT, RFC 7519), taken in place of keys.

    Attributes:
        issuer: that ``iss`` of a token must be.
        audience: of which ``aud`` of a token must name one.
        jwks_url: where the provider gives its public keys (RFC 7517).
        jwks_file: a file with them, in place of the URL.
        algorithms: of signatures that are taken.
        name_claim: the claim with the caller's name.
        models_claim: the claim with a list of the models that the caller may use; None for ``models``.
        limits_claim: the claim with an object of the form of ``limits``; None for ``limits``.
        models: of callers whose token says none; None for all.
        limits: of each caller whose token says none.
        refresh_s: seconds between two looks at the keys.
        leeway_s: seconds that the provider's clock may differ.
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
            raise ValueError("needs one of jwks_url and jwks_file")
        if self.jwks_url is not None and not self.jwks_url.startswith(("https://", "http://")):
            raise ValueError("jwks_url must begin with https:// or http://")
        return self


class AuthSettings(KeysFile):
    """Keys and identity providers beside ``server.api_keys``, and their limits.

    Attributes:
        keys: with names.
        keys_file: a YAML or JSON file with more of them, which is read again when it changes.
        jwt: tokens that are taken in place of keys.
        assumed_max_tokens: tokens of an answer that are reserved where a request does not say ``max_tokens``.
        redis_url: of the Redis in which gateways share the limits; None: each process group counts for itself.
        gateways: how many share the limits: each takes its part of every limit while Redis cannot be reached.
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
            raise ValueError("is not JSON; write a list of objects with name and hash") from None
        return found

    _home = field_validator("keys_file")(at_home)

    @property
    def asks(self) -> bool:
        """Whether a request needs a key or a token."""
        return bool(self.keys or self.keys_file is not None or self.jwt is not None)
