"""State between requests: the store, and encrypted state that clients hold."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.types import Scope

from gateway.api.openai.encryption import OwnerCipher, TextCipher
from gateway.api.openai.errors import OpenAIError
from gateway.http.middleware import owner_of
from gateway.serving.store import Store, StoreHolder
from gateway.settings import ConfigError, StateSettings
from gateway.settings.extras import pip_install


@dataclass(frozen=True, slots=True)
class CallerState:
    """The state that one caller may read and write.

    Attributes:
        owner: the caller; see ``owner_of``.
        store: the store of all owners; None where nothing is stored.
        cipher: the owner's cipher; None where the operator gave no keys.
    """

    owner: str
    store: Store | None
    cipher: OwnerCipher | None

    def needed(self) -> Store:
        """Return the store.

        Raises:
            OpenAIError: 404 where nothing is stored.
        """
        if self.store is None:
            raise OpenAIError(404, "This gateway stores nothing between requests.", code="state_not_kept")
        return self.store


class ApplicationState:
    """The store and the cipher of an application."""

    def __init__(self, stores: StoreHolder, cipher: TextCipher | None) -> None:
        """Take where things are kept.

        Args:
            stores: holds the store while the application runs.
            cipher: with the operator's keys; None without any.
        """
        self._stores = stores
        self._cipher = cipher

    def of(self, scope: Scope) -> CallerState:
        """The state of a request's caller."""
        owner = owner_of(scope)
        return CallerState(owner, self._stores.store, self._cipher.of(owner) if self._cipher else None)


def cipher_of(settings: StateSettings) -> TextCipher | None:
    """Make the cipher with the operator's keys; None without keys.

    Raises:
        ConfigError: the file of keys cannot be read or holds something else, or the extra ``encrypted`` is missing.
    """
    keys = [key.get_secret_value() for key in settings.keys]
    if settings.keys_file is not None:
        try:
            lines = settings.keys_file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"state.keys_file: {settings.keys_file} cannot be read ({error}).") from None
        found = [line.strip() for line in lines if line.strip()]
        if not found:
            raise ConfigError(f"state.keys_file: {settings.keys_file} contains no key.")
        keys += found
    if not keys:
        return None
    try:
        return TextCipher(keys)
    except ImportError:
        message = f"state.keys: needs the package cryptography; install it by {pip_install('encryption')}"
        raise ConfigError(message) from None
    except ValueError:
        message = "state.keys_file: each line must be 32 bytes in URL-safe base64, as Fernet.generate_key() makes them."
        raise ConfigError(message) from None
