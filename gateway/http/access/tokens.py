"""Validates tokens of an identity provider (JWT, RFC 7519), and finds their callers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any, Final

import jwt
from pydantic import ValidationError

from gateway.http.access.caller import Caller
from gateway.http.access.jwks import AGAIN_S, JwksSource
from gateway.http.access.key_ring import Key, owner_of_name
from gateway.settings import JwtSettings, KeyLimits
from gateway.text.bounded_dict import BoundedDict

_LONGEST: Final = 16384  # bytes of a token
_LONGEST_NAME: Final = 128
_MOST_MODELS: Final = 256
_CHECKED: Final = 4096  # tokens in the cache
_RECHECK_S: Final = 60.0


class TokenError(Exception):
    """An invalid token; the message is for the log."""


class ExpiredTokenError(TokenError):
    """An expired token."""


class TokenChecker:
    """Validates tokens, and caches valid ones for a minute.

    Args:
        settings: the provider, and the claims that tokens must have.
        again_s: seconds between two requests to the provider for an unknown key.
    """

    def __init__(self, settings: JwtSettings, again_s: float = AGAIN_S) -> None:
        self._settings = settings
        self.source = JwksSource(settings.jwks_url, settings.jwks_file, settings.refresh_s, again_s)
        self._checked = BoundedDict[bytes, tuple[Key, float, int]](_CHECKED)

    def cached_key(self, token: bytes) -> Key | None:
        """The cached caller of a token; None where the token must be validated."""
        found = self._checked.get(hashlib.sha256(token).digest())
        if found is None or found[1] <= time.monotonic() or found[2] != self.source.generation:
            return None
        key = found[0]
        return None if key.expires is not None and key.expires <= time.time() else key

    async def check(self, token: bytes) -> Key:
        """Validate a token and find its caller.

        Raises:
            TokenError: the token is not valid.
        """
        settings = self._settings
        if token.count(b".") != 2 or len(token) > _LONGEST:
            raise TokenError("it is not a JWT")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in settings.algorithms:
                raise TokenError("its signature algorithm is not allowed")
            kid = header.get("kid")
            found = await self.source.find(kid if isinstance(kid, str) else None)
            if found is None:
                raise TokenError("the identity provider has no key with its key id")
            claims = jwt.decode(
                token,
                found,
                algorithms=list(settings.algorithms),
                audience=list(settings.audience),
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
            key = self._key(claims)
        except jwt.ExpiredSignatureError:
            raise ExpiredTokenError("it has expired") from None
        # The library raises built-in errors, too, for malformed headers and claims.
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenError(str(error)) from None
        self._checked[hashlib.sha256(token).digest()] = (key, time.monotonic() + _RECHECK_S, self.source.generation)
        return key

    def _key(self, claims: dict[str, Any]) -> Key:
        settings = self._settings
        name = claims.get(settings.name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise TokenError(f"its claim {settings.name_claim!r} must be a string of 1 to {_LONGEST_NAME} characters")
        identity = f"jwt:{name}"
        who = Caller(id=identity, name=name, models=self._models(claims), limits=self._limits(claims))
        return Key(who, owner_of_name(identity), b"", float(int(claims["exp"])) + settings.leeway_s)

    def _models(self, claims: dict[str, Any]) -> frozenset[str] | None:
        claim, usual = self._settings.models_claim, self._settings.models
        given: Sequence[Any] | None = usual
        if claim is not None and claim in claims:
            given = claims[claim]
            if isinstance(given, str):
                given = given.split()
            if not isinstance(given, list) or len(given) > _MOST_MODELS or not all(isinstance(i, str) for i in given):
                raise TokenError(f"its claim {claim!r} must be a list of model names")
        return None if given is None else frozenset(given)

    def _limits(self, claims: dict[str, Any]) -> KeyLimits:
        claim = self._settings.limits_claim
        if claim is None or claim not in claims:
            return self._settings.limits
        try:
            return KeyLimits.model_validate(claims[claim])
        except ValidationError:
            raise TokenError(f"its claim {claim!r} must be an object of limits") from None
