"""Finds the caller of a request by its keys and tokens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.http.access.key_ring import Key, KeyRing

if TYPE_CHECKING:
    from gateway.http.access.tokens import TokenChecker

_log = logging.getLogger(__name__)
WRONG: Final = "Incorrect API key provided."
KEY_HEADERS: Final = (b"x-api-key", b"api-key")  # Anthropic's and Azure's
_HEADERS: Final = " or ".join(f"'{name.decode()}: KEY'" for name in KEY_HEADERS)
_MISSING: Final = f"You didn't provide an API key: send it in the header 'Authorization: Bearer KEY', {_HEADERS}."
_EXPIRED: Final = "The API key has expired."
_EXPIRED_TOKEN: Final = "The token has expired."  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True)
class AuthFailure:
    """The reason why a request is rejected.

    Attributes:
        message: one sentence for the client.
        name: name of the expired key, for the log.
    """

    message: str
    name: str = ""


class Identity:
    """Finds the caller of a request.

    Args:
        keys: the accepted keys; may be replaced at any time.
        tokens: validates tokens; None where tokens are not accepted.
    """

    def __init__(self, keys: KeyRing, tokens: TokenChecker | None = None) -> None:
        self.keys = keys
        self.tokens = tokens

    def look(self, keys: Sequence[bytes]) -> Key | AuthFailure | None:
        """Find the key of a request, or the reason to reject it; None where a token must be validated.

        Args:
            keys: keys of the request, of which some clients send two; empty for an unknown scheme.
        """
        expired: Key | None = None
        for key in filter(None, keys):
            found = self.keys.find(key)
            if found is not None and not self.keys.expired(found):
                return found
            expired = expired or found
            if found is None and self.tokens is not None and (found := self.tokens.cached_key(key)) is not None:
                return found
        if expired is not None:
            return AuthFailure(_EXPIRED, expired.caller.name)
        if not keys:
            return AuthFailure(_MISSING)
        return None if self.tokens is not None else AuthFailure(WRONG)

    async def check(self, keys: Sequence[bytes]) -> Key | AuthFailure:
        """Validate the tokens of a request; returns the caller's key, or the reason to reject the request."""
        failure = AuthFailure(WRONG)
        if self.tokens is None:
            return failure
        from gateway.http.access.tokens import ExpiredTokenError, TokenError  # noqa: PLC0415 - an extra

        for token in filter(None, keys):
            try:
                return await self.tokens.check(token)
            except ExpiredTokenError:  # noqa: PERF203 - one a token
                failure = AuthFailure(_EXPIRED_TOKEN)
            except TokenError as error:
                _log.debug("a token is rejected: %s", error, extra={"event": "token_refused"})
                failure = AuthFailure(WRONG)
        return failure
